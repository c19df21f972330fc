"""What Octavo knows of one request of vLLM's. vLLM's own record of the request holds it, so both end together, and at
once: nothing here leads back to that record, as what holds itself stays until Python looks for it, and vLLM's request
may have images with it."""

import math
from collections.abc import Iterable, Sequence
from types import FrameType
from weakref import ref

from vllm.v1.kv_offload.base import Locality, Medium, OffloadKey, ReqContext
from vllm.v1.request import RequestStatus

from octavo.chunks import (
    NO_TENANT,
    GroupOffloadConfig,
    Hint,
    OffloadKey as Key,
    PromisedPoint,
    WantedChunk,
    get_offload_block_hash,
    get_offload_group_idx,
    make_offload_key,
    name_tenant,
)
from octavo.ids import BlockHash
from octavo.offload import Outlook
from octavo.specs import PromisePlan
from octavo.vllm_plugin.promised import PromisedChunks
from octavo.why import Looks

_WAITING = (RequestStatus.WAITING, RequestStatus.WAITING_FOR_REMOTE_KVS, RequestStatus.PREEMPTED)


class RequestState:
    """The chunks that a request asks for, and how long it waits for them."""

    def __init__(self, context: ReqContext) -> None:
        self.asked: dict[OffloadKey, None] = {}
        """The chunks that it asked for in this step, in order."""
        self.from_tiers: set[OffloadKey] = set()
        """The chunks that were promoted for it."""
        self.awaited: dict[OffloadKey, None] = {}
        """The chunks that were promoted since it was last served: they may be held for it."""
        self.deadline = math.inf
        """The end of its wait for tiers; set when the wait begins, and in the past once the request has given up."""
        self._context = ref(context)
        allows = context.load_tier_filter.allows
        self.may_store = True
        self.may_load = allows(Medium.CPU, Locality.LOCAL)
        self._may_read_tiers = self.may_load and allows(Medium.STORAGE, Locality.LOCAL)
        self.keeps_media = True
        """Whether it goes below memory also with images, audio or video."""
        self.is_confined = False
        """Whether it never goes below memory."""
        self.looks = Looks()
        """Notes for the question why it resumed where it did; empty if nobody may ask."""
        self.gave_up_waiting = False
        self.gave_up_loading = False
        """Whether the last choice was to compute chunks that are there, all of them or a part, because that is
        quicker."""
        self.outlook: Outlook | None = None
        """The last choice; None until the request asks for a chunk, and once it was served."""
        self.load_ends_at = math.inf
        """When the load that was chosen is expected to end."""
        self.tenant = NO_TENANT
        self.num_prompt_tokens: int | None = None
        self.known_tokens = 0
        """The tokens of its prefix that were found when vLLM looked."""
        self.device_tokens = 0
        """The tokens that it resumes with if it loads nothing."""
        self.hashes: Sequence[BlockHash] = ()
        """vLLM's hashes of the prompt and of the answer so far."""
        self.hints: Sequence[Hint] = ()
        self.is_served = False
        """Whether it was loaded or computed."""
        self.points: dict[int, BlockHash] = {}
        """Number of tokens -> block hash, for each point that was promised."""
        self._promised_tokens = 0
        self._known_preemptions = 0
        self._preemptions_at_start = -1
        self._tokens_at_start = 0
        self._request: object = None
        self._tokens_per_hash = 1
        self._inside = 0
        """Where vLLM was told to keep windows and states though nobody has left the prefix there."""
        self._plan: PromisePlan | None = None

    def begin(self, request: object, tokens_per_hash: int) -> None:
        """`request` is vLLM's own, as far as vLLM shows it."""
        self._request, self._tokens_per_hash = request, tokens_per_hash
        self.hashes = getattr(request, "block_hashes", ())
        self.tenant = name_tenant(getattr(request, "cache_salt", None))
        num_tokens = getattr(request, "num_prompt_tokens", None)
        self.num_prompt_tokens = num_tokens if isinstance(num_tokens, int) else None

    @property
    def is_continued(self) -> bool:
        """Whether it is a session that goes on with a further part of its prompt. vLLM's connector then has the pages
        of the first part twice, and would store those of other tokens under a chunk's name."""
        return getattr(self._request, "num_prompt_tokens", self.num_prompt_tokens) != self.num_prompt_tokens

    @property
    def may_have_adapter(self) -> bool:
        """Whether vLLM computes it with an adapter, as far as vLLM shows it."""
        return getattr(self._request, "lora_request", True) is not None

    @property
    def stays_in_memory(self) -> bool:
        """Whether nothing of the request is read from tiers or written to them. A session, which goes on with what its
        client streams, may get its first image late."""
        return self.is_confined or (not self.keeps_media and may_have_media(self._request))

    @property
    def may_promote(self) -> bool:
        return self._may_read_tiers and not self.stays_in_memory

    @property
    def num_tokens(self) -> int:
        num_tokens: int = getattr(self._request, "num_tokens", len(self.hashes) * self._tokens_per_hash)
        return num_tokens

    @property
    def prompt_tokens_left(self) -> int | None:
        """The prompt tokens that vLLM has still to compute: 0 while the request waits, None once all are computed."""
        if getattr(self._request, "status", None) is not RequestStatus.RUNNING:
            return 0
        num_computed: int = getattr(self._request, "num_computed_tokens", 0)
        left = (self.num_prompt_tokens or 0) - num_computed
        return left if left > 0 else None

    @property
    def is_waiting(self) -> bool:
        """Whether it is to run and does not, as far as vLLM shows it."""
        return getattr(self._request, "status", None) in _WAITING

    @property
    def waits_with_pages(self) -> bool:
        """Whether it waits for its load, or has loaded and waits for room to compute the rest."""
        status = getattr(self._request, "status", None)
        if status is RequestStatus.WAITING_FOR_REMOTE_KVS:
            return True
        has_loaded: bool = getattr(self._request, "num_computed_tokens", 0) > 0  # and 0 if the load has failed
        return has_loaded and status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)

    @property
    def is_just_preempted(self) -> bool:
        """Whether it was preempted since the last step that asked for it, as by a reset. vLLM tells its connector at
        the end of the step, and the connector fails if the request has a load by then."""
        return self._num_preemptions > self._known_preemptions

    def end_step(self) -> None:
        """The end of a step that asked for it."""
        self.asked.clear()
        self._known_preemptions = self._num_preemptions

    def tokens_at_start(self) -> int:
        """The tokens that it had, from the device or loaded, when it first offered chunks since it last began."""
        if self._preemptions_at_start != self._num_preemptions:
            self._preemptions_at_start = self._num_preemptions
            self._tokens_at_start = getattr(self._request, "num_computed_tokens", 0)
        return self._tokens_at_start

    @property
    def _num_preemptions(self) -> int:
        count: int = getattr(self._request, "num_preemptions", 0)
        return count

    def note_found(self, key: OffloadKey) -> None:
        """A chunk was found, of a group that is needed from the first chunk on."""
        self.known_tokens = max(self.known_tokens, self._end_of(key))

    def tell_point(self, promised: PromisedChunks, resumed_tokens: int) -> None:
        """Tells vLLM where to keep and offer windows and states beside the prompt's end: where others left this prefix,
        if what a resume needs is not there, or else inside what is new. vLLM sees only what the device has, and forgets
        what it was told whenever it looks anew."""
        told = getattr(self._request, "shared_prefix_boundary", math.inf)
        if told and told == self._inside:
            return
        num_prompt_tokens = self.num_prompt_tokens or 0
        point, self._inside = promised.branch(num_prompt_tokens, self.known_tokens), 0
        if max(point, told) <= resumed_tokens:
            point = self._inside = promised.inside(num_prompt_tokens, resumed_tokens)
        if point > told:
            self._request.shared_prefix_boundary = point  # type: ignore[attr-defined] # vLLM's own, by feature

    def resume(self, loaded: Iterable[OffloadKey] = ()) -> int:
        """The request is loaded or computed for the first time. Returns the tokens with which it resumes, in whole
        blocks; without a load, those that the device has."""
        self.is_served = True
        device_tokens: int = getattr(self._request, "num_computed_tokens", 0)
        size = self._tokens_per_hash
        return max(map(self._end_of, loaded), default=device_tokens) // size * size

    def keys_of_resume(self, promised: PromisedChunks, num_tokens: int) -> list[Key]:
        """The whole chunks that a resume at this boundary needs, group by group, as far as their blocks have hashes."""
        named = ((group_idx, self.find_hash(end)) for group_idx, end in promised.chunks_of_resume(num_tokens))
        return [make_offload_key(block_hash, group_idx) for group_idx, block_hash in named if block_hash is not None]

    def find_hash(self, end: int) -> BlockHash | None:
        """The hash of the block that ends with this token."""
        index = end // self._tokens_per_hash - 1
        return self.hashes[index] if 0 <= index < len(self.hashes) else None

    def promised(self, keys: Iterable[OffloadKey], promised: PromisedChunks) -> list[OffloadKey]:
        """The offered chunks that are worth storing; all of them if the prompt's length is not known."""
        if self.num_prompt_tokens is None:
            return list(keys)
        if self._plan is None:
            self._plan = promised.plan(self.num_prompt_tokens, self.known_tokens, self._inside)
        plan, group_of = self._plan, get_offload_group_idx
        return [key for key in keys if promised.is_needed(plan, group_of(Key(key)), self._end_of(key))]

    def promised_points(self, keys: Iterable[OffloadKey], promised: PromisedChunks) -> list[PromisedPoint]:
        """The promised points for which these chunks are stored; call it after `promised`. A point is promised again
        when chunks before it come later, since vLLM stores states first."""
        if self._plan is None:
            return []
        first = math.inf
        for key in map(Key, keys):
            end = self._end_of(OffloadKey(key))
            first = min(first, end)
            if promised.is_promised(self._plan, get_offload_group_idx(key), end):
                self.points[end] = get_offload_block_hash(key)
        return [self.promise(end, self.points[end]) for end in sorted(self.points) if end >= first]

    def promise(self, num_tokens: int, block_hash: BlockHash) -> PromisedPoint:
        point = PromisedPoint(num_tokens, block_hash, self._promised_tokens)
        self._promised_tokens = max(self._promised_tokens, num_tokens)
        return point

    def chunks(self, keys: Iterable[OffloadKey], groups: Sequence[GroupOffloadConfig]) -> list[WantedChunk]:
        """These keys with their positions and the keys of the chunks before them, which vLLM does not offer if it has
        loaded them."""
        chunks = []
        for key in map(Key, keys):
            group_idx = get_offload_group_idx(key)
            size = groups[group_idx].tokens_per_chunk
            position = max(0, -(-self._end_of(OffloadKey(key)) // size) - 1)
            before = self.find_hash(position * size)
            parent = None if before is None else make_offload_key(before, group_idx)
            chunks.append(WantedChunk(key, position, parent, tenant=self.tenant))
        return chunks

    def _end_of(self, key: OffloadKey) -> int:
        context = self._context()
        return 0 if context is None else context.get_offload_key_position(key) or 0


def state_of(context: ReqContext) -> RequestState:
    state: RequestState | None = context.get_state(RequestState)
    if state is None:
        state = RequestState(context)
        context.set_state(state)
    return state


def request_of(caller: FrameType | None) -> object:
    """The new request that vLLM's connector tells of; None if vLLM no longer calls it so. The request's context has
    little of it; the variable `request` of the calling connector has everything."""
    return caller.f_locals.get("request") if caller is not None else None


def may_have_media(request: object) -> bool:
    """Whether the request may have images, audio or video."""
    return bool(getattr(request, "mm_features", True))
