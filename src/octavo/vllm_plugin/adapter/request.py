"""What Octavo knows of one request of vLLM's. vLLM's own record of the request holds it, so both end together."""

import math
from collections.abc import Iterable, Sequence
from types import FrameType

from vllm.v1.kv_offload.base import Locality, Medium, OffloadKey, ReqContext

from octavo.chunks import (
    NO_TENANT,
    GroupOffloadConfig,
    OffloadKey as Key,
    WantedChunk,
    get_offload_group_idx,
    name_tenant,
)
from octavo.specs import PromisePlan
from octavo.vllm_plugin.promised import PromisedChunks
from octavo.why import Looks


class RequestState:
    """The chunks that a request asks for, and how long it waits for them."""

    def __init__(self, context: ReqContext) -> None:
        self.asked: dict[OffloadKey, None] = {}
        """In this step, in order."""
        self.from_tiers: set[OffloadKey] = set()
        """What was promoted for it."""
        self.deadline = math.inf
        """Of its wait for tiers; set when the wait begins, and in the past once the request has given up."""
        self._context = context
        self._key_at: dict[tuple[int, int], OffloadKey] = {}
        """By group and position, as far as they have been named."""
        allows = context.load_tier_filter.allows
        self.may_store = True
        self.may_load = allows(Medium.CPU, Locality.LOCAL)
        self.may_promote = self.may_load and allows(Medium.STORAGE, Locality.LOCAL)
        self.stays_in_memory = False
        self.looks = Looks()
        """For who asks why, if anybody may."""
        self.gave_up_waiting = False
        self.tenant = NO_TENANT
        self.num_prompt_tokens: int | None = None
        self.known_tokens = 0
        """So much of its prefix was found when vLLM looked."""
        self._plan: PromisePlan | None = None

    def stay_in_memory(self) -> None:
        """Nothing of the request is read from tiers or written to them."""
        self.may_promote, self.stays_in_memory = False, True

    def note_found(self, key: OffloadKey) -> None:
        """A chunk of a group that is needed from the first one on is there."""
        self.known_tokens = max(self.known_tokens, self._context.get_offload_key_position(key) or 0)

    def promised(self, keys: Iterable[OffloadKey], promised: PromisedChunks) -> list[OffloadKey]:
        """Those of the offered chunks that are worth storing; all, where the prompt's length is not known."""
        if self.num_prompt_tokens is None:
            return list(keys)
        if self._plan is None:
            self._plan = promised.plan(self.num_prompt_tokens, self.known_tokens)
        plan, end_of = self._plan, self._context.get_offload_key_position
        return [key for key in keys if promised.is_needed(plan, get_offload_group_idx(Key(key)), end_of(key) or 0)]

    def chunks(self, keys: Sequence[OffloadKey], groups: Sequence[GroupOffloadConfig]) -> list[WantedChunk]:
        """These keys with their positions, and the key of the chunk before each, if the request named that one."""
        places = []
        for key in keys:
            group_idx = get_offload_group_idx(Key(key))
            end = self._context.get_offload_key_position(key) or 0
            position = max(0, -(-end // groups[group_idx].tokens_per_chunk) - 1)
            places.append((group_idx, position))
            self._key_at[group_idx, position] = key
        return [
            WantedChunk(Key(key), position, _as_key(self._key_at.get((group_idx, position - 1))), tenant=self.tenant)
            for key, (group_idx, position) in zip(keys, places, strict=True)
        ]


def _as_key(key: OffloadKey | None) -> Key | None:
    return None if key is None else Key(key)


def state_of(context: ReqContext) -> RequestState:
    state: RequestState | None = context.get_state(RequestState)
    if state is None:
        state = RequestState(context)
        context.set_state(state)
    return state


def may_have_media(caller: FrameType | None) -> bool:
    """Whether the new request that vLLM's connector tells of may have images, audio or video.

    The request's context does not say so; the variable `request` of the connector that calls does.
    """
    return bool(getattr(request_of(caller), "mm_features", True))


def num_prompt_tokens_of(caller: FrameType | None) -> int | None:
    """How long the new request's prompt is; found in the same way."""
    num_tokens = getattr(request_of(caller), "num_prompt_tokens", None)
    return num_tokens if isinstance(num_tokens, int) else None


def tenant_of(caller: FrameType | None) -> bytes:
    """Whose the new request is; found in the same way."""
    return name_tenant(getattr(request_of(caller), "cache_salt", None))


def request_of(caller: FrameType | None) -> object:
    """The new request itself; None if vLLM no longer calls it so."""
    return caller.f_locals.get("request") if caller is not None else None
