"""`Service`: what all routes of one server share."""

import asyncio

import msgspec

from octavo.engine import AsyncEngine, EngineSnapshot
from octavo.errors import EngineError
from octavo.server.admission import Admission
from octavo.server.answers import AnswerWriter
from octavo.server.chat import ChatWriter
from octavo.server.completions import CompletionWriter
from octavo.server.config import ServerConfig
from octavo.server.errors import not_found
from octavo.server.generation import Generation
from octavo.server.live_requests import LiveRequests
from octavo.server.logprobs import TokenNamer, token_namer
from octavo.server.metrics import ServerMetrics
from octavo.server.offload_view import OffloadReport, ReadOffload
from octavo.server.prompts import PromptReader
from octavo.server.requests import ChatRequest, CompletionRequest, decode

_COMPLETION = msgspec.json.Decoder(CompletionRequest)
_CHAT = msgspec.json.Decoder(ChatRequest)


class Service:
    """An engine, and everything that stands between it and its clients."""

    def __init__(self, engine: AsyncEngine, config: ServerConfig, *, read_offload: ReadOffload | None = None) -> None:
        limits = engine.engine.scheduler.limits
        self.engine = engine
        self.config = config
        self.metrics = ServerMetrics()
        self.live = LiveRequests(self.metrics.latencies)
        self.admission = Admission(
            most_requests=limits.max_waiting + limits.max_num_seqs, most_bytes=config.max_buffered_bytes
        )
        self.read_offload = read_offload
        self._tokenizer = engine.engine.tokenizer
        self._reader = PromptReader(
            self._tokenizer, max_model_len=engine.engine.max_model_len, most_prompts=limits.max_waiting
        )

    async def read_completion(self, body: bytearray) -> tuple[CompletionRequest, AnswerWriter]:
        """A completion's body, checked, and who answers it."""
        request = decode(body, _COMPLETION)
        self._check(request)
        prompts = await asyncio.to_thread(self._reader.completion, request)
        writer = CompletionWriter(
            request,
            prompts,
            model=self.config.model_name,
            tokenizer=self._tokenizer,
            name_token=self._token_namer(request),
        )
        return request, writer

    async def read_chat(self, body: bytearray) -> tuple[ChatRequest, AnswerWriter]:
        """A conversation's body, checked, and who answers it."""
        request = decode(body, _CHAT)
        self._check(request)
        prompt = await asyncio.to_thread(self._reader.chat, request)
        name = self._token_namer(request)
        return request, ChatWriter(request, [prompt], model=self.config.model_name, name_token=name)

    def generation(self, writer: AnswerWriter, cache_salt: str | None) -> Generation:
        """What the engine makes of a request."""
        return Generation(
            self.engine,
            self.live,
            request_id=writer.request_id,
            prompts=writer.prompts,
            params=writer.params,
            cache_salt=cache_salt,
        )

    async def look(self) -> tuple[EngineSnapshot, OffloadReport | None] | None:
        """The engine between two steps; None if there is none any more."""
        read = self.read_offload
        try:
            return await self.engine.call(lambda engine: (engine.snapshot(), None if read is None else read()))
        except EngineError:
            return None

    def check_model(self, name: str | None) -> None:
        """One model is served. A request that names none means it."""
        if name is not None and name != self.config.model_name:
            raise not_found(
                f"there is no model {name!r} here, only {self.config.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def _check(self, request: CompletionRequest | ChatRequest) -> None:
        self.check_model(request.model)
        request.check()

    def _token_namer(self, request: CompletionRequest | ChatRequest) -> TokenNamer:
        return token_namer(self._tokenizer, as_ids=bool(request.return_tokens_as_token_ids))
