"""Engines that come and go with the file that lists them."""

import asyncio
from threading import Event, Thread

import pytest

from octavo.engine import save_tiny_model
from octavo.errors import InputError
from octavo.router import RouterConfig, RouterServer, engines_file
from rigs.running_router import RoutedEngine, RunningRouter


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listed") / "model"
    save_tiny_model("llama", folder)
    return folder


def write(file, *engines):
    """Another file takes its place, as a careful editor does it."""
    new = file.with_suffix(".new")
    new.write_text("engines:\n" + "".join(f"- {engine}\n" for engine in engines))
    new.replace(file)


def names(seen):
    return {engine["name"] for engine in seen["engines"]}


def test_engines_come_and_go_with_the_file(folder, running, tmp_path):
    first, second = (running(RoutedEngine(folder)) for _ in range(2))
    file = tmp_path / "engines.yaml"
    write(file, first.url)
    router = running(RunningRouter([], engines_file=file))
    router.wait_until_known(1)
    assert router.ask([5] * 40) == (first.name, 0)
    router.wait_until_told([first])

    write(file, first.url, second.url)
    router.wait_until_known(2)
    assert router.ask([5] * 40) == (first.name, 32)

    write(file, "nothing")
    write(file, second.url)
    router.wait_until(lambda seen: names(seen) == {second.name})
    assert router.ask([5] * 40) == (second.name, 0)

    write(file, f"{first.url},name=again", second.url)
    router.wait_until_known(2)
    router.wait_until(lambda seen: names(seen) == {"again", second.name})
    assert {router.ask([50 + i] * 40)[0] for i in range(20)} == {"again", second.name}


@pytest.mark.parametrize(
    ("text", "complaint"), [("engines: 3", "engines must be a list"), ("engins: []", "unknown setting 'engins'")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, complaint):
    file = tmp_path / "engines.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=f"{file}.*{complaint}"):
        RouterServer(RouterConfig(engines_file=file))


def test_a_file_system_that_hangs_does_not_hold_up_the_end(tmp_path, monkeypatch):
    hangs, may_end = Event(), Event()

    def hang(file):
        hangs.set()
        may_end.wait()

    async def watch_and_end():
        watching = asyncio.create_task(engines_file.watch_engines_file(tmp_path / "engines.yaml", print))
        await asyncio.to_thread(hangs.wait)
        watching.cancel()

    monkeypatch.setattr(engines_file, "_mark", hang)
    running = Thread(target=lambda: asyncio.run(watch_and_end()), daemon=True)
    running.start()
    running.join(300.0)
    has_ended = not running.is_alive()
    may_end.set()
    assert has_ended
