"""Copies by CUDA's driver, with drivers of host memory: of CUDA 13, of 12.8, and older ones."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from octavo.transfer import copy_engine

STREAM = 7


class Driver(SimpleNamespace):
    """It notes the stream of each call. As CUDA's, its functions take attributes such as `argtypes`."""

    def __init__(self, *names, result=0):
        def copy(target, source, size, stream):
            self.streams.append(stream)
            ctypes.memmove(target, source, size)
            return result

        def copy_batch(targets, sources, sizes, count, attributes, first, num_attributes, *ends):
            assert (attributes.access_order, first.value, num_attributes) == (1, 0, 1)
            arrays = [(ctypes.c_uint64 * count).from_address(array) for array in (targets, sources, sizes)]
            for place in zip(*arrays, strict=True):
                ctypes.memmove(*place)
            self.streams.append(ends[-1])
            self.num_ends = len(ends)
            return result

        calls = dict.fromkeys(names, copy_batch) | {"cuMemcpyAsync": copy}
        super().__init__(streams=[], num_ends=0, **calls)


@pytest.fixture
def run(monkeypatch):
    """Copies 3 and 5 bytes of two places by a driver; the targets' bytes."""

    def run_by(driver, *, is_pinned=True):
        monkeypatch.setattr(copy_engine, "_driver", lambda: driver)
        copy_engine._batch_call.cache_clear()
        source, target = np.arange(16, dtype=np.uint8), np.zeros(16, np.uint8)
        places = np.array([[8, 0], [2, 9], [3, 5]], np.uint64)
        places[0] += np.uint64(target.ctypes.data)
        places[1] += np.uint64(source.ctypes.data)
        copy_engine.copy_all(*places, STREAM, is_pinned=is_pinned)
        return target.tolist()

    yield run_by
    copy_engine._batch_call.cache_clear()


COPIED = [9, 10, 11, 12, 13, 0, 0, 0, 2, 3, 4, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("names", "num_ends"),
    [
        (["cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"], 1),
        (["cuMemcpyBatchAsync"], 2),  # and where it says which copy it refuses
    ],
)
def test_all_copies_are_one_call(run, names, num_ends):
    driver = Driver(*names)
    assert run(driver) == COPIED
    assert (driver.streams, driver.num_ends) == ([STREAM], num_ends)


@pytest.mark.parametrize(("names", "is_pinned"), [([], True), (["cuMemcpyBatchAsync_v2"], False)])
def test_without_that_call_or_pinned_memory_each_is_a_call(run, names, is_pinned):
    driver = Driver(*names)
    assert run(driver, is_pinned=is_pinned) == COPIED
    assert driver.streams == [STREAM, STREAM]


@pytest.mark.parametrize("names", [[], ["cuMemcpyBatchAsync_v2"]])
def test_what_the_driver_refuses_is_an_error(run, names):
    with pytest.raises(RuntimeError, match="could not begin a copy: error 700"):
        run(Driver(*names, result=700))


def test_the_driver_reads_attributes_of_24_bytes():
    """As `CUmemcpyAttributes` is laid out in CUDA 12.8 and 13."""
    assert ctypes.sizeof(copy_engine._Attributes) == 24
    assert copy_engine._Attributes.flags.offset == 20
