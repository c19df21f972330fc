"""`Service`: what all routes of one server share."""

import asyncio
from functools import partial

import msgspec

from octavo.chunks import name_tenant
from octavo.engine import AsyncEngine
from octavo.errors import EngineError
from octavo.http import Admission, LoadBook, PatientCalls, bad_request, not_found
from octavo.server.answers import AnswerWriter
from octavo.server.chat import ChatWriter
from octavo.server.completions import CompletionWriter
from octavo.server.config import ServerConfig
from octavo.server.history import History
from octavo.server.ignored_fields import IgnoredFields
from octavo.server.logprobs import TokenNamer, token_namer
from octavo.server.metrics import ServerMetrics
from octavo.server.offload_view import ReadOffload, Seen
from octavo.server.open_requests import OpenRequests
from octavo.server.prompts import PreparedPrompt, PromptReader, has_effort
from octavo.server.requests import ChatRequest, CompletionRequest, decode
from octavo.server.responses import TurnWriter
from octavo.server.responses_request import TurnRequest, in_own_names
from octavo.server.structure import StructureReader
from octavo.settings import shown
from octavo.why import MOST_RECORDS, WhyReport, explain_request

_COMPLETION = msgspec.json.Decoder(CompletionRequest)
_CHAT = msgspec.json.Decoder(ChatRequest)
_TURN = msgspec.json.Decoder(TurnRequest)
_PATIENCE_S = 30.0
"""How long a chat template may write; thousands of messages take a second."""
_CHATS_AT_ONCE = 8
"""Conversations that are turned into tokens at once."""


class Service:
    """An engine, and everything that stands between it and its clients."""

    def __init__(
        self,
        engine: AsyncEngine,
        config: ServerConfig,
        *,
        read_offload: ReadOffload | None = None,
        has_tenants: bool = False,
    ) -> None:
        limits = engine.engine.scheduler.limits
        self.engine = engine
        self.config = config
        self.metrics = ServerMetrics(config.model_name)
        self.history = History(self.metrics)
        self.live = OpenRequests(self.metrics.latencies)
        self.load = LoadBook(max_model_len=engine.engine.max_model_len)
        self.admission = Admission(
            most_requests=limits.max_waiting + limits.max_num_seqs,
            most_bytes=config.max_buffered_bytes,
            is_shared=has_tenants,
        )
        self.ignored_fields = IgnoredFields()
        self.read_offload = read_offload
        self._tokenizer = engine.engine.tokenizer
        self._reader = PromptReader(
            self._tokenizer,
            max_model_len=engine.engine.max_model_len,
            most_prompts=min(limits.max_waiting, self.admission.most_prompts),
        )
        self._namers = {as_ids: token_namer(self._tokenizer, as_ids=as_ids) for as_ids in (False, True)}
        self._chats = PatientCalls(name="chat template", at_once=_CHATS_AT_ONCE)
        self._structures = StructureReader(self._tokenizer, engine.engine.grammars)

    async def read_completion(self, body: bytearray) -> tuple[CompletionRequest, AnswerWriter]:
        """A completion's body, checked, and the writer of its answer."""
        request = decode(body, _COMPLETION)
        self._check(request)
        prompts = await asyncio.to_thread(self._reader.completion, request)
        writer = CompletionWriter(
            request,
            prompts,
            await self._structures.read(request),
            model=self.config.model_name,
            tokenizer=self._tokenizer,
            name_token=self._token_namer(request),
        )
        return request, writer

    async def read_chat(self, body: bytearray) -> tuple[ChatRequest, AnswerWriter]:
        """A conversation's body, checked, and the writer of its answer."""
        request = decode(body, _CHAT)
        self._check(request)
        prompt = await self._chat_prompt(request)
        name, structure = self._token_namer(request), await self._structures.read(request)
        return request, ChatWriter(request, [prompt], structure, model=self.config.model_name, name_token=name)

    async def read_turn(self, body: bytearray) -> tuple[TurnRequest, AnswerWriter]:
        """A body of `/v1/responses`, checked, and the writer of its answer."""
        request = decode(body, _TURN)
        chat = request.as_chat()
        with in_own_names():
            self._check(chat)
            prompt = await self._chat_prompt(chat)
            structure = await self._structures.read(chat)
        return request, TurnWriter(request, chat, [prompt], structure, model=self.config.model_name)

    def find_ignored(self, body: bytearray, request: CompletionRequest | ChatRequest | TurnRequest) -> list[str]:
        """The body's fields that have no effect; those that this model's template has no place for first."""
        found = self.ignored_fields.find(body, request)
        if isinstance(request, ChatRequest) and request.reasoning_effort and not has_effort(self._tokenizer):
            return ["reasoning_effort", *found]
        return found

    async def _chat_prompt(self, request: ChatRequest) -> PreparedPrompt:
        """The conversation as the chat template writes it. That is a program of the model's authors, which may loop."""
        try:
            return await self._chats.run(partial(self._reader.chat, request), patience_s=_PATIENCE_S)
        except TimeoutError:
            raise bad_request(
                f"the chat template takes more than {_PATIENCE_S:g} s to write the messages; send fewer",
                param="messages",
            ) from None

    async def detokenize(self, token_ids: list[int]) -> str:
        """The text of tokens, special ones too."""
        tokenizer, most = self._tokenizer, self.engine.engine.vocab_size
        if tokenizer is None:
            raise bad_request("the model's folder has no tokenizer", param="tokens", code="no_tokenizer")
        if len(token_ids) > (longest := self.engine.engine.max_model_len):
            raise bad_request(
                f"{len(token_ids):,} tokens are more than the longest context of {longest:,} tokens",
                param="tokens",
                code="context_length_exceeded",
            )
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < most:
                raise bad_request(
                    f"token ids must be whole numbers from 0 to {most - 1:,}, not {shown(token_id)}",
                    param=f"tokens[{index}]",
                )
        return await asyncio.to_thread(lambda: str(tokenizer.decode(token_ids, skip_special_tokens=False)))

    async def look(self) -> Seen | None:
        """The engine between two steps; None if there is none any more."""
        read = self.read_offload
        try:
            seen = await self.engine.call(lambda engine: (engine.snapshot(), None if read is None else read()))
        except EngineError:
            return None
        if seen[1] is not None:
            self.load.load_speeds = seen[1].stats.load_speeds
        return seen

    async def why(self, request_id: str, tenant: str | None) -> WhyReport:
        """Why a request resumed where it did. A tenant hears of its own requests only."""
        log = self.engine.engine.why
        if log is None:
            raise not_found("nothing is cached here (--no-prefix-caching), so nothing could be resumed")
        records = await self.engine.call(lambda _: log.records())
        whose = None if tenant is None else name_tenant(tenant)
        report = await asyncio.to_thread(
            explain_request, log.config, records, request_id, cold_starts=log.cold_starts, tenant=whose
        )
        if report is None:
            raise not_found(
                f"no request {shown(request_id)} has started of late: the last {MOST_RECORDS:,} are remembered",
                param="request_id",
            )
        return report

    def check_model(self, name: str | None) -> None:
        """Refuses other models than the served one. A request that names none means it."""
        if name is not None and name != self.config.model_name:
            raise not_found(
                f"there is no model {shown(name)} here, only {self.config.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def _check(self, request: CompletionRequest | ChatRequest) -> None:
        self.check_model(request.model)
        request.check()

    def _token_namer(self, request: CompletionRequest | ChatRequest) -> TokenNamer:
        return self._namers[bool(request.return_tokens_as_token_ids)]
