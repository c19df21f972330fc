"""`RecorderOfRequests`: vLLM's requests in the file that `octavo serve --record` makes too, without text."""

import time
from pathlib import Path
from types import FrameType

from vllm.v1.engine import FinishReason
from vllm.v1.kv_offload.base import ReqContext
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.request import Request

from octavo.recording import RequestRecorder
from octavo.vllm_plugin.adapter.request import request_of

_DEVICE = "device"
_ENDED_WELL = (FinishReason.STOP, FinishReason.LENGTH)


class RecorderOfRequests:
    """Records the requests that ended well, or whose clients left after the first token. vLLM's scheduler waits for no
    disk: a thread writes."""

    def __init__(self, path: Path, *, block_tokens: int, most_bytes: int) -> None:
        """`block_tokens`: the tokens of vLLM's block hashes. InputError if no file can be made."""
        self._recorder = RequestRecorder(path, block_tokens=block_tokens, most_bytes=most_bytes)
        self._started_at = time.time()

    def begin(self, context: ReqContext, caller: FrameType | None) -> None:
        """A new request. vLLM drops its count of resumed tokens at the first token, so the recorder keeps it here."""
        request = request_of(caller)
        if isinstance(request, Request):
            context.set_state(_Recorded(request))

    def end(self, context: ReqContext, loaded_from: str) -> None:
        """The request has ended. Tokens that were not on vLLM's device came from the medium `loaded_from`."""
        recorded: _Recorded | None = context.get_state(_Recorded)
        if recorded is None or not recorded.is_computed:
            return
        request = recorded.request
        self._recorder.note(
            max(0.0, request.arrival_time - self._started_at),
            request.block_hashes,
            recorded.resumed(loaded_from),
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
        )

    def close(self) -> None:
        self._recorder.close()


class _Recorded:
    """A request that the recorder will tell of."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._prefill: PrefillStats | None = request.prefill_stats

    @property
    def is_computed(self) -> bool:
        reason = self.request.get_finished_reason()
        has_left = reason is FinishReason.ABORT and self.request.num_output_tokens > 0
        return reason in _ENDED_WELL or has_left

    def resumed(self, loaded_from: str) -> dict[str, int]:
        if self._prefill is None:
            return {}
        by_medium = {
            _DEVICE: self._prefill.num_local_cached_tokens,
            loaded_from: self._prefill.num_external_cached_tokens,
        }
        return {medium: tokens for medium, tokens in by_medium.items() if tokens}
