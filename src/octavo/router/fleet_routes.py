"""`FleetRoutes`: what a router or an endpoint picker tells over HTTP of its fleet, and how an engine is drained."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.http import CONTENT_TYPE, Access, ApiError, as_json, read_page
from octavo.router.decisions import Decisions
from octavo.router.fleet import Fleet
from octavo.router.metrics import RouterMetrics
from octavo.router.state import engine_state, state_of


class FleetRoutes:
    """Health, the page, `/fleet` and `/metrics`."""

    def __init__(self, fleet: Fleet, decisions: Decisions, metrics: RouterMetrics) -> None:
        self._fleet = fleet
        self._decisions = decisions
        self._metrics = metrics
        self._page = read_page(__package__)

    def by_access(self) -> dict[Access, list[Route]]:
        """The routes, for a `Gate`."""
        return {
            Access.OPEN: [
                Route("/health", self._health, methods=["GET"]),
                Route("/", self._show, methods=["GET"]),
            ],
            Access.READS_ALL: [
                Route("/metrics", self._tell_metrics, methods=["GET"]),
                Route("/fleet", self._look, methods=["GET"]),
            ],
            Access.CHANGES_ALL: [Route("/fleet/{name:path}/drain", self._drain, methods=["POST", "DELETE"])],
        }

    async def _health(self, request: Request) -> Response:
        """Whether a request would find an engine."""
        if not self._fleet.ready:
            raise self._fleet.absence()
        return as_json({"status": "ok"})

    async def _look(self, request: Request) -> Response:
        """The fleet and the last decisions."""
        return as_json(state_of(self._fleet, self._decisions))

    async def _show(self, request: Request) -> Response:
        """The page; it asks for `/fleet`."""
        return self._page

    async def _tell_metrics(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        return Response(self._metrics.render(state_of(self._fleet, self._decisions)), media_type=CONTENT_TYPE)

    async def _drain(self, request: Request) -> Response:
        """POST: no new requests for an engine. DELETE: it takes requests again."""
        name = request.path_params["name"]
        if name not in self._fleet.members:
            known = ", ".join(self._fleet.members)
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no engine {name!r} here, only {known}")
        self._fleet.drain(name, is_draining=request.method == "POST")
        return as_json(engine_state(self._fleet.members[name], self._fleet.placement))
