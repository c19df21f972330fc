"""`Fleet`: the engines that a router sends requests to. One task for each asks after its health and reads its events.

    facts     GET /engine, when the router starts and whenever the engine comes back, or its events begin anew; of vLLM,
              GET /v1/models; and every 10 s, as adapters may come and go
    health    GET /health at an interval; a request that cannot be delivered counts too
    events    from its own socket into the index that it shares with all engines of the same plan and hashes
    load      GET /load, a line whenever it changes: what other routers have sent there

An engine that restarts is empty until it says otherwise: its facts name another life. While one cannot be reached, its
blocks stay known, since requests do not go there, and since its events tell later what went meanwhile, or that this is
not known. While an engine owes three heartbeats, its blocks do not count.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from http import HTTPStatus
from random import Random
from secrets import token_hex

import httpx
from msgspec.structs import replace

from octavo.errors import MALFORMED, InputError
from octavo.hashing import RequestIdentity
from octavo.http import PREFILL, ROUTER, ApiError, EngineFacts, not_found, overloaded
from octavo.router.address import EngineAddress
from octavo.router.engine_client import ask_whole
from octavo.router.facts import read_facts, read_models
from octavo.router.following import Reading, pause_s
from octavo.router.indexes import Indexes, ReadPrompt
from octavo.router.listener import listen
from octavo.router.load_of_others import follow_load
from octavo.router.member import Member
from octavo.router.names import LOOK_UP_INTERVAL_S, LookUp, Names, look_up
from octavo.router.placement import EngineChoice, Placement, Prompt
from octavo.router.reasons import find_lack, reason_of, was_refused
from octavo.router.rendered import RENDER_CHAT
from octavo.settings import shown
from octavo.units import counted

_logger = logging.getLogger(__name__)

NAMES_INTERVAL_S = 10.0
_HEALTH_TIMEOUT_S = 5.0
_ANSWERED_LATELY_S = 10.0
_MOST_BYTES_OF_FACTS = 16 << 20
_TELL_LACK_EVERY_S = 60.0
_LONGEST_LOADING_S = 3600.0
"""An engine that has told nothing for so long is not loading a model."""
_MOST_NAMED = 20
"""Models that a refusal names. `/v1/models` has all."""
_SOON = {"retry-after": "1"}


class Fleet:
    """All engines, whether they answer or not. Used from one event loop."""

    def __init__(
        self,
        addresses: Iterable[EngineAddress],
        client: httpx.AsyncClient,
        *,
        engine_api_key: str | None = None,
        most_per_engine: int | None = None,
        look_up: LookUp = look_up,
    ) -> None:
        """`look_up` finds engines that are given by a name. InputError if keys of their events are missing."""
        self.client = client
        self._headers = {} if engine_api_key is None else {"authorization": f"Bearer {engine_api_key}"}
        self.members: dict[str, Member] = {}
        self._random = Random()  # noqa: S311 - no secret
        self.placement = Placement(self._random, most_per_engine=most_per_engine)
        self._indexes = Indexes()
        self._router = token_hex(8)
        """The name by which engines know this router's requests."""
        self._followers: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Engine -> task, while the fleet runs."""
        self._given: list[EngineAddress] = []
        self._lack_told_at = -math.inf
        self.names = Names(look_up, time.monotonic)
        self.set_engines(addresses)
        if not self._given:
            raise InputError("a router needs an engine: give its URL with --engine, or a file with --engines-file")
        for address in self._given:
            address.check_keys()

    @property
    def ready(self) -> list[str]:
        """The engines that take requests."""
        return [member.name for member in self.members.values() if member.takes_requests]

    def ready_for(self, model: str) -> list[str]:
        """The engines that take requests for a model or an adapter. A name that no engine has told is any engine's: it
        explains best that there is no such model."""
        serving = [member for member in self.members.values() if member.serves(model)]
        return [member.name for member in serving if member.takes_requests] if serving else self.ready

    def has_told(self, model: str) -> bool:
        """Whether an engine has told that it serves a model or an adapter of this name."""
        return any(member.serves(model) for member in self.members.values())

    def unknown_model(self, model: str) -> ApiError:
        """Why a request is refused whose model an engine does not know, and none has told. An engine that has not
        told its models yet, as it is still loading them, may have it."""
        told = sorted({name for member in self.members.values() if member.facts for name in member.facts.names})
        more = f" and {len(told) - _MOST_NAMED:,} more" if len(told) > _MOST_NAMED else ""
        known = ", ".join(told[:_MOST_NAMED]) + more or "none yet"
        which = f"there is no model {shown(model)} here, only {known}"
        young = time.monotonic() - _LONGEST_LOADING_S
        num_silent = sum(member.facts is None and member.added_at > young for member in self.members.values())
        if not num_silent:
            return not_found(which, param="model", code="model_not_found")
        silent = f"yet to tell theirs: {num_silent:,} of {counted(len(self.members), 'engine')}"
        return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{which}; {silent}", headers=_SOON)

    def refusal(self, model: str) -> ApiError:
        """Why a request is refused that no engine may take."""
        if self.ready_for(model):
            return overloaded("every engine has as many requests open as it may have; try again later")
        return self.absence(model)

    def absence(self, model: str = "") -> ApiError:
        """Why no engine takes a request for this model, or none at all."""
        serving = [member for member in self.members.values() if member.serves(model)] if self.ready else []
        which = f"engine that has {model!r}" if serving else "engine"
        is_reachable = any(member.is_reachable for member in serving or self.members.values())
        lack = "takes new requests: what can be reached is drained" if is_reachable else "can be reached"
        return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"no {which} {lack}", headers=_SOON)

    @property
    def num_blocks(self) -> int:
        """The number of known blocks. A block that several engines hold counts once."""
        return self._indexes.num_blocks

    async def run(self) -> None:
        """Follows all engines until it is cancelled."""
        async with asyncio.TaskGroup() as self._followers:
            for member in self.members.values():
                self._begin_to_follow(member)
            while True:
                await self.names.ask()
                self._take_engines()
                await asyncio.sleep(LOOK_UP_INTERVAL_S)

    def set_engines(self, addresses: Iterable[EngineAddress]) -> None:
        """Makes the fleet consist of these engines, and of those behind these names. Engines that were there before
        keep what is known of them. Requests that were sent to an engine that leaves may end."""
        given = list(addresses)
        self.names.follow([address for address in given if address.is_name])
        self._given = given
        self._take_engines()

    def _take_engines(self) -> None:
        wanted = {address.name: (address, is_listed) for address, is_listed in self.names.engines()}
        wanted |= {address.name: (address, True) for address in self._given if not address.is_name}
        for name, member in list(self.members.items()):
            if name not in wanted or wanted[name][0] != member.address:
                self._leave(member)
        for name, (address, is_listed) in wanted.items():
            if name not in self.members:
                member = self.members[name] = Member(address=address)
                self.placement.add(name)
                self._begin_to_follow(member)
            self.members[name].is_listed = is_listed

    def _begin_to_follow(self, member: Member) -> None:
        if self._followers is not None:
            self._tasks[member.name] = self._followers.create_task(self._follow(member))

    def _leave(self, member: Member) -> None:
        if task := self._tasks.pop(member.name, None):
            task.cancel()
        member.has_left = True
        self._indexes.forget(member)
        self.placement.remove(member.name)
        del self.members[member.name]

    def read(self, tokens: Sequence[int], identity: RequestIdentity) -> ReadPrompt:
        """How much of a prompt each engine could resume."""
        return self._indexes.read(tokens, identity)

    @property
    def knows_tenants(self) -> bool:
        """Whether engines salt what they keep with the name of a tenant. vLLM hashes the body's salt, and no name."""
        return not all(member.learns_plan for member in self.members.values())

    @property
    def longest_context(self) -> float:
        """The most tokens that an engine takes, as far as all have told theirs."""
        told = [member.facts.max_model_len for member in self.members.values() if member.facts is not None]
        return max(told) if told and all(told) else math.inf

    def find_adapter(self, model: str) -> str | None:
        """Where the LoRA adapter lies that a request names as its model; None if no engine has such an adapter."""
        told = (member.facts.adapters for member in self.members.values() if member.facts is not None)
        return next((adapters[model] for adapters in told if model in adapters), None)

    def expecting(self, name: str, read: ReadPrompt) -> AbstractContextManager[None]:
        """Inside the block, the engine counts as having a prompt that was sent to it."""
        return self._indexes.expecting(self.members[name], read)

    def marks(self, prompt: Prompt, choice: EngineChoice) -> dict[str, str]:
        """The headers of a request by which its engine tells other routers of it."""
        if not prompt.num_tokens:  # the engine counts them
            return {ROUTER: self._router}
        return {ROUTER: self._router, PREFILL: str(prompt.num_tokens - choice.resumed_tokens)}

    @asynccontextmanager
    async def while_alive(self, member: Member) -> AsyncIterator[None]:
        """For a request to an engine: raises httpx.ReadError if the engine stops working meanwhile."""
        try:
            async with asyncio.timeout(None) as request:
                member.requests.add(request)
                yield
        except TimeoutError:
            raise httpx.ReadError(member.problem) from None
        finally:
            member.requests.discard(request)

    def missed(self, member: Member, problem: str) -> None:
        """A request could not be delivered, so the engine gets no more until it answers for its health. The end of an
        engine breaks many requests: the first of them tells it."""
        if member.is_reachable:
            member.lose(problem)

    def broke(self, member: Member, error: Exception) -> None:
        """A request broke off. That may be the request's own doing, so that one client could take all engines from the
        others: an engine that has answered lately is only asked for its health, as ever."""
        has_answered = time.monotonic() < member.answered_at + _ANSWERED_LATELY_S
        if not has_answered or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            self.missed(member, reason_of(error))

    def lacks_connection(self, member: Member, error: Exception) -> bool:
        """Whether it is the router that could open no connection to an engine, which is as well as before then."""
        lack = find_lack(error)
        if not (lack and member.is_reachable):
            return False
        now = time.monotonic()
        if now >= self._lack_told_at + _TELL_LACK_EVERY_S:
            self._lack_told_at = now
            _logger.warning("%s", lack)
        return True

    def drain(self, name: str, *, is_draining: bool) -> None:
        """The engine gets no new requests, or gets them again."""
        self.members[name].drain(is_draining=is_draining)

    async def _follow(self, member: Member) -> None:
        """What nobody foresaw of one engine ends what is known of it, and no other engine's following."""
        told = ""
        while True:
            try:
                await self._look_after(member)
            except Exception as error:
                if repr(error) != told:
                    told = repr(error)
                    _logger.exception("engine %s: following it has failed", member.name)
                self._indexes.forget(member)
                member.facts = None
                member.lose(f"following it has failed: {error!r}")
            await asyncio.sleep(pause_s(len(self.members), self._random))

    async def _look_after(self, member: Member) -> None:
        """While an engine cannot be reached, its blocks stay known: its events will say if they are gone."""
        clock = asyncio.get_running_loop().time
        async with Reading() as reading:
            names_are_from = clock()
            while True:
                reading.check()
                if member.is_reachable and not member.has_begun_anew:
                    await self._ask_health(member)
                    if member.is_reachable and clock() >= names_are_from + NAMES_INTERVAL_S:
                        await self._ask_names(member)
                        names_are_from = clock()
                elif (facts := await self._ask_facts(member)) is not None and await self._is_back(member):
                    if not member.is_reachable or facts != member.facts:
                        _logger.info("engine %s serves %s", member.name, facts.model)
                    if facts != member.facts:
                        member.blind = ""
                        await reading.stop()
                        self._indexes.forget(member)
                        member.facts = facts
                        reading.start(self._hear(member, facts))
                    member.lost = ""
                await asyncio.sleep(pause_s(len(self.members), self._random))

    async def _hear(self, member: Member, facts: EngineFacts) -> None:
        """Takes what the engine tells by itself."""
        hear = partial(self.placement.hear, member.name)
        async with asyncio.TaskGroup() as both:
            both.create_task(listen(member, facts, self._indexes))
            if not member.learns_plan:
                both.create_task(follow_load(self.client, member.address.url, self._router, self._headers, hear))

    async def _ask_facts(self, member: Member) -> EngineFacts | None:
        member.has_begun_anew = False
        try:
            facts, member.learns_plan = await self._get_facts(member)
        except (httpx.HTTPError, *MALFORMED) as error:
            if self.lacks_connection(member, error):
                member.has_begun_anew = True
            else:
                member.lose(f"GET /engine: {reason_of(error)}")
                self._end_requests(member, error)
            return None
        member.renders = member.learns_plan and await self._renders(member)
        return facts

    async def _get_facts(self, member: Member) -> tuple[EngineFacts, bool]:
        """And whether the plan must be learned: of vLLM, or another server of OpenAI's API."""
        answer = await self._get(member, "/engine")
        if answer.status_code != HTTPStatus.NOT_FOUND:
            return read_facts(answer), False
        return read_models(await self._get(member, "/v1/models"), member.address), True

    async def _ask_names(self, member: Member) -> None:
        """An adapter may have been loaded meanwhile, or another engine may have its address. An engine that does not
        answer this is what its health says."""
        try:
            facts, _ = await self._get_facts(member)
        except (httpx.HTTPError, *MALFORMED) as error:
            _logger.debug("the names of %s are not known: %s", member.name, error)
            return
        if member.facts is None or replace(member.facts, adapters=facts.adapters) != facts:
            member.has_begun_anew = True
        elif facts != member.facts:
            _logger.info("engine %s has the adapters %s", member.name, ", ".join(facts.adapters))
            member.facts = facts

    async def _renders(self, member: Member) -> bool:
        """Whether it explains what is wrong with an empty request: 403 says that it might, and was told not to. A
        server that hangs up on a path that it does not know is no worse than one that says 404."""
        try:
            return (await self._ask(member, "POST", RENDER_CHAT, json={})).status_code == HTTPStatus.BAD_REQUEST
        except httpx.HTTPError:
            return False

    async def _get(self, member: Member, path: str) -> httpx.Response:
        return await self._ask(member, "GET", path)

    async def _ask(self, member: Member, method: str, path: str, json: object = None) -> httpx.Response:
        """Also raises httpx.ReadTimeout if the whole answer does not come in time."""
        url, options = f"{member.address.url}{path}", {"json": json, "headers": self._headers, "timeout": None}
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                return await ask_whole(self.client, method, url, most_bytes=_MOST_BYTES_OF_FACTS, **options)
        except TimeoutError:
            raise httpx.ReadTimeout(f"no answer in {_HEALTH_TIMEOUT_S:.0f} s") from None

    async def _is_back(self, member: Member) -> bool:
        """Whether it can be reached. A server whose engine has ended may still tell its facts."""
        if not member.is_reachable and (error := await self._find_illness(member)):
            member.lose(f"GET /health: {reason_of(error)}")
            return False
        return True

    async def _ask_health(self, member: Member) -> None:
        if (error := await self._find_illness(member)) and not self.lacks_connection(member, error):
            self.missed(member, f"GET /health: {reason_of(error)}")
            self._end_requests(member, error)

    async def _find_illness(self, member: Member) -> httpx.HTTPError | None:
        """Why it does not answer for its health; None if it does. A server of OpenAI's API need not have the path."""
        try:
            answer = await self._get(member, "/health")
            if answer.status_code == HTTPStatus.NOT_FOUND and member.learns_plan:
                answer = await self._get(member, "/v1/models")
            answer.raise_for_status()
        except httpx.HTTPError as error:
            return error
        return None

    def _end_requests(self, member: Member, error: Exception) -> None:
        """Requests that wait for an engine that does not work are ended. One that was asked to end takes no more
        connections, and answers what it has; when it has ended, so have its connections."""
        if was_refused(error):
            return
        now = asyncio.get_running_loop().time()
        for request in member.requests:
            if not request.expired():  # one that has, and takes its time to end, can be ended no more
                request.reschedule(now)
