"""`LiveRequests`: the requests that have not ended, and how they end before their last token."""

from collections.abc import Iterable

from octavo.engine.outputs import FinishReason, RequestOutput
from octavo.engine.request import Choice, Request
from octavo.engine.scheduler import Scheduler
from octavo.engine.statistics import EngineCounters
from octavo.recording import RequestRecorder
from octavo.why import WhyLog


class LiveRequests:
    """The requests by id. A choice that ends here is freed, counted and recorded."""

    def __init__(
        self, scheduler: Scheduler, counters: EngineCounters, *, why: WhyLog | None, recorder: RequestRecorder | None
    ) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self._why = why
        self._recorder = recorder
        self._requests: dict[str, Request] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    @property
    def ids(self) -> list[str]:
        return list(self._requests)

    def find(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)

    def add(self, request: Request) -> None:
        self._requests[request.request_id] = request

    def end(self, request: Request, reason: FinishReason, error: str | None = None) -> list[RequestOutput]:
        """Ends all choices of a request that have not ended, wherever they are."""
        outputs: list[RequestOutput] = []
        for choice in request.choices:
            if choice.finish_reason is None:
                self._scheduler.abort(choice)
                outputs.append(choice.end(reason, error))
                self._counters.count_finished(reason)
                if reason is FinishReason.ABORT and choice.num_output_tokens:
                    self._record(choice)  # it has taken as much as one that ended by itself
        outputs += request.end_unforked(reason, error)
        self._requests.pop(request.request_id, None)
        return outputs

    def fail(self, requests: Iterable[Request], error: Exception) -> list[RequestOutput]:
        """Ends all requests of a step that failed."""
        self._counters.failed_steps += 1
        message = f"computing a step failed: {type(error).__name__}: {error}"
        unique = dict.fromkeys(requests)
        return [output for request in unique for output in self.end(request, FinishReason.ERROR, message)]

    def note_end(self, choice: Choice) -> None:
        """Notes that a choice ended by itself."""
        assert choice.finish_reason is not None
        request, blocks = choice.request, choice.blocks
        self._counters.count_finished(choice.finish_reason)
        if request.is_finished:
            del self._requests[request.request_id]
        if self._why is not None:
            self._why.ended(request.request_id, blocks)
        self._record(choice)

    def _record(self, choice: Choice) -> None:
        if self._recorder is not None:
            self._recorder.note(
                choice.request.arrival_s,
                choice.blocks.hashed,
                choice.request.cached_tokens,
                num_prompt_tokens=choice.blocks.num_prompt_tokens,
                num_output_tokens=choice.num_output_tokens,
            )
