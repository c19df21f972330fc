"""`OpenRequests`: the requests that are open, and how long their tokens take. The page and the metrics read it."""

from collections.abc import Iterator, Mapping

from octavo.engine import RequestOutput
from octavo.server.metrics import Latencies


class OpenRequest:
    """One prompt that is being served."""

    __slots__ = ("_latencies", "_seen", "_told_at", "began", "cached_tokens", "num_prompt_tokens", "request_id")

    def __init__(self, request_id: str, num_prompt_tokens: int, began: float, latencies: Latencies) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.began = began
        self.cached_tokens: Mapping[str, int] = {}
        self._latencies = latencies
        self._seen: dict[int, int] = {}
        """Tokens of each choice."""
        self._told_at: dict[int, float] = {}

    @property
    def num_output_tokens(self) -> int:
        """The tokens of all choices."""
        return sum(self._seen.values())

    @property
    def has_started(self) -> bool:
        """Whether a token came."""
        return bool(self._told_at)

    def note(self, output: RequestOutput) -> None:
        """News of a choice came."""
        self.cached_tokens = output.cached_tokens
        self._seen[output.index] = output.num_output_tokens
        if not output.token_ids:
            return
        now = self._latencies.clock()
        if not self._told_at:
            self._latencies.first_token.observe(now - self.began)
        elif output.index in self._told_at:
            self._latencies.note_tokens(len(output.token_ids), now - self._told_at[output.index])
        self._told_at[output.index] = now


class OpenRequests:
    """All open requests, oldest first."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._open: dict[OpenRequest, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenRequest]:
        return iter(self._open)

    def begin(self, request_id: str, num_prompt_tokens: int) -> OpenRequest:
        """A prompt is about to be submitted."""
        request = OpenRequest(request_id, num_prompt_tokens, self._latencies.clock(), self._latencies)
        self._open[request] = None
        return request

    def end(self, request: OpenRequest) -> None:
        """Nobody waits for it any more."""
        self._open.pop(request, None)
        if request.has_started:
            self._latencies.whole_request.observe(self._latencies.clock() - request.began)
