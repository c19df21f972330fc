"""`SamplingParams`: how a request wants its tokens chosen, and where it ends. Checked when it is made."""

from dataclasses import dataclass, replace

from octavo.engine.grammars import Grammar
from octavo.errors import ParameterError

MAX_LOGPROBS = 128
"""The most alternatives that are listed for one token."""
MAX_STOP_STRINGS = 64
MAX_STOP_STRING_CHARS = 1024
MAX_CHOICES = 256
_NUM_SEEDS = 1 << 64
_MOST = 1_000_000
"""Of a temperature and a repetition penalty: beyond it nothing is left to choose by."""
_LEAST_PENALTY = 1 / _MOST
"""Below it, repeated tokens are all that is left, and logits divided by it overflow."""
_LEAST_TEMPERATURE = 1e-5
"""Below it, all tokens but the most likely vanish anyway, and logits divided by it overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """What a request asks of sampling. Names and meanings are those of OpenAI's API and of vLLM."""

    max_tokens: int | None = None
    """The most output tokens. None: up to the longest context. 0: the prompt is computed, and nothing more."""
    min_tokens: int = 0
    """Before this many output tokens, only `max_tokens` and the longest context end the request."""
    temperature: float = 1.0
    """0, or less than 1e-5: the most likely token, whatever the other parameters say."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: all tokens."""
    min_p: float = 0.0
    """Tokens whose probability is less than this share of the most likely one's are left out."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens in prompt and output; those below zero are multiplied."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    """The same prompt, parameters and seed give the same tokens, whatever else is in the batch."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these strings."""
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    """The number of outputs for the prompt, which is computed once."""
    logprobs: int | None = None
    """The number of alternatives that each output token's log-probability comes with; None for no log-probabilities."""
    prompt_logprobs: int | None = None
    """The same for each prompt token. The prompt is then computed in full, whatever is cached."""
    skip_special_tokens: bool = True
    continues_prompt: bool = False
    """Whether the text goes on from the prompt's, rather than being one of its own. Tokenizers of SentencePiece's kind
    write no space before a text's first word, and one before each later word."""
    grammar: Grammar | None = None
    """The form of the text, made by the engine's `grammars.compile`. The text ends where nothing may follow."""

    def __post_init__(self) -> None:
        self._check_whole_numbers()
        self._check_numbers()
        self._check_stops()
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParameterError(f"min_tokens = {self.min_tokens} is more than max_tokens = {self.max_tokens}")
        if self.min_tokens and self.grammar is not None:
            raise ParameterError("min_tokens does not go with a grammar, which says itself where the text may end")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < _LEAST_TEMPERATURE

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def for_choice(self, index: int) -> "SamplingParams":
        """The parameters of one of `n` choices. Each has its own seed, or all would be equal."""
        return self if self.seed is None or index == 0 else replace(self, seed=(self.seed + index) % _NUM_SEEDS)

    def _check_whole_numbers(self) -> None:
        bounds: dict[str, tuple[int, int | None]] = {
            "max_tokens": (0, None),
            "min_tokens": (0, None),
            "top_k": (-1, None),
            "n": (1, MAX_CHOICES),
            "logprobs": (0, MAX_LOGPROBS),
            "prompt_logprobs": (0, MAX_LOGPROBS),
            "seed": (-(1 << 63), (1 << 64) - 1),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if value is None and name in ("max_tokens", "logprobs", "prompt_logprobs", "seed"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < low or (high and value > high):
                wanted = f"of {low} or more" if high is None else f"from {low} to {high}"
                raise ParameterError(f"{name} must be a whole number {wanted}, not {value!r}")

    def _check_numbers(self) -> None:
        bounds: dict[str, tuple[float, float, str]] = {
            "temperature": (0, _MOST, f"from 0 to {_MOST:,}"),
            "top_p": (0, 1, "more than 0, and at most 1"),
            "min_p": (0, 1, "from 0 to 1"),
            "repetition_penalty": (_LEAST_PENALTY, _MOST, f"from {_LEAST_PENALTY:f} to {_MOST:,}"),
            "presence_penalty": (-2, 2, "from -2 to 2"),
            "frequency_penalty": (-2, 2, "from -2 to 2"),
        }
        for name, (low, high, rule) in bounds.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_in_bounds = is_number and low <= value <= high  # no NaN is
            if not is_in_bounds or (value == 0 and name == "top_p"):
                raise ParameterError(f"{name} must be {rule}, not {value!r}")

    def _check_stops(self) -> None:
        if not isinstance(self.stop, tuple) or not all(isinstance(text, str) and text for text in self.stop):
            raise ParameterError(f"stop must be a tuple of non-empty strings, not {self.stop!r}")
        if len(self.stop) > MAX_STOP_STRINGS or any(len(text) > MAX_STOP_STRING_CHARS for text in self.stop):
            raise ParameterError(
                f"stop may hold {MAX_STOP_STRINGS} strings of {MAX_STOP_STRING_CHARS} characters each, and no more"
            )
        ids = self.stop_token_ids
        if not isinstance(ids, tuple) or not all(isinstance(token, int) and token >= 0 for token in ids):
            raise ParameterError(f"stop_token_ids must be a tuple of token ids, not {ids!r}")
