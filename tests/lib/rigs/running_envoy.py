"""A real Envoy on a free port, with an endpoint picker in a thread of this process behind it."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import yaml

from octavo.gateway import PickerConfig, PickerServer
from rigs.processes import bound

TYPE = "type.googleapis.com/envoy.extensions"
_SERVED = "x-gateway-destination-endpoint-served"


class RunningPicker:
    """A picker on a free port."""

    def __init__(self, engines, **config):
        self._config = PickerConfig(port=0, engines=tuple(engines), shutdown_timeout_s=0, **config)
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        self._thread.start()
        self._is_open.wait()

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self.server = PickerServer(self._config)
        await self.server.serve(self._open)

    def _open(self, address):
        self.address = address
        self._is_open.set()

    def ask(self, function):
        """What a function says of the server, in the server's thread."""

        async def call():
            return function(self.server)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def wait_until(self, holds):
        """Each question gives it a turn."""
        while not self.ask(holds):
            pass

    def wait_until_known(self, count):
        """Until so many engines can be reached, and all their blocks are known."""

        def knows(server):
            members = server.fleet.members.values()
            return sum(m.takes_requests and m.index is not None and m.index.is_complete(m.name) for m in members)

        self.wait_until(lambda server: knows(server) == count)

    def wait_until_told(self, engines):
        """Until it has taken in all that the engines have published."""
        told = {engine.name: engine.num_published() for engine in engines}
        self.wait_until(lambda s: all(s.fleet.members[name].num_batches >= count for name, count in told.items()))

    def close(self):
        self._loop.call_soon_threadsafe(self.server.end)
        self._thread.join()


class RunningEnvoy:
    """Envoy in front of engines, as a Gateway of an InferencePool configures it."""

    def __init__(self, picker, engines, folder):
        config = folder / "envoy.yaml"
        config.write_text(yaml.safe_dump(_config(picker.address, [engine.url for engine in engines])))
        command = [Path(sys.executable).with_name("envoy"), "--config-path", config, "--concurrency", "1"]
        command += [
            "--disable-hot-restart",
            "--admin-address-path",
            folder / "admin",
            "--log-level",
            "error",
            "--drain-time-s",
            "0",
        ]
        self._process = subprocess.Popen(bound(command), stderr=subprocess.DEVNULL)
        self.url = self._find_port(folder / "admin")

    def _find_port(self, file):
        """Envoy writes where its admin is, and that says where it listens."""
        while not (file.exists() and file.read_text()):
            assert self._process.poll() is None
        url = f"http://{file.read_text()}/listeners?format=json"
        while not (found := httpx.get(url, timeout=300).json()):
            pass
        address = found["listener_statuses"][0]["local_address"]["socket_address"]
        return f"http://127.0.0.1:{address['port_value']}"

    def client(self, **options):
        return httpx.Client(base_url=self.url, timeout=300, **options)

    def close(self):
        self._process.kill()
        self._process.wait()


def _config(picker, engines):
    return {
        "admin": {"address": _address("127.0.0.1:0")},
        "static_resources": {"listeners": [_listener()], "clusters": [_engines(engines), _picker(picker)]},
    }


def _address(text):
    host, _, port = text.removeprefix("http://").rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _endpoints(name, addresses):
    endpoints = [{"endpoint": {"address": _address(address)}} for address in addresses]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def _engines(urls):
    key = {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}
    override = {
        "@type": f"{TYPE}.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{"metadata": key}],
        "fallback_policy": {"policies": [_named("round_robin", "load_balancing_policies.round_robin.v3.RoundRobin")]},
    }
    policy = {"typed_extension_config": {"name": "override_host", "typed_config": override}}
    return {
        "name": "engines",
        "type": "STATIC",
        "load_assignment": _endpoints("engines", urls),
        "load_balancing_policy": {"policies": [policy]},
    }


def _named(name, kind):
    return {"typed_extension_config": {"name": name, "typed_config": {"@type": f"{TYPE}.{kind}"}}}


def _picker(address):
    http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = {"@type": f"type.googleapis.com/{http}", "explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": "picker",
        "type": "STATIC",
        "typed_extension_protocol_options": {http: options},
        "load_assignment": _endpoints("picker", [address]),
    }


def _listener():
    retries = {"retry_on": "connect-failure,reset-before-request", "num_retries": 2}
    who_answers = {"header": {"key": _SERVED, "value": "%UPSTREAM_REMOTE_ADDRESS%"}}
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": "engines", "timeout": "0s", "retry_policy": retries},
        "response_headers_to_add": [who_answers],
    }
    duplex = "FULL_DUPLEX_STREAMED"
    picking = {
        "@type": f"{TYPE}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": duplex,
            "request_trailer_mode": "SEND",
            "response_header_mode": "SEND",
            "response_body_mode": duplex,
            "response_trailer_mode": "SEND",
        },
        "metadata_options": {
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
        },
    }
    filters = [
        {"name": "subset", "typed_config": _subset_filter()},
        {"name": "picking", "typed_config": picking},
        {"name": "served", "typed_config": _served_filter()},
        {"name": "router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}},
    ]
    manager = {
        "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    }
    return {
        "address": _address("127.0.0.1:0"),
        "filter_chains": [{"filters": [{"name": "m", "typed_config": manager}]}],
    }


def _subset_filter():
    """A header stands in for a Gateway's own choice of endpoints."""
    key = {"metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset"}
    rule = {"header": "x-test-subset", "on_header_present": {**key, "type": "STRING"}}
    return {"@type": f"{TYPE}.filters.http.header_to_metadata.v3.Config", "request_rules": [rule]}


def _served_filter():
    """Tells the picker who answers, as a Gateway must."""
    rule = {"header": _SERVED, "remove": True}
    rule["on_header_present"] = {"metadata_namespace": "envoy.lb", "key": _SERVED, "type": "STRING"}
    return {"@type": f"{TYPE}.filters.http.header_to_metadata.v3.Config", "response_rules": [rule]}
