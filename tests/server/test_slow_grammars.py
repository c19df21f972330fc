"""Grammars whose compilation does not end: they hold up nobody."""

import asyncio
import subprocess
import sys
from threading import Event

import pytest

from octavo.engine import Engine, EngineConfig
from octavo.http import ApiError
from octavo.server import structure
from octavo.server.requests import CompletionRequest, StructuredOutputs
from octavo.server.structure import StructureReader

LONG = "start: A\nA: " + " & ".join(f"/(.*{chr(97 + i)}.{{{30 + i}}}{chr(98 + i)}.*)/" for i in range(20))
"""A grammar of a few hundred characters, which llguidance does not finish in three minutes."""


def asking(grammar):
    return CompletionRequest(prompt="x", structured_outputs=StructuredOutputs(grammar=grammar))


class HeldUp:
    """The grammars of a model, some of which do not end before `may_end`."""

    def __init__(self, grammars):
        self.grammars, self.may_end = grammars, Event()

    def find(self, text):
        return self.grammars.find(text)

    def compile(self, text):
        if "slow" in text:
            self.may_end.wait()
        return self.grammars.compile(text)


@pytest.fixture(scope="module")
def engine(model_folder):
    engine = Engine.from_config(EngineConfig(model=model_folder, device_memory_bytes=8 << 20, max_model_len=64))
    yield engine
    engine.close()


def test_others_are_compiled_and_after_some_all_new_ones_are_refused(engine, monkeypatch):
    async def is_compiled(grammar):
        return (await reader.read(asking(grammar))).grammar is not None

    async def refusal_of(grammar):
        with monkeypatch.context() as patched:
            patched.setattr(structure, "_PATIENCE_S", 0.05)
            with pytest.raises(ApiError) as refused:
                await reader.read(asking(grammar))
        return refused.value.status, refused.value.message

    async def scenario():
        for number in range(2):
            assert await is_compiled(f'start: "quick {number}"')
            status, message = await refusal_of(f'start: "slow {number}"')
            assert (status, "simplify it" in message) == (400, True)
        assert await is_compiled('start: "quick 0"'), "it is kept"
        status, message = await refusal_of('start: "quick 2"')
        assert (status, "try again later" in message) == (429, True)
        waiting = asyncio.create_task(is_compiled('start: "quick 2"'))
        grammars.may_end.set()
        assert await waiting
        assert await is_compiled('start: "slow 0"')

    monkeypatch.setattr(structure, "_PATIENCE_S", 60.0)
    grammars = HeldUp(engine.grammars)
    reader = StructureReader(None, grammars)
    asyncio.run(scenario())


PROCESS = """
import asyncio, sys
from octavo.engine import Engine, EngineConfig
from octavo.server import structure
from octavo.http import ApiError
from octavo.server.requests import CompletionRequest, StructuredOutputs

structure._PATIENCE_S = 0.2
engine = Engine.from_config(EngineConfig(model=sys.argv[1], device_memory_bytes=8 << 20, max_model_len=64))
reader = structure.StructureReader(None, engine.grammars)
request = CompletionRequest(prompt="x", structured_outputs=StructuredOutputs(grammar=sys.argv[2]))
try:
    asyncio.run(reader.read(request))
except ApiError as error:
    print(error.message)
engine.close()
"""


def test_a_process_ends_while_one_is_compiled(model_folder):
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(model_folder), LONG],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "takes more than 0.2 s to compile" in done.stdout
