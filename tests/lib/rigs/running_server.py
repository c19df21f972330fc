"""A server of a tiny model on a free port of this machine, in a thread; and what tests ask of its engine."""

import asyncio
import threading
from contextlib import contextmanager

import httpx

from octavo.engine import AsyncEngine, Engine, EngineConfig, offload_maker
from octavo.http import open_socket, url_of
from octavo.server import Server, ServerConfig
from rigs.offload_always import offload_always

MODEL = "tiny"
LONG_CONTEXT = 4096
ENDLESS = {"max_tokens": 4000, "ignore_eos": True, "stream": True}
"""Of a request to a server with `max_model_len=LONG_CONTEXT`: its answer takes seconds, and a test needs some
milliseconds for what is to happen before it ends."""


class RunningServer:
    def __init__(
        self,
        folder,
        *,
        model_name=MODEL,
        read_offload=None,
        api_key=None,
        bounds=None,
        offload=None,
        tenants=(),
        **engine,
    ):
        config = {"device_memory_bytes": 8 << 20, "max_model_len": 512, "max_num_seqs": 16, **engine}
        config = EngineConfig(model=folder, **config)
        make_offload = None if offload is None else offload_maker(config, offload_always(offload))
        self.engine = AsyncEngine(Engine.from_config(config, make_offload=make_offload))
        bounds = {"port": 0, "shutdown_timeout_s": 0, **(bounds or {})}
        server = ServerConfig(model_name=model_name, api_key=api_key, **bounds)
        listener = open_socket(server)
        self.url = url_of(listener)
        self.server = Server(self.engine, server, read_offload=read_offload, tenants=tenants)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def client(self, **options):
        return httpx.Client(base_url=self.url, timeout=300, **options)

    def ask(self, function):
        """What a function says of the engine, between two steps."""
        return asyncio.run(self.engine.call(function))

    def finished(self):
        """Choices that have ended, by reason."""
        return self.ask(lambda engine: dict(engine.counters.choices_finished))

    def wait_until_idle(self):
        """Each question lets the engine take a step."""
        while self.ask(lambda engine: engine.has_unfinished):
            pass

    def check_nothing_is_left(self):
        self.wait_until_idle()

        def look(engine):
            engine.manager.check_invariants()
            return len(engine.manager.requests), len(engine.scheduler.running), len(engine.scheduler.waiting)

        assert self.ask(look) == (0, 0, 0)
        usage = self.ask(lambda engine: [pages.held_pages for pages in engine.snapshot().classes])
        assert not any(usage)

    @contextmanager
    def held_engine(self):
        """Nothing is computed within."""
        go_on, holds = threading.Event(), threading.Event()

        def hold(_):
            holds.set()
            go_on.wait()

        holder = threading.Thread(target=self.ask, args=(hold,))
        holder.start()
        holds.wait()
        try:
            yield
        finally:
            go_on.set()
            holder.join()

    @contextmanager
    def held_after(self, num_steps):
        """No more steps than that are computed within: what is told of an answer then is told before its end."""
        runner, may_go_on = self.engine.engine.runner, threading.Semaphore(num_steps)
        run = runner.run

        def run_held(batch):
            may_go_on.acquire()
            return run(batch)

        runner.run = run_held
        try:
            yield
        finally:
            runner.run = run
            may_go_on.release()  # the one step that may wait

    def wait_until_open(self, count):
        """Until the server has so many requests. Each question gives it a turn."""
        with self.client() as client:
            while self.server.service.admission.num_open != count:
                client.get("/health")

    def count_gone(self):
        """Clients that went away."""
        return self.server.service.metrics.clients_gone._value.get()

    def wait_until_gone(self, count):
        """Until so many clients have gone away, and their going was noticed."""
        with self.client() as client:
            while self.count_gone() < count:
                client.get("/health")

    def ask_to_end(self):
        self.server.should_exit = True

    def close(self):
        self.ask_to_end()
        self._thread.join()
        assert self.server.service.admission.num_open == 0
        assert self.server.service.admission.num_bytes == 0
        assert len(self.server.service.live) == 0


@contextmanager
def serving(folder, **options):
    server = RunningServer(folder, **options)
    try:
        yield server
    finally:
        server.close()
