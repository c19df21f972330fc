"""`octavo bench serve`: sends a workload to any server that speaks OpenAI's API, and measures it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.flags import SERVER_URL, ApiKey, CommandGroup, ManyFlagsCommand, ServedModel
from octavo.cli.output import write_output
from octavo.errors import InputError

app = CommandGroup()

_OF_A_TRACE = ("trace_block", "speed", "block_tokens", "limit")
_OF_CONVERSATIONS = ("conversations", "turns", "shared_tokens", "turn_tokens", "output_tokens")

_Trace = Annotated[
    Path | None,
    typer.Option(help="Replay this trace, of any form that `octavo simulate` reads.", show_default="conversations"),
]
_TraceBlock = Annotated[
    int | None,
    typer.Option(help="Tokens of the trace's blocks, if the usual size is wrong.", min=1, show_default="by its form"),
]
_BlockTokens = Annotated[
    int | None,
    typer.Option(
        help="Tokens sent for each block of the trace: fewer shrink all lengths alike.",
        min=1,
        max=65536,
        show_default="as many as it has",
    ),
]


@app.command(cls=ManyFlagsCommand)
def serve(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Where the server is.")] = SERVER_URL,
    *,
    model: ServedModel = None,
    api_key: ApiKey = None,
    trace: _Trace = None,
    trace_block: _TraceBlock = None,
    speed: Annotated[
        float | None, typer.Option(help="How many times as fast as the trace.", show_default="no waiting")
    ] = None,
    block_tokens: _BlockTokens = None,
    limit: Annotated[int | None, typer.Option(help="Requests of the trace to send.", min=1, show_default="all")] = None,
    conversations: Annotated[int, typer.Option(help="Conversations, without a trace.", min=1)] = 16,
    turns: Annotated[int, typer.Option(help="Requests of each conversation.", min=1)] = 4,
    shared_tokens: Annotated[int, typer.Option(help="Tokens that all conversations begin with.", min=0)] = 256,
    turn_tokens: Annotated[int, typer.Option(help="Tokens that each turn adds.", min=1)] = 128,
    output_tokens: Annotated[int, typer.Option(help="Tokens of each answer.", min=1)] = 32,
    concurrency: Annotated[int, typer.Option(help="Requests that are open at once.", min=1, max=4096)] = 8,
    vocab_size: Annotated[int, typer.Option(help="Token ids of prompts are below this.", min=16, max=1 << 31)] = 256,
    seed: Annotated[int, typer.Option(help="Of prompts. Change it to find nothing cached.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Replay a trace or hold conversations, and print times, throughput and hit rates."""
    from octavo.cli.client import base_url_of, first_model_of, headers_of, open_client
    from octavo.cli.commands.bench.run import BenchTarget, run_bench
    from octavo.cli.commands.bench.view import show_report, to_json
    from octavo.cli.commands.bench.workload import ConversationShape, Tokens, hold_conversations, replay_trace

    _refuse_unused(context, _OF_A_TRACE if trace is None else _OF_CONVERSATIONS, trace)
    if speed is not None and not 0 < speed < float("inf"):
        raise InputError(f"--speed must be more than 0, not {speed}")
    tokens = Tokens(vocab_size=vocab_size, seed=seed)
    if trace is not None:
        from octavo.sim import read_trace

        asked = read_trace(trace, block_tokens=trace_block, most_requests=limit)
        sessions = replay_trace(asked, tokens, block_tokens=block_tokens, speed=speed)
    else:
        shape = ConversationShape(
            shared_tokens=shared_tokens, turn_tokens=turn_tokens, output_tokens=output_tokens, turns=turns
        )
        sessions = hold_conversations(tokens, shape, conversations)
    base_url, headers = base_url_of(url), headers_of(api_key)
    with open_client(base_url, headers) as client:
        name = model or first_model_of(client)
    name.encode()  # what is no UTF-8 is refused before requests are sent
    target = BenchTarget(base_url=base_url, headers=headers, model=name, concurrency=concurrency)
    measured = run_bench(target, sessions, shows_progress=not json)
    write_output(to_json(measured) if json else show_report(measured))
    if measured.num_succeeded == 0:
        raise InputError("no request succeeded")


def _refuse_unused(context: typer.Context, names: Sequence[str], trace: Path | None) -> None:
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{flag} is for a trace: name one with --trace"
                if trace is None
                else f"{flag} is for conversations, and --trace replays a trace: leave one of them out"
            )
