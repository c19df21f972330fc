"""`DistantEngine`: an engine that is reached over links, which can be cut. `Load`: clients of a fleet of them."""

import json
import random
import threading
from dataclasses import dataclass, field
from time import time

import httpx
import msgspec

from octavo.engine import published_plan
from octavo.events import KVEventBatch
from rigs.network_link import NetworkLink
from rigs.running_router import RoutedEngine
from rigs.running_server import MODEL

NUM_STEMS, STEM_TOKENS = 3, 140


class DistantEngine:
    """Its requests, its events and their replay each come over a link of their own."""

    def __init__(self, model, name, folder):
        self.name = name
        self._model = model
        self._endpoints = {which: f"ipc://{folder}/{name}_{which}" for which in ("events", "replay")}
        self.engine = RoutedEngine(model, **self._endpoints)
        self.http = NetworkLink(self.engine.url)
        self.events, self.replay = (NetworkLink(endpoint) for endpoint in self._endpoints.values())
        self.links = (self.http, self.events, self.replay)

    @property
    def address(self):
        """For a router."""
        events, replay = (f"tcp://127.0.0.1:{link.port}" for link in (self.events, self.replay))
        return f"http://127.0.0.1:{self.http.port},name={self.name},events={events},replay={replay}"

    @property
    def num_blocks(self):
        """That it holds, while it computes nothing."""
        return self.engine.ask(lambda engine: sum(pages.cached_pages for pages in engine.snapshot().classes))

    def num_published(self):
        return self.engine.num_published()

    def break_off(self):
        """As if its machine were gone."""
        for link in self.links:
            link.break_off()

    def start_again(self):
        """Another engine is there, and knows nothing of the old one. The links stay cut."""
        self.engine.close()
        self.engine = RoutedEngine(self._model, **self._endpoints)

    def heal_http(self):
        """Requests reach the engine that is there now."""
        self.http.heal(self.engine.url)

    def heal_events(self):
        """Its events are heard."""
        self.events.heal()
        self.replay.heal()

    def promise_heartbeats(self, every_s):
        """It counts as silent after three of these from now on; the engine's own come when they come."""

        def publish(engine):
            plan = msgspec.structs.replace(published_plan(engine.manager.config), heartbeat_s=every_s)
            engine._event_feed._publisher.publish(KVEventBatch(ts=time(), events=[], plan=plan))

        self.engine.ask(publish)

    def close(self):
        for link in self.links:
            link.close()
        self.engine.close()


@dataclass
class Asked:
    """What became of one request."""

    prompt: list
    engine: str = ""
    pieces: list = field(default_factory=list)
    problem: str = ""
    num_tries: int = 0

    @property
    def has_begun(self):
        return bool(self.pieces)

    @property
    def is_whole(self):
        return self.has_begun and self.pieces[-1] == "[DONE]" and "error" not in self.pieces[-2]

    @property
    def cached_tokens(self):
        return json.loads(self.pieces[-2])["usage"]["prompt_tokens_details"]["cached_tokens"]


class Load:
    """Clients ask one prompt after the other until it is stopped. A request that has not begun to be answered at one
    router is asked again at the next one. A context manager."""

    def __init__(self, *urls, num_clients=6, seed=0, max_tokens=16):
        rng = random.Random(seed)
        self._stems = [_tokens(rng, STEM_TOKENS) for _ in range(NUM_STEMS)]
        self._urls = urls
        self._max_tokens = max_tokens
        self._asked = []
        self._has_stopped = threading.Event()
        self._pieces, self._answers = threading.Semaphore(0), threading.Semaphore(0)
        self._clients = [threading.Thread(target=self._ask_all, args=(number,)) for number in range(num_clients)]

    def wait_for_pieces(self, count):
        """Until so many more pieces of answers have come."""
        for _ in range(count):
            self._pieces.acquire()

    def wait_for_answers(self, count):
        """Until so many more requests have ended."""
        for _ in range(count):
            self._answers.acquire()

    def stop(self):
        """What became of all requests. Each of them is answered, or has begun to be and broke off."""
        self._has_stopped.set()
        for client in self._clients:
            client.join()
        lost = [asked for asked in self._asked if not asked.has_begun]
        assert not lost, lost[0]
        return self._asked

    def __enter__(self):
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_):
        self._has_stopped.set()
        for client in self._clients:
            client.join()

    def _ask_all(self, number):
        rng = random.Random(number)
        with httpx.Client(timeout=300) as client:
            while not self._has_stopped.is_set():
                self._asked.append(asked := Asked(self._prompt(rng)))
                for url in self._urls:
                    self._ask(client, url, asked)
                    if asked.has_begun:
                        break
                self._answers.release()

    def _prompt(self, rng):
        """Most share a stem with others."""
        stem = rng.choice(self._stems) if rng.random() < 0.7 else _tokens(rng, STEM_TOKENS)
        return [*stem, *_tokens(rng, rng.randrange(1, 40))]

    def _ask(self, client, url, asked):
        body = {"model": MODEL, "prompt": asked.prompt, "max_tokens": self._max_tokens, "temperature": 0}
        body |= {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        asked.num_tries += 1
        try:
            with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
                if answer.status_code != httpx.codes.OK:
                    asked.problem = answer.read().decode()
                    return
                asked.engine = answer.headers["x-octavo-engine"]
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        asked.pieces.append(line.removeprefix("data: "))
                        self._pieces.release()
        except httpx.TransportError as error:
            asked.problem = repr(error)


def _tokens(rng, count):
    return [rng.randrange(5, 250) for _ in range(count)]
