"""A real router and real engines that tell it what they hold, each in a thread of this process."""

import threading

import httpx

from octavo.events import PublisherConfig
from octavo.http import open_socket, url_of
from octavo.router import RouterConfig, RouterServer, look_up
from rigs.running_server import MODEL, RunningServer


def resumed_tokens(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


class RouterAt:
    """What tests ask of a router."""

    def __init__(self, url):
        self.url = url

    def client(self, **options):
        return httpx.Client(base_url=self.url, timeout=300, **options)

    def ask(self, prompt):
        """The engine that answered, and how many tokens of the prompt it resumed."""
        with self.client() as client:
            answer = client.post("/v1/completions", json={"model": MODEL, "prompt": prompt, "max_tokens": 1})
        return answer.headers["x-octavo-engine"], resumed_tokens(answer)

    def look(self):
        with self.client() as client:
            return client.get("/fleet").json()

    def wait_until(self, holds):
        """Until something holds of the fleet. Each question gives it a turn."""
        with self.client() as client:
            while not holds(seen := client.get("/fleet").json()):
                pass
        return seen

    def wait_until_known(self, count):
        """Until so many engines can be reached, and all their blocks are known."""

        def knows(seen):
            return sum(engine["is_reachable"] and engine["knows_all_blocks"] for engine in seen["engines"]) == count

        return self.wait_until(knows)

    def wait_until_told(self, engines):
        """Until it has taken in all that the engines have published."""
        told = {engine.name: engine.num_published() for engine in engines}
        self.wait_until(lambda seen: all(e["event_batches"] >= told.get(e["name"], 0) for e in seen["engines"]))


class RunningRouter(RouterAt):
    """A router on a free port, in a thread."""

    def __init__(self, engines, *, look_up=look_up, **config):
        config = RouterConfig(port=0, engines=tuple(engines), shutdown_timeout_s=0, **config)
        listener = open_socket(config)
        super().__init__(url_of(listener))
        self.server = RouterServer(config, look_up=look_up)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def close(self):
        self.server.should_exit = True
        self._thread.join()


class RoutedEngine(RunningServer):
    """An engine that publishes its events, by default on free ports."""

    def __init__(self, model, *, events="tcp://127.0.0.1:0", replay="tcp://127.0.0.1:0", **options):
        endpoints = PublisherConfig(endpoint=events, replay_endpoint=replay)
        super().__init__(model, kv_events=endpoints, **options)

    @property
    def name(self):
        return self.url.removeprefix("http://")

    def num_published(self):
        return self.ask(lambda engine: engine._event_feed._publisher.stats().next_sequence)
