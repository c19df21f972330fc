"""`Hinter`: carries out what vLLM's requests hint of their resume points.

begin    release
served   the prompt's end is retained
ended    the answer's end is retained, if its chunks were stored; or both ends are demoted
"""

import logging
from collections.abc import Sequence

from vllm.v1.kv_offload.base import ReqContext

from octavo.chunks import GroupOffloadConfig, Hint, HintKind, HintOutcome, get_offload_group_idx
from octavo.errors import InputError
from octavo.offload import OffloadingManager
from octavo.vllm_plugin.adapter.request import RequestState
from octavo.vllm_plugin.hints import read_hints
from octavo.vllm_plugin.promised import PromisedChunks

logger = logging.getLogger(__name__)


class Hinter:
    """The hints of all requests; each request's state has its own."""

    def __init__(
        self, manager: OffloadingManager, groups: Sequence[GroupOffloadConfig], promised: PromisedChunks
    ) -> None:
        self._retentions = manager.retentions
        self._groups = groups
        self._promised = promised

    def begin(self, context: ReqContext, state: RequestState) -> None:
        """A new request. Wrong hints are ignored: no request fails because of its hints."""
        try:
            state.hints = read_hints(context.kv_transfer_params, getattr(context, "kv_hints", None))
        except InputError as error:
            logger.warning("Octavo ignores the hints of a request: %s", error)
        if any(hint.kind is HintKind.RELEASE for hint in state.hints):
            self._retentions.release(set(state.hashes))

    def served(self, state: RequestState, now: float) -> None:
        """The request is loaded or computed."""
        for hint in state.hints:
            if hint.kind is HintKind.RETAIN:
                self._retain(state, self._promised.prompt_point(state.num_prompt_tokens or 0), hint, now)

    def ended(self, state: RequestState, now: float) -> None:
        """Nothing more of the request will be stored."""
        if not state.is_served:
            return
        prompt_end = self._promised.prompt_point(state.num_prompt_tokens or 0)
        end = max(state.points, default=0)
        for hint in state.hints:
            if hint.kind is HintKind.RETAIN and end > prompt_end:
                self._retain(state, end, hint, now)
            elif hint.kind is HintKind.DEMOTE:
                for block_hash in map(state.find_hash, sorted({prompt_end, end})):
                    if block_hash is not None:
                        self._retentions.demote(block_hash)

    def _retain(self, state: RequestState, num_tokens: int, hint: Hint, now: float) -> None:
        block_hash = state.find_hash(num_tokens)
        if block_hash is None:
            self._retentions.note(HintKind.RETAIN, HintOutcome.NO_POINT)
            return
        keys = state.keys_of_resume(self._promised, num_tokens)
        sizes = {key: self._groups[get_offload_group_idx(key)].chunk_bytes for key in keys}
        self._retentions.retain(block_hash, sizes, state.tenant, hint.lifetime_s, now)
