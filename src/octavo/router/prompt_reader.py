"""`PromptReader`: from the body of a request to how much of its prompt each engine could resume."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import msgspec

from octavo.errors import MALFORMED, InputError
from octavo.hashing import RequestIdentity
from octavo.router.engine_client import ask_whole
from octavo.router.fleet import Fleet
from octavo.router.indexes import ReadPrompt
from octavo.router.member import Member
from octavo.router.placement import Prompt
from octavo.router.rendered import Rendered, read_rendered, render_path, to_render

_logger = logging.getLogger(__name__)

_PATIENCE_S = 5.0
_PATIENCE_S_PER_BYTE = 1e-6
"""A request waits so long for its tokens: they only help to choose."""
_MOST_BYTES_OF_TOKENS = 64 << 20
_MOST_ASKED = 3
"""Engines that are asked for the tokens of one prompt. The next one is asked if the last one has ended, or hangs."""
_ASKED = frozenset(
    {"model", "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"}
    | {"add_special_tokens", "reasoning_effort", "prompt", "input", "instructions", "reasoning"}
)
"""The fields that decide a prompt's tokens."""


SESSION = "x-session-id"
"""The header that names a request's session; `prompt_cache_key` of the body does it too."""
_LONGEST_SESSION = 256


class PromptReader:
    """Reads prompts as the engines of a fleet do."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def read(self, body: bytes, headers: Mapping[str, str], tenant: str | None = None) -> ReadPrompt:
        """The prompt in the body of a request of generation. The engine is asked with these headers, and an engine
        that knows tenants salts what it keeps for one with the tenant's name.

        A request that cannot be read is read as a prompt of no tokens: the engine explains the mistake better."""
        session = short_text(headers.get(SESSION))
        try:
            request = msgspec.json.decode(body, type=dict[str, Any])
            session = session or short_text(request.get("prompt_cache_key"))
            rendered = await self._render(request, headers, _PATIENCE_S + len(body) * _PATIENCE_S_PER_BYTE)
            self._check_length(rendered)
            identity = replace(self._identity(request, tenant), multimodal=rendered.items)
            read = self._fleet.read(rendered.tokens, identity)
        except (*MALFORMED, InputError, httpx.HTTPError, NoTokensError) as error:
            _logger.debug("the tokens of a prompt are not known: %s", error)
            read = UNREAD
        return read._replace(prompt=replace(read.prompt, session=session))

    def _check_length(self, rendered: Rendered) -> None:
        """To hash a prompt that every engine refuses would hold up others for nothing."""
        if len(rendered.tokens) > self._fleet.longest_context:
            raise NoTokensError("it is longer than any engine takes")

    def _identity(self, request: dict[str, Any], tenant: str | None) -> RequestIdentity:
        """The parts of a request's identity besides its tokens, as engines hash them."""
        salt, name = (self._fleet.knows_tenants and tenant) or request.get("cache_salt"), request.get("model")
        salt = salt if isinstance(salt, str) and salt else None
        path = self._fleet.find_adapter(name) if isinstance(name, str) else None
        if path is None:
            return RequestIdentity(cache_salt=salt)
        return RequestIdentity(lora_name=name, lora_path=path, cache_salt=salt)

    async def _render(self, request: dict[str, Any], headers: Mapping[str, str], patience_s: float) -> Rendered:
        if (tokens := _given_tokens(request)) is not None:
            return Rendered(tokens)
        model, asked = request.get("model"), set[str]()
        while len(asked) < _MOST_ASKED:
            ready = self._fleet.ready_for(model if isinstance(model, str) else "")
            now = time.monotonic()
            able = [n for n in ready if n not in asked and self._fleet.members[n].telling.may_be_asked(now)]
            if not able:
                break
            member = self._fleet.members[min(able, key=lambda name: self._fleet.placement.loads[name].num_requests)]
            asked.add(member.name)
            with suppress(httpx.NetworkError, httpx.RemoteProtocolError):
                async with self._fleet.while_alive(member):
                    return await self._render_in_time(member, request, headers, patience_s)
        raise NoTokensError("no engine that has the model can be reached, and tells them in time")

    async def _render_in_time(
        self, member: Member, request: dict[str, Any], headers: Mapping[str, str], patience_s: float
    ) -> Rendered:
        """No other engine is asked for those that come too late: the prompt may be at fault."""
        telling, asked_at = member.telling, time.monotonic()
        telling.ask(asked_at)
        try:
            async with asyncio.timeout(patience_s):
                return await self._render_at(member, request, headers)
        except TimeoutError:
            was_in_time = telling.is_in_time
            telling.was_late(asked_at, time.monotonic())
            late = f"engine {member.name} has not told the tokens of a prompt within {patience_s:.0f} s"
            if was_in_time and not telling.is_in_time:
                _logger.warning("%s: requests do not wait for it until it tells them again", late)
            raise NoTokensError(late) from None

    async def _render_at(self, member: Member, request: dict[str, Any], headers: Mapping[str, str]) -> Rendered:
        if member.renders:
            return read_rendered(await self._ask(member, render_path(request), to_render(request), headers))
        return Rendered(await read_tokens(request, partial(self._ask, member, "/tokenize", headers=headers)))

    async def _ask(self, member: Member, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        answer = await ask_whole(
            self._fleet.client,
            "POST",
            member.address.url + path,
            most_bytes=_MOST_BYTES_OF_TOKENS,
            headers=as_sent({**headers, "content-type": "application/json"}),
            content=body,
        )
        member.telling.told(time.monotonic())
        answer.raise_for_status()
        return answer.content


def as_sent(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers of a client's request for an engine, byte for byte: they need not be ASCII."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


async def read_tokens(request: dict[str, Any], tokenize: Callable[[bytes], Awaitable[bytes]]) -> list[int]:
    """The tokens of a request's prompt: those that the request names, or the answer of an engine's `/tokenize`."""
    if (given := _given_tokens(request)) is not None:
        return given
    answer = await tokenize(msgspec.json.encode({name: request[name] for name in _ASKED if name in request}))
    return msgspec.json.decode(answer, type=_Tokenized).tokens


def _given_tokens(request: dict[str, Any]) -> list[int] | None:
    prompt = request.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    return None


class _HintedBody(msgspec.Struct):
    """Of a request of generation: what a client may write as it likes."""

    model: Any = None
    priority: Any = None
    stream: Any = None


class Hints(msgspec.Struct):
    """What the body of a request says of where it should go."""

    model: str = ""
    """The name of a model or an adapter; empty if there is none."""
    priority: int = 0
    """In vLLM's sense: smaller is earlier."""
    is_stream: bool = False
    """Whether the answer tells when its first token comes."""


def hints_in(body: bytes) -> Hints:
    """The hints in the body of a request of generation. An invalid body is left to an engine to refuse, and so is an
    invalid value."""
    try:
        said = msgspec.json.decode(body, type=_HintedBody)
    except MALFORMED:
        return Hints()
    model = said.model if isinstance(said.model, str) else ""
    priority = said.priority if type(said.priority) is int else 0
    return Hints(model=model, priority=priority, is_stream=said.stream is True)


UNREAD = ReadPrompt(Prompt(num_tokens=0, resumes={}), {})
"""A prompt of which nothing is known."""


def short_text(value: object) -> str | None:
    """A name that a client gave; None for an invalid one."""
    return value[:_LONGEST_SESSION] if isinstance(value, str) and value else None


class _Tokenized(msgspec.Struct):
    tokens: list[int]


class NoTokensError(Exception):
    """The tokens of a prompt cannot be found out."""
