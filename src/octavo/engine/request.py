"""A request as the engine sees it: what the client asked for, and a `Choice` for each of the `n` outputs.

A request begins with one choice. When its prompt is computed, the others are forked from it. From then on each choice
is scheduled, preempted and ended separately.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from octavo.blocks import RequestBlocks
from octavo.engine.detokenizer import Detokenizer, TokenDecoder
from octavo.engine.outputs import FinishReason, RequestOutput, TokenLogprobs
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.sampling_state import SamplingState

_CONTEXT_TOKENS = 8
"""Of a prompt that a text goes on from: some of them may have no text."""


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """What all choices of a request share."""

    request_id: str
    params: SamplingParams
    arrival: int
    """The number of the request: later ones have larger numbers."""
    tenant: str | None = None
    """Who shares seats with other tenants."""
    num_prompt_tokens: int
    eos_token_ids: frozenset[int]
    max_output_tokens: int
    """The most output tokens that `max_tokens` and the longest context allow."""
    decoder: TokenDecoder | None
    text_before: Sequence[int] = ()
    """What the texts go on from."""
    arrival_s: float = 0.0
    """Seconds from the engine's start to the request's arrival."""
    choices: list["Choice"] = field(default_factory=list)
    cached_tokens: Mapping[str, int] = field(default_factory=dict)
    has_started: bool = False
    start: float = inf
    """The number of its start, once it has started: later ones have larger numbers."""
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=lambda: [None])
    """Those of the prompt by position, as far as they are computed."""

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of the prompt are still to be computed. Until then nothing may be resumed."""
        return self.params.prompt_logprobs is not None and len(self.prompt_logprobs) < self.num_prompt_tokens

    @property
    def stop_ids(self) -> frozenset[int]:
        """All tokens that end a choice. Under a grammar the model's own are none: they may be a part of the text, and
        the grammar says where they end it."""
        own = frozenset(self.params.stop_token_ids)
        return own if self.params.ignore_eos or self.params.grammar is not None else own | self.eos_token_ids

    @property
    def is_finished(self) -> bool:
        return len(self.choices) == self.params.n and all(choice.finish_reason is not None for choice in self.choices)

    def end_unforked(self, reason: FinishReason, error: str | None) -> list[RequestOutput]:
        """The only outputs of the choices that were never forked."""
        return [
            RequestOutput(
                request_id=self.request_id,
                index=index,
                finish_reason=reason,
                error=error,
                num_prompt_tokens=self.num_prompt_tokens,
                num_output_tokens=0,
            )
            for index in range(len(self.choices), self.params.n)
        ]


@dataclass(slots=True, kw_only=True, eq=False)
class Leader:
    """Another choice that is computing a shared prefix. This one can resume from it once `until` is committed."""

    choice: "Choice"
    until: int


class Choice:
    """One output of a request while it is generated: the unit that is scheduled."""

    __slots__ = (
        "_detokenizer",
        "_has_told_prompt",
        "_stop_ids",
        "blocks",
        "finish_reason",
        "has_followed",
        "index",
        "leader",
        "most_computed",
        "num_output_tokens",
        "num_seats",
        "request",
        "sampling",
        "short_since",
        "stop_reason",
    )

    def __init__(self, request: Request, index: int, blocks: RequestBlocks, sampling: SamplingState) -> None:
        self.request = request
        self.index = index
        self.blocks = blocks
        self.sampling = sampling
        self.num_output_tokens = 0
        self.num_seats = 1
        """The choices that this one stands for: itself, and those still to be forked from it."""
        self.leader: Leader | None = None
        self.has_followed = False
        """Whether it has waited for a leader before; it waits for one only once."""
        self.most_computed = 0
        """The most tokens that it ever had computed; a preemption does not lower it."""
        self.short_since: float | None = None
        """When it began to wait for pages that transfers hold."""
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self._stop_ids = request.stop_ids
        self._has_told_prompt = False
        self._detokenizer = _detokenizer_of(request)

    @property
    def age(self) -> tuple[float, int, int]:
        """A smaller age is older. Older choices go first, and younger ones give up their pages for them. Those that
        have started are older than those that have not."""
        return self.request.start, self.request.arrival, self.index

    @classmethod
    def first_of(cls, request: Request, blocks: RequestBlocks) -> "Choice":
        """A request's first choice, which computes the prompt."""
        choice = cls(request, 0, blocks, SamplingState(request.params, sorted(request.stop_ids)))
        choice.num_seats = request.params.n
        request.choices.append(choice)
        return choice

    def fork(self, index: int, blocks: RequestBlocks) -> "Choice":
        """One more choice for the same prompt, before any token is sampled."""
        twin = Choice(self.request, index, blocks, self.sampling.fork(self.request.params.for_choice(index)))
        self.request.choices.append(twin)
        return twin

    def take(self, token_id: int, logprobs: TokenLogprobs | None) -> RequestOutput:
        """Takes a sampled token, and returns the new output. Sets `finish_reason` if the choice ends with it."""
        self.num_output_tokens += 1
        text = self._judge(token_id)
        return self._output((token_id,), text, None if logprobs is None else (logprobs,))

    def find_dead_end(self) -> str | None:
        """Asks the grammar which tokens may come next. Returns the reason if there are none."""
        grammar = self.sampling.grammar
        if grammar is None or grammar.compute_allowed():
            return None
        return f"the grammar cannot be followed: {grammar.why_broken or 'nothing may come next'}"

    def end(self, reason: FinishReason, error: str | None = None) -> RequestOutput:
        """The last output of a choice that ends for another reason than its tokens."""
        self.finish_reason = reason
        return self._output((), "" if self._detokenizer is None else self._detokenizer.flush(), None, error)

    def _judge(self, token_id: int) -> str:
        """Decides whether the choice ends with this token; returns the text that the token adds."""
        text = self._text_of(token_id)
        if self._detokenizer is not None and self._detokenizer.stop_string is not None:
            self.finish_reason, self.stop_reason = FinishReason.STOP, self._detokenizer.stop_string
        return text

    def _text_of(self, token_id: int) -> str:
        """The text that the token adds. Sets `finish_reason` if the token ends the choice, whatever the text says."""
        params, detokenizer = self.request.params, self._detokenizer
        may_stop = self.num_output_tokens >= params.min_tokens
        if may_stop and token_id in self._stop_ids:
            self.finish_reason = FinishReason.STOP
            self.stop_reason = token_id if token_id in params.stop_token_ids else None
            return "" if detokenizer is None else detokenizer.flush()
        grammar = self.sampling.grammar
        if grammar is not None and grammar.is_complete:
            self.finish_reason = FinishReason.STOP
            return self._last_text(token_id, is_end=grammar.took_end)
        if self.num_output_tokens >= self.request.max_output_tokens:
            self.finish_reason = FinishReason.LENGTH
            return self._last_text(token_id, is_end=False)
        return "" if detokenizer is None else detokenizer.push(token_id)

    def _last_text(self, token_id: int, *, is_end: bool) -> str:
        if self._detokenizer is None:
            return ""
        return ("" if is_end else self._detokenizer.push(token_id)) + self._detokenizer.flush()

    def _output(
        self,
        token_ids: tuple[int, ...],
        text: str,
        logprobs: tuple[TokenLogprobs, ...] | None,
        error: str | None = None,
    ) -> RequestOutput:
        request = self.request
        prompt_logprobs = None
        if not self._has_told_prompt:
            self._has_told_prompt = True
            if request.params.prompt_logprobs is not None:
                prompt_logprobs = tuple(request.prompt_logprobs)
        return RequestOutput(
            request_id=request.request_id,
            index=self.index,
            token_ids=token_ids,
            text=text,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            error=error,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=self.num_output_tokens,
            cached_tokens=request.cached_tokens,
            prompt_logprobs=prompt_logprobs,
        )


def find_text_before(prompt_token_ids: Sequence[int], params: SamplingParams) -> list[int]:
    """The tokens that a text goes on from."""
    if params.grammar is not None:
        return list(params.grammar.before)
    return [int(token) for token in prompt_token_ids[-_CONTEXT_TOKENS:]] if params.continues_prompt else []


def _detokenizer_of(request: Request) -> Detokenizer | None:
    if request.decoder is None:
        return None
    params = request.params
    return Detokenizer(
        request.decoder,
        before=request.text_before,
        stop=params.stop,
        min_tokens=params.min_tokens,
        skip_special_tokens=params.skip_special_tokens,
    )
