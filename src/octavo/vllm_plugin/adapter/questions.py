"""`Questions`: what vLLM's requests ask tiers that must be asked ahead, such as a store on a network.

vLLM asks chunk by chunk. Such a tier is told of the whole sequence at the first chunk that nobody nearer has, once for
each request; the request waits for the answer while others compute, and never longer than the deadline.
"""

import math
from collections.abc import Sequence

from vllm.v1.kv_offload.base import ReqContext

from octavo.chunks import ChunkChain, GroupOffloadConfig, OffloadKey, SequenceNames, make_offload_key
from octavo.ids import BlockHash, GroupIdx, enumerate_groups
from octavo.offload import OffloadingManager

_OVER = -math.inf


class Questions:
    """The questions that tiers have not answered, for each request."""

    def __init__(
        self,
        manager: OffloadingManager,
        groups: Sequence[GroupOffloadConfig],
        *,
        tokens_per_hash: int,
        timeout_s: float,
    ) -> None:
        self.are_open = False
        """Whether a request waits for an answer in this step."""
        self._manager = manager
        self._groups = groups
        self._tokens_per_hash = tokens_per_hash
        self._timeout_s = timeout_s
        self._step = 0

    def begin(self, context: ReqContext, request: object, tenant: bytes) -> None:
        """A new request. It asks nothing if vLLM does not show its hashes."""
        hashes = getattr(request, "block_hashes", None)
        if self._manager.asks_ahead and hashes is not None:
            context.set_state(_Sequence(hashes, tenant, self._groups, self._tokens_per_hash))

    def end_step(self) -> None:
        self._step += 1
        self.are_open = False

    def has_asked(self, context: ReqContext) -> bool:
        """Whether the request has begun or gone on to wait in this step."""
        sequence: _Sequence | None = context.get_state(_Sequence)
        return sequence is not None and sequence.asked_in == self._step and sequence.waits_until != _OVER

    def awaits(self, context: ReqContext, now: float, *, patience_s: float | None = None) -> bool:
        """Whether the request waits for an answer of a tier. It waits for at most `patience_s`, if that is given."""
        sequence: _Sequence | None = context.get_state(_Sequence)
        if sequence is None or sequence.waits_until == _OVER:
            return False
        if sequence.asked_in != self._step:
            sequence.asked_in = self._step
            sequence.waits_until = min(
                sequence.waits_until, now + min(self._timeout_s, math.inf if patience_s is None else patience_s)
            )
            sequence.is_told = True
            if now >= sequence.waits_until or not self._manager.ask(sequence.names()):
                sequence.waits_until = _OVER
                return False
            self.are_open = True
        return True

    def announce(self, context: ReqContext) -> None:
        """These chunks of the request are to be stored."""
        sequence: _Sequence | None = context.get_state(_Sequence)
        if sequence is not None:
            sequence.is_told = True
            self._manager.ask(sequence.names(), wants_answer=False)

    def announce_once(self, context: ReqContext) -> None:
        """Chunks of the request are to be read from one tier, and written to those that lack them."""
        sequence: _Sequence | None = context.get_state(_Sequence)
        if sequence is not None and not sequence.is_told:
            self.announce(context)


class _Sequence:
    """The names of a request's chunks, and how long it waits for the answer about them."""

    def __init__(
        self, hashes: Sequence[BlockHash], tenant: bytes, groups: Sequence[GroupOffloadConfig], tokens_per_hash: int
    ) -> None:
        self.waits_until = math.inf
        self.is_told = False
        """Whether the tiers know of it."""
        self.asked_in = -1
        """The step."""
        self._hashes = hashes
        self._tenant = tenant
        self._chains: list[tuple[GroupIdx, int, list[OffloadKey], ChunkChain]] = []
        """Per group: the hashes from one name to the next."""
        for group_idx, group in enumerate_groups(groups):
            if not group.chunk_bytes:
                continue  # vLLM does not offload it
            # a chunk of one block may end at any hash: vLLM stores tails of recurrent state
            stride = 1 if group.blocks_per_chunk == 1 else group.tokens_per_chunk // tokens_per_hash
            keys: list[OffloadKey] = []
            chain = ChunkChain(stride * tokens_per_hash, keys, group.spec.needs_whole_prefix)
            self._chains.append((group_idx, stride, keys, chain))

    def names(self) -> SequenceNames:
        for group_idx, stride, keys, _ in self._chains:
            ends = range((len(keys) + 1) * stride - 1, len(self._hashes), stride)
            keys += [make_offload_key(self._hashes[end], group_idx) for end in ends]
        return SequenceNames(self._tenant, [chain for *_, chain in self._chains])
