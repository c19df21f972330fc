"""`octavo events`: a live stream of KV events to read, to keep, and to play again."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import CommandGroup, bytes_of
from octavo.cli.output import print_error, write_output
from octavo.errors import InputError

if TYPE_CHECKING:
    from octavo.events import Subscriber

app = CommandGroup()

_DEFAULT_MAX_BYTES = "1GiB"
_LONGEST_PAUSE_S = 3600.0

_Endpoint = Annotated[str, typer.Argument(help="Where events are heard: tcp://HOST:PORT or ipc://PATH.")]
_Replay = Annotated[str | None, typer.Option(help="Where missed events are asked for.", show_default=False)]
_Bind = Annotated[bool, typer.Option("--bind", help="Bind the endpoint; the publisher connects.")]
_Keys = Annotated[
    Path | None, typer.Option(help="A folder with the keys that the publisher asks for.", show_default=False)
]
_Topic = Annotated[list[str] | None, typer.Option(help="Only topics that begin with this.", show_default=False)]
_Limit = Annotated[int | None, typer.Option(help="End after this number of messages.", min=1, show_default=False)]


@app.command()
def tail(
    endpoint: _Endpoint,
    *,
    replay: _Replay = None,
    bind: _Bind = False,
    keys: _Keys = None,
    topic: _Topic = None,
    group: Annotated[int | None, typer.Option(help="Only this group.", min=0, show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
    limit: _Limit = None,
) -> None:
    """Show events as they come."""
    from octavo.cli.commands.events.view import lines

    num_lines = 0
    with _subscriber(endpoint, replay=replay, bind=bind, keys=keys, topics=topic) as subscriber:
        for item in subscriber:
            for line in lines(item, group=group, as_json=json):
                num_lines += 1
                if not write_output(line + "\n") or num_lines == limit:
                    return


@app.command()
def record(
    endpoint: _Endpoint,
    file: Annotated[Path, typer.Argument(help="The file to make.")],
    *,
    replay: _Replay = None,
    bind: _Bind = False,
    keys: _Keys = None,
    topic: _Topic = None,
    max_bytes: Annotated[str, typer.Option(help="Largest size of the file: 100MB, 1GiB.")] = _DEFAULT_MAX_BYTES,
    limit: _Limit = None,
) -> None:
    """Keep events in a file, one JSON object on each line."""
    from octavo.cli.commands.events.recorded import Recorder
    from octavo.events import Heard, Resync, Silence

    most_bytes = bytes_of("--max-bytes", max_bytes)
    num_batches = 0
    with (
        _subscriber(endpoint, replay=replay, bind=bind, keys=keys, topics=topic) as subscriber,
        Recorder(file, max_bytes=most_bytes) as recorder,
    ):
        for item in subscriber:
            if isinstance(item, Resync):
                print_error(f"resync: {item.reason.value}, expected {item.expected}, got {item.got}")
                continue
            if isinstance(item, Silence):
                print_error(f"silence: nothing for {item.silent_s:.0f} s")
                continue
            if isinstance(item, Heard):
                continue
            if not recorder.add(item, received=time.time()):
                print_error(f"{file} is full: --max-bytes {max_bytes}")
                return
            num_batches += 1
            if num_batches == limit:
                return


@app.command(name="replay")
def replay_file(
    file: Annotated[Path, typer.Argument(help="A file that `octavo events record` made.")],
    endpoint: Annotated[str, typer.Argument(help="Where to publish: tcp://127.0.0.1:PORT.")],
    *,
    connect: Annotated[bool, typer.Option("--connect", help="Connect to a subscriber that binds.")] = False,
    speed: Annotated[float, typer.Option(help="How many times as fast as it was recorded.")] = 1.0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="As fast as it is read.")] = False,
    subscriber_timeout: Annotated[
        float, typer.Option(help="Seconds to wait for a subscriber, and for one that does not read.")
    ] = 10.0,
) -> None:
    """Publish recorded events again, with their sequence numbers."""
    from octavo.cli.commands.events.recorded import read_recorded
    from octavo.cli.commands.events.sender import RecordSender

    if not 0 < speed < float("inf"):
        raise InputError(f"--speed must be more than 0, not {speed}")
    if not 0 < subscriber_timeout <= _LONGEST_PAUSE_S:
        raise InputError(
            f"--subscriber-timeout must be more than 0 and at most {_LONGEST_PAUSE_S:.0f}, not {subscriber_timeout}"
        )
    _check_crosses_processes(endpoint)
    for _ in read_recorded(file):  # a file is refused before the first of its messages is sent
        pass
    with RecordSender(endpoint, bind=not connect, timeout_s=subscriber_timeout) as sender:
        sender.wait_for_subscriber()
        last = None
        for message in read_recorded(file):
            if last is not None and not no_wait:
                time.sleep(min(_LONGEST_PAUSE_S, max(0.0, message.received - last) / speed))
            last = message.received
            sender.send(message)


@app.command(name="keys")
def make_key_files(folder: Annotated[Path, typer.Argument(help="A new folder.")]) -> None:
    """Make keys, so that only the subscribers that have one read events."""
    from octavo.events import make_keys  # zmq, which no other command needs

    make_keys(folder)
    write_output(
        f"Keys in {folder}. The publisher needs publisher.key_secret and subscribers/; "
        "a subscriber needs publisher.key and subscriber.key_secret.\n"
    )


def _subscriber(
    endpoint: str, *, replay: str | None, bind: bool, keys: Path | None, topics: list[str] | None
) -> "Subscriber":
    from octavo.events import SourceConfig, Subscriber, SubscriberConfig  # zmq, which no other command needs

    _check_crosses_processes(endpoint)
    if replay is not None:
        _check_crosses_processes(replay)
    source = SourceConfig(endpoint=endpoint, replay_endpoint=replay, bind=bind, keys=keys, topics=tuple(topics or [""]))
    return Subscriber(SubscriberConfig(sources=(source,)))


def _check_crosses_processes(endpoint: str) -> None:
    """Refuses an endpoint within one process: a command is its own process, and would wait there forever."""
    if endpoint.startswith("inproc://"):
        raise InputError(f"{endpoint!r} is within one process; write tcp://HOST:PORT, tcp://*:PORT or ipc://PATH")
