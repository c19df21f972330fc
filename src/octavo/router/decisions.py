"""`Decisions`: where recent requests went and why, and how many requests there were."""

import time
from dataclasses import dataclass

from octavo.router.placement import EngineChoice, Prompt

_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Where one request went, told to people who ask why."""

    at: float
    path: str
    num_tokens: int
    choice: EngineChoice
    resumes: dict[str, int]
    """The tokens that each engine could have resumed; of the chosen one, those that it is expected to resume."""


class Decisions:
    """The decisions of one router or endpoint picker."""

    def __init__(self) -> None:
        self.last: list[Decision] = []
        """The newest at the end."""
        self.num_requests = 0
        self.num_retries = 0
        self.num_prompt_tokens = 0
        self.num_expected_tokens = 0

    def add(self, path: str, prompt: Prompt, choice: EngineChoice) -> None:
        """A request goes to an engine."""
        resumes = dict(prompt.resumes)
        if choice.engine in resumes:  # it may compute what it would load too slowly
            resumes[choice.engine] = choice.resumed_tokens
        decision = Decision(at=time.time(), path=path, num_tokens=prompt.num_tokens, choice=choice, resumes=resumes)
        self.num_prompt_tokens += prompt.num_tokens
        self.num_expected_tokens += choice.resumed_tokens
        self.last.append(decision)
        del self.last[:-_KEPT]
