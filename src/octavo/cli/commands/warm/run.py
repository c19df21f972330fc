"""`Warmer`: sends the prompts of a file, some at once, and counts the results.

Each asks for one token: the server then has the whole prompt, and stores the promised chunks in its tiers.
"""

import asyncio
import time
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import msgspec
from msgspec import Meta

from octavo.cli.client import read_body_async, text_of_error
from octavo.cli.output import print_error, printable, write_output
from octavo.errors import MALFORMED, InputError, why_not_read
from octavo.units import counted

_MOST_BYTES = 1 << 30
_MOST_TRIES = 30
"""The most tries of one prompt while the server says that it is busy."""
_PAUSE_S = 1.0
_TOLD_EVERY_S = 5.0
_CHAT, _COMPLETION = "/v1/chat/completions", "/v1/completions"
_OF_ANSWERS = ("max_tokens", "min_tokens", "stream_options", "n", "best_of")
"""Fields about answers, which are left out."""
_BUSY = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)


class _Details(msgspec.Struct):
    cached_tokens: Annotated[int, Meta(ge=0)] | None = 0


class _Usage(msgspec.Struct):
    prompt_tokens: Annotated[int, Meta(ge=0)]
    prompt_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    usage: _Usage


class PromptLine(NamedTuple):
    """One line of the file, a request."""

    where: str
    """The file and the line."""
    route: str
    body: dict[str, Any]


def read_prompts(file: Path) -> list[PromptLine]:
    """All prompts of the file; empty lines are skipped. InputError names the first line that is no prompt."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{file}: has more than {_MOST_BYTES:,} bytes: split it")
    lines = enumerate(data.removeprefix(BOM_UTF8).splitlines(), 1)
    prompts = [_parse(f"{file}:{number}", line) for number, line in lines if line.strip()]
    if not prompts:
        raise InputError(f'{file}: has no prompt: write one per line, such as {{"prompt": "You are ..."}}')
    return prompts


def _parse(where: str, line: bytes) -> PromptLine:
    try:
        asked = msgspec.json.decode(line)
    except MALFORMED as error:
        raise InputError(f"{where}: this {why_not_read(error, line)}") from None
    if isinstance(asked, str):
        asked = {"prompt": asked}
    if not isinstance(asked, dict) or ("prompt" in asked) == ("messages" in asked):
        raise InputError(f'{where}: write a text, {{"prompt": ...}} or {{"messages": [...]}}')
    is_chat = "messages" in asked
    once = {"max_completion_tokens" if is_chat else "max_tokens": 1, "stream": False}
    others = {name: value for name, value in asked.items() if name not in _OF_ANSWERS}
    return PromptLine(where, _CHAT if is_chat else _COMPLETION, {**others, **once})


class Warmer:
    """Sends prompts, each once, and again while the server is busy."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        model: str,
        prompts: Sequence[PromptLine],
    ) -> None:
        self.num_failed = 0
        self.num_warm = 0
        self.num_tokens = 0
        self.num_resumed = 0
        self._client = client
        self._model = model
        self._left = iter(prompts)
        self._num_prompts = len(prompts)
        self._began = self._told_at = time.monotonic()

    async def run(self, parallel: int) -> None:
        """Sends all prompts. A refused one is reported with its line, and does not stop the others."""
        await asyncio.gather(*(self._work() for _ in range(min(parallel, self._num_prompts))))

    def summary(self) -> str:
        return (
            f"{self.num_warm:,} of {self._num_prompts:,} prompts are warm: {counted(self.num_tokens, 'token')}, "
            f"{self.num_resumed:,} of them resumed, in {time.monotonic() - self._began:.1f} s"
        )

    async def _work(self) -> None:
        for prompt in self._left:  # all workers take from it
            await self._warm(prompt)
            if time.monotonic() >= self._told_at + _TOLD_EVERY_S:
                self._told_at = time.monotonic()
                write_output(self.summary() + "\n")

    async def _warm(self, prompt: PromptLine) -> None:
        try:
            body = await self._send(prompt)
        except httpx.HTTPError as error:
            self._fail(prompt, f"the server does not answer: {text_of_error(error)}")
            return
        except InputError as error:
            self._fail(prompt, str(error))
            return
        try:
            usage = msgspec.json.decode(body, type=_Answer).usage
        except MALFORMED:
            self._fail(prompt, "the answer does not say how many tokens the prompt has")
            return
        self.num_warm += 1
        self.num_tokens += usage.prompt_tokens
        self.num_resumed += 0 if usage.prompt_tokens_details is None else usage.prompt_tokens_details.cached_tokens or 0

    async def _send(self, prompt: PromptLine) -> bytes:
        """The body of the answer. Raises InputError if it is a refusal."""
        asked = {"model": self._model, **prompt.body}
        for left in reversed(range(_MOST_TRIES)):
            async with self._client.stream("POST", prompt.route, json=asked) as response:
                if response.status_code not in _BUSY or not left:
                    return await read_body_async(response)
            await asyncio.sleep(_PAUSE_S)
        raise AssertionError("the last try returns or raises")

    def _fail(self, prompt: PromptLine, message: str) -> None:
        self.num_failed += 1
        print_error(printable(f"{prompt.where}: {message}"))
