"""`app`: what `serve run octavo.ray:app` runs."""

from collections.abc import Mapping

from msgspec.structs import fields
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from octavo.engine import EngineConfig
from octavo.ray.arguments import Arguments
from octavo.ray.ingress import MOST_OPEN, Ingress
from octavo.ray.replica import EngineReplica

_ROUTER = "octavo.ray.OctavoRouter"
_STATS_PERIOD_S = 1.0
"""The seconds in which the request router learns where a new replica's events are."""


def app(told: dict[str, str]) -> Application:
    """Engines of one model, and OpenAI's API before them. InputError names what is wrong with the arguments."""
    arguments = Arguments.of(told)
    with arguments.open():  # errors are raised here, and not in the log of a replica
        pass
    engines = serve.deployment(
        EngineReplica,
        name="Engine",
        num_replicas=arguments.ray.replicas,
        max_ongoing_requests=_most_requests(arguments.values),
        ray_actor_options={"num_cpus": arguments.ray.cpus, "num_gpus": arguments.num_gpus},
        request_router_config=RequestRouterConfig(
            request_router_class=_ROUTER,
            request_router_kwargs={"keys": arguments.events_keys},
            request_routing_stats_period_s=_STATS_PERIOD_S,
        ),
    )
    ingress = serve.deployment(
        Ingress, name="Ingress", max_ongoing_requests=2 * MOST_OPEN, ray_actor_options={"num_cpus": 0}
    )
    return ingress.bind(engines.bind(arguments), arguments)


def _most_requests(values: Mapping[str, object]) -> int:
    """The most requests that Ray hands to an engine; the engine refuses more itself."""
    bounds = ("max_num_seqs", "max_waiting")
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    return sum(int(str(values.get(f"engine.{name}", defaults[name]))) for name in bounds)
