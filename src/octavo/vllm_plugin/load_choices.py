"""`LoadChoices`: whether what a request of vLLM's can load is worth it, by the rule that all of Octavo shares.

vLLM asks chunk by chunk and group by group, and loads whatever it is told is there. So the resume points at which its
search can end are found ahead, over all groups together:

    tokens          0     device      memory        memory and tiers      prompt
    load all        [-----][=========================][ compute the rest --]
    load a part     [-----][===========][ compute the rest ----------------]
    compute         [-----][ compute --------------------------------------]
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from octavo.chunks import GroupOffloadConfig, LookupResult, OffloadKey, make_offload_key
from octavo.ids import BlockHash, GroupIdx, enumerate_groups
from octavo.offload import (
    ANYWHERE,
    IN_MEMORY,
    ChunkToLoad,
    LoadChooser,
    LoadRule,
    OffloadingManager,
    Outlook,
    Way,
    keys_to_probe,
    way_to_load,
)
from octavo.specs import GroupAvailability, ResumePoint, longest_resume
from octavo.vllm_plugin.promised import as_vllm_reads

_WITHOUT_READS: Collection[LookupResult] = (LookupResult.HIT, LookupResult.HIT_PENDING)
_FIRST_PROBE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest:
    """The facts on which the choice depends."""

    hashes: Sequence[BlockHash]
    num_tokens: int
    device_tokens: int
    """The resume point without a load."""
    tokens_ahead: int
    """Tokens of other prompts that are computed before this one."""
    may_read: bool
    """Whether tiers below memory may be read for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChoice:
    """The best choice for a request."""

    outlook: Outlook
    loading_s: float | None = None
    """How long the chosen load is expected to take; None if nothing is loaded."""
    to_probe: Sequence[OffloadKey] = ()
    """Chunks to read although no request waits for them, so that the tier is measured again."""


class LoadChoices:
    """Makes the choices for all requests, from measured speeds."""

    def __init__(
        self, manager: OffloadingManager, groups: Sequence[GroupOffloadConfig], rule: LoadRule, *, tokens_per_hash: int
    ) -> None:
        self.chooser = LoadChooser(rule)
        self.bytes_in_flight = 0
        """The bytes that are being copied to the device."""
        self._manager = manager
        self._groups = [
            (group_idx, group, group.tokens_per_chunk // tokens_per_hash)
            for group_idx, group in enumerate_groups(groups)
            if group.chunk_bytes and group.spec.indexes_decoder_tokens
        ]
        self._has_states = any(group.spec.holds_checkpoints for _, group, _ in self._groups)

    def find(self, request: WaitingRequest) -> "Found":
        """The loads that are possible for a request."""
        sequences = [
            _Chunks(self._manager, group_idx, group, request.hashes[hashes - 1 :: hashes])
            for group_idx, group, hashes in self._groups
        ]
        return Found(sequences, request, ANYWHERE if request.may_read else _WITHOUT_READS, self._end(request))

    def choose(self, request: WaitingRequest, found: "Found", loads_end_in: Iterable[float] = ()) -> LoadChoice:
        """`loads_end_in`: for each other request that waits for a load, the seconds until the load ends."""
        if found.num_tokens <= request.device_tokens:
            return LoadChoice(outlook=Outlook.LOAD)
        way, part = self._way(found, request), None
        if not way.is_in_memory:
            in_memory = Found(found.sequences, request, IN_MEMORY, self._end(request))
            part = self._way(in_memory, request) if in_memory.num_tokens > request.device_tokens else None
        outlook = self.chooser.choose(
            way,
            part,
            tokens_alone=request.num_tokens - request.device_tokens,
            tokens_ahead=request.tokens_ahead,
            loads_end_in=loads_end_in,
        )
        chosen = {Outlook.LOAD: way, Outlook.LOAD_PART: part, Outlook.COMPUTE: None}[outlook]
        loading_s = None if chosen is None else self.chooser.loading_s(chosen)
        if outlook is Outlook.LOAD or way.is_in_memory:
            return LoadChoice(outlook=outlook, loading_s=loading_s)
        to_probe = keys_to_probe(found.chunks, self._manager, self.chooser)
        return LoadChoice(outlook=outlook, loading_s=loading_s, to_probe=to_probe)

    def patience_s(self, request: WaitingRequest) -> float | None:
        """How long to wait for tiers that have not yet said what they hold; None: loads always pay."""
        return self.chooser.worth_of_an_answer_s(
            tokens_alone=request.num_tokens - request.device_tokens, tokens_ahead=request.tokens_ahead
        )

    def _end(self, request: WaitingRequest) -> int:
        """Where vLLM's search ends: with the prompt, if that ends with a chunk, and then vLLM computes the last token
        again; or with the chunk before, if there are states, since no state goes back by a token."""
        return request.num_tokens if self._has_states else request.num_tokens + 1

    def _way(self, found: "Found", request: WaitingRequest) -> Way:
        tokens_left = max(1, request.num_tokens - found.num_tokens)
        return way_to_load(found.chunks, self._manager, tokens_left=tokens_left, bytes_in_flight=self.bytes_in_flight)


class _Chunks:
    """The chunks of one request in one group, by index in the sequence. Each chunk is asked for once, and many in one
    call."""

    def __init__(
        self,
        manager: OffloadingManager,
        group_idx: GroupIdx,
        group: GroupOffloadConfig,
        hashes: Sequence[BlockHash],
    ) -> None:
        """`hashes`: per chunk, the hash of its last block."""
        self.group = group
        self.spec = replace(as_vllm_reads(group.spec), block_size=group.tokens_per_chunk)
        self.count = len(hashes)
        self._manager = manager
        self._hashes = hashes
        self._suffix = make_offload_key(BlockHash(b""), group_idx)
        self._stands: list[LookupResult | None] = [None] * len(hashes)

    def keys(self, start: int, stop: int) -> list[OffloadKey]:
        suffix = self._suffix
        return [OffloadKey(block_hash + suffix) for block_hash in self._hashes[start:stop]]

    def stands(self, start: int, stop: int) -> Sequence[LookupResult | None]:
        """Where each of these chunks is. The sequence has all of them, so no answer is None."""
        if None in self._stands[start:stop]:
            self._stands[start:stop] = self._manager.lookup(self.keys(start, stop))
        return self._stands[start:stop]


class _There:
    """`BlockAvailability` with chunks in place of blocks. A chunk is available if it is on the device, or if its lookup
    gives one of the accepted results."""

    def __init__(self, chunks: _Chunks, on_device: int, accepts: Collection[LookupResult]) -> None:
        self._chunks = chunks
        self._on_device = on_device
        self._accepts = accepts

    def first_missing(self, start: int, stop: int) -> int:
        at, probe, known = max(start, self._on_device), _FIRST_PROBE, min(stop, self._chunks.count)
        while at < known:
            end = min(at + probe, known)
            for index, stands in enumerate(self._chunks.stands(at, end), at):
                if stands not in self._accepts:
                    return index
            at, probe = end, probe * 8
        return min(at, stop)

    def available_until(self, stop: int) -> int:
        end, probe = min(stop, self._chunks.count), _FIRST_PROBE
        while end > self._on_device:
            start = max(self._on_device, end - probe)
            for back, stands in enumerate(reversed(self._chunks.stands(start, end)), 1):
                if stands in self._accepts:
                    return end - back + 1
            end, probe = start, probe * 8
        return min(stop, self._on_device)


class Found:
    """The resume point that chunks make together with the device, and the chunks that it takes."""

    def __init__(
        self, sequences: Sequence[_Chunks], request: WaitingRequest, accepts: Collection[LookupResult], end: int
    ) -> None:
        self.sequences = sequences
        on_device = [request.device_tokens // chunks.spec.block_size for chunks in sequences]
        there = [_There(chunks, first, accepts) for chunks, first in zip(sequences, on_device, strict=True)]
        groups = [
            GroupAvailability(spec=chunks.spec, blocks=blocks) for chunks, blocks in zip(sequences, there, strict=True)
        ]
        resume = longest_resume(groups, ResumePoint(end))
        self.num_tokens = resume.num_tokens
        self.is_all = resume.limited_by is None
        """Whether no other chunk of the request can be anywhere."""
        self.known_tokens = min(
            (
                blocks.first_missing(0, chunks.count) * chunks.spec.block_size
                for chunks, blocks in zip(sequences, there, strict=True)
                if chunks.spec.needs_whole_prefix
            ),
            default=0,
        )
        """The tokens of the prefix that are there, whether a request can resume at their end or not."""
        self.chunks: list[ChunkToLoad] = []
        point = ResumePoint(self.num_tokens)
        for chunks, first in zip(sequences, on_device, strict=True):
            for run in chunks.spec.needed_blocks(point):
                start, num_bytes = max(first, run.start), chunks.group.chunk_bytes
                keys, stands = chunks.keys(start, run.stop), chunks.stands(start, run.stop)
                self.chunks += map(ChunkToLoad, keys, repeat(num_bytes), stands)
