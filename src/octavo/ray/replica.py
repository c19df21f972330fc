"""`EngineReplica`: the deployment of an engine. It answers what the ingress hands on, like `octavo serve`."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import ray
from ray import serve
from starlette.types import Message

from octavo.cli import build_engine, quiet_transformers, require_engine
from octavo.engine import Engine, check_before_loading
from octavo.errors import EngineDiedError
from octavo.http import quotas_of, tenants_of
from octavo.ray.arguments import Arguments
from octavo.ray.handed import AnswerPart, HandedRequest, Head
from octavo.server import Service, make_app

_logger = logging.getLogger(__name__)
_EVERYWHERE = ("*", "0.0.0.0", "[::]")  # noqa: S104 - compared, not bound


class EngineReplica:
    """One engine, and OpenAI's API over it."""

    def __init__(self, arguments: Arguments) -> None:
        require_engine()
        quiet_transformers()
        context = serve.get_replica_context()
        self._stack = ExitStack()
        settings = self._stack.enter_context(arguments.open(rank=context.rank.rank))
        server = settings.server
        tenants = tenants_of(server.tenants, server)
        check_before_loading(settings.engine, settings.offload)
        served = build_engine(
            settings.engine, settings.offload, quotas=quotas_of(tenants), model_name=server.model_name
        )
        self._engine = served.engine
        self._service = Service(served.engine, server, read_offload=served.read_offload, has_tenants=bool(tenants))
        self._app = make_app(self._service, is_crowded=lambda: False, tenants=tenants)
        self._name = context.replica_id.unique_id
        self._told = _told_by(served.engine.engine)

    async def record_routing_stats(self) -> dict[str, Any]:
        """Ray asks for it on behalf of the request router, and hands on what has changed: speeds have two digits, so
        that they change seldom."""
        await self._service.look()
        speeds = self._service.load.load_speeds.items()
        rounded = {medium: [float(f"{seconds:.1e}") for seconds in speed] for medium, speed in speeds}
        return {"octavo": self._told | {"load_speeds": rounded}}

    def check_health(self) -> None:
        """Ray asks for it, and restarts a replica that is not well."""
        if (error := self._engine.error) is not None:
            raise EngineDiedError(error)

    async def answer(self, request: HandedRequest, **_: Any) -> AsyncIterator[AnswerPart]:
        """The answer's head, then its body as it comes. The other arguments are the request router's."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=1)
        answering = asyncio.create_task(self._run_app(request, messages))
        try:
            while (message := await messages.get()) is not None:
                if message["type"] == "http.response.start":
                    yield Head(status=message["status"], headers=list(message["headers"]), replica=self._name)
                elif body := message.get("body"):
                    yield body
        finally:  # Ray closes the iterator when the client has gone
            answering.cancel()

    async def __del__(self) -> None:
        """Ray calls it when the replica has answered all its requests."""
        if hasattr(self, "_engine"):
            await self._engine.close(timeout_s=0)
        self._stack.close()

    async def _run_app(self, request: HandedRequest, messages: "asyncio.Queue[Message | None]") -> None:
        bodies = [request.body]

        async def receive() -> Message:
            if not bodies:
                await asyncio.Event().wait()  # a client that leaves cancels this
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        try:
            await self._app(request.scope, receive, messages.put)
        except Exception:
            _logger.exception("a request failed")
        await messages.put(None)


def _told_by(engine: Engine) -> dict[str, Any]:
    """What the request router must know to read the engine's events."""
    endpoints = [_reachable(endpoint) for endpoint in engine.event_endpoints]
    if not endpoints:
        return {}
    hasher = engine.manager.hasher
    return {
        "kv_events_endpoints": {"0": endpoints[0]},
        "replay_endpoint": endpoints[1] if len(endpoints) > 1 else None,
        "hash_algorithm": hasher.algorithm,
        "hash_seed": hasher.seed,
        "stores": dict(engine.stores),
    }


def _reachable(endpoint: str) -> str:
    """The endpoint for other machines, if the engine listens on all addresses."""
    for everywhere in _EVERYWHERE:
        endpoint = endpoint.replace(f"//{everywhere}:", f"//{ray.util.get_node_ip_address()}:")
    return endpoint
