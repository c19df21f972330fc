"""The meaning of Mooncake's error numbers, and a sentence with the remedy for what is wrong with a pool."""

from octavo.stores.client import StoreDownError

_HAS_NO_ROOM, _HAS_OTHER_SIZE, _WAS_OVERTAKEN = -200, -600, -601
_OF_THE_OBJECT = range(-799, -699)
"""The object is missing, not whole yet, or in use."""
_SENTENCES = {
    _HAS_NO_ROOM: "the pool has no room: give it some with segment_size, or with mooncake_client",
    _WAS_OVERTAKEN: "another engine writes the same at this moment",
    -703: "another engine is writing the name of the family's epoch, and has not ended",
    -800: "a machine that holds a part of the pool does not answer",
    -900: "the master is not reached",
    -901: "the master does not answer in time",
}


def is_missing(code: int) -> bool:
    """Whether an object is not to be had now, though the store works."""
    return code in _OF_THE_OBJECT


def has_other_size(code: int) -> bool:
    """Whether an object is longer or shorter than the one asked for."""
    return code == _HAS_OTHER_SIZE


def was_overtaken(code: int) -> bool:
    """Whether another engine began to replace an object before this one had ended to."""
    return code == _WAS_OVERTAKEN


def is_down(code: int) -> bool:
    """Whether the store did not work."""
    return code < 0 and code != _HAS_NO_ROOM and not is_missing(code) and not has_other_size(code)


def explain(code: int) -> StoreDownError:
    return StoreDownError(_SENTENCES.get(code, f"Mooncake's error {code}"))


def explain_start(answer: dict[str, str]) -> StoreDownError:
    """The reason why the process with the library did not start."""
    error = answer["error"]
    if answer.get("of") == "import":
        return StoreDownError(
            f"Mooncake's library does not load: {error}",
            "pip install 'octavo[mooncake]', or mooncake-transfer-engine-non-cuda on a machine without CUDA, and "
            "Debian's packages libibverbs1, libnl-3-200 and libnl-route-3-200",
        )
    return StoreDownError(error)
