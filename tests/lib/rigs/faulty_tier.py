"""A tier whose medium misbehaves as it is told: refuses, fails, hangs, ends late, gives back other bytes, raises."""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from octavo.chunks import ChunkBytes, OffloadKey, SequenceNames, TierChanges, TierResult
from octavo.tiers import Tier, TierStatus


class TierFault(Enum):
    NONE = "none"
    REFUSES = "refuses"
    FAILS = "fails"
    HANGS = "hangs"
    """Jobs end when the fault is gone, if nobody cancelled them."""
    LOSES = "loses"
    """What a lookup finds is not there when it is read."""


P = ParamSpec("P")
T = TypeVar("T")
FaultyMethod = Callable[Concatenate["FaultyTier", P], T]


def may_raise(method: FaultyMethod[P, T]) -> FaultyMethod[P, T]:
    """Raises if the tier was told so: before the method has done anything, or after all."""

    @wraps(method)
    def raising(self: "FaultyTier", *args: P.args, **kwargs: P.kwargs) -> T:
        raises = method.__name__ in self.raises
        if raises:
            self.spoil_what_hangs()
        if raises and not self.raises_late:
            raise RuntimeError(f"can't start new thread, in {method.__name__}")
        answer = method(self, *args, **kwargs)
        if raises:
            raise RuntimeError(f"the thread died, in {method.__name__}")
        return answer

    return raising


class FaultyTier(Tier):
    """Wraps a tier that works."""

    medium = "faulty"

    def __init__(self, inner: Tier) -> None:
        self._inner = inner
        self.asks_ahead = inner.asks_ahead  # type: ignore[misc]  # a class has it, but for this one
        self.gather_s = inner.gather_s
        self.fault = TierFault.NONE
        self.raises: Collection[str] = ()
        """Methods whose every call raises."""
        self.raises_late = False
        """They do what they are asked, and raise then."""
        self._held_back: list[tuple[bool, int, Sequence[ChunkBytes]]] = []
        """(is a load, job, chunks) that hang."""
        self._results: list[TierResult] = []

    @may_raise
    def ask(self, sequence: SequenceNames, *, wants_answer: bool = True) -> bool:
        if self.fault is TierFault.HANGS:
            return wants_answer
        return self._inner.ask(sequence, wants_answer=wants_answer and self.fault is not TierFault.REFUSES)

    @may_raise
    def lookup(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._inner.lookup(keys)

    @may_raise
    def stored_bytes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return self._inner.stored_bytes(keys)

    @may_raise
    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._inner.touch(keys)

    @may_raise
    def submit_store(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        return self._submit(job_id, chunks, is_load=False)

    @may_raise
    def submit_load(self, job_id: int, chunks: Sequence[ChunkBytes]) -> bool:
        return self._submit(job_id, chunks, is_load=True)

    @may_raise
    def cancel(self, job_id: int) -> None:
        if any(job_id == held for _, held, _ in self._held_back):
            self._held_back = [job for job in self._held_back if job[1] != job_id]
        elif any(job_id == result.job_id for result in self._results):
            self._results = [result for result in self._results if result.job_id != job_id]
        else:
            self._inner.cancel(job_id)

    @may_raise
    def poll(self, now: float) -> list[TierResult]:
        if self.fault is not TierFault.HANGS:
            held_back, self._held_back = self._held_back, []
            for is_load, job_id, chunks in held_back:
                if not self._submit(job_id, chunks, is_load=is_load):
                    self._fail(job_id, chunks)
        results, self._results = self._results, []
        return results + self._inner.poll(now)

    @may_raise
    def take_changes(self) -> TierChanges:
        return self._inner.take_changes()

    @may_raise
    def announce(self) -> None:
        self._inner.announce()

    @may_raise
    def remove(self, keys: Sequence[OffloadKey]) -> None:
        self._inner.remove(keys)

    @may_raise
    def reset(self) -> None:
        for _, job_id, chunks in self._held_back:
            self._fail(job_id, chunks)
        self._held_back.clear()
        self._inner.reset()

    @may_raise
    def is_reset_durable(self) -> bool:
        return self.fault is TierFault.NONE and self._inner.is_reset_durable()

    @may_raise
    def flush(self, timeout_s: float) -> bool:
        return self.fault is TierFault.NONE and self._inner.flush(timeout_s)

    @may_raise
    def status(self) -> TierStatus:
        return self._inner.status()

    @may_raise
    def close(self) -> None:
        self._inner.close()

    def _submit(self, job_id: int, chunks: Sequence[ChunkBytes], *, is_load: bool) -> bool:
        match self.fault:
            case TierFault.REFUSES:
                return False
            case TierFault.HANGS:
                self._held_back.append((is_load, job_id, chunks))
                return True
            case TierFault.FAILS:
                self._spoil(chunks, is_load=is_load)
                self._fail(job_id, chunks)
                return True
            case TierFault.LOSES:
                self._inner.remove([chunk.key for chunk in chunks])
        return self._inner.submit_load(job_id, chunks) if is_load else self._inner.submit_store(job_id, chunks)

    def _fail(self, job_id: int, chunks: Sequence[ChunkBytes]) -> None:
        self._results.append(TierResult(job_id, frozenset(range(len(chunks)))))

    @staticmethod
    def _spoil(chunks: Sequence[ChunkBytes], *, is_load: bool) -> None:
        """A load that fails may have written to its buffers."""
        if is_load:
            for chunk in chunks:
                for buffer in chunk.buffers:
                    buffer[:] = b"\xff" * len(buffer)

    def spoil_what_hangs(self) -> None:
        """Nobody has cancelled these, so their buffers may be written to at any time."""
        for is_load, _, chunks in self._held_back:
            self._spoil(chunks, is_load=is_load)

    def get_well(self) -> None:
        self.fault, self.raises = TierFault.NONE, ()


METHODS = sorted({"ask", *Tier.__abstractmethods__})
"""That may raise: all of the contract."""
