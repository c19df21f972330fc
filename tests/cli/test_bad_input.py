"""Bad input ends in one line that says what is wrong, and exit code 2."""

import json
import os
from pathlib import Path

import pytest

from octavo.cli.commands import COMMANDS, load_command
from octavo.cli.flags.once import FlagsOnceCommand

MODELS = Path(__file__).parents[2] / "examples" / "models"
LLAMA = MODELS / "llama-3.1-8b.json"


@pytest.fixture
def complaint(octavo):
    def one_line(*arguments):
        ran = octavo(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("octavo: ")
        assert ran.err.count("\n") == 1
        assert ran.err.endswith("\n")
        return ran.err

    return one_line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "-5"], "--memory: '-5' is not a size"),
        (["--memory", "0"], "--memory: '0' is too small"),
        (["--memory", "1e30"], "--memory: '1e30' is not a size"),
        (["--memory", "99999999TiB"], "--memory: '99999999TiB' is too large"),
        (["--memory", "lots"], "--memory: 'lots' is not a size"),
        (["--memory", ""], "--memory: '' is not a size"),
        (["--memory", "1MiB", "--context", "1k"], "1 MiB cannot hold one request of 1,024 tokens, which needs 128 MiB"),
        (["--memory", "1GiB", "--context", "128k"], "the longest context that fits is 8,192 tokens"),
        (["--context", "0"], "--context: '0' is too small"),
        (["--context", "-1"], "--context: '-1' is not a number of tokens"),
        (["--context", "1.5"], "--context: '1.5' is not a whole number of tokens"),
        (["--context", "9999999999999m"], "--context must be from 1 to"),
        (["--block-size", "0"], "--block-size must be a whole number from 1 to 1048576, not 0"),
        (["--block-size", "-1"], "--block-size must be a whole number from 1 to 1048576, not -1"),
        (["--block-size", "1000000000"], "--block-size must be a whole number from 1 to 1048576"),
        (["--block-size", "1e9"], "--block-size must be a whole number from 1 to 1048576, not '1e9'"),
        (["--hash-block-size", "0"], "--hash-block-size must be a whole number from 1"),
        (["--hash-block-size", "7"], "is not a multiple of hash_block_size = 7; 16 or a divisor of it fits all groups"),
        (["--step-tokens", "0"], "--step-tokens must be a whole number from 1"),
        (["--tp", "0"], "--tp must be a whole number from 1 to 1048576, not 0"),
        (["--tp", "3"], "over tensor_parallel_size = 3"),
        (["--kv-dtype", "float7"], "kv_dtype: unknown dtype 'float7'; known are: float32"),
        (["--compare", "sglang"], "octavo: --compare: 'sglang' is not one of 'vllm'; try 'octavo plan --help'"),
        (["--memory"], "octavo: Option '--memory' requires an argument; try 'octavo plan --help'"),
        (["--layers", "x.yaml"], "give a model's config.json or --layers spec.yaml, one of the two"),
        (["--frobnicate"], "No such option: --frobnicate"),
        (["more"], "unexpected extra argument"),
    ],
)
def test_flags(complaint, arguments, message):
    assert message in complaint("plan", LLAMA, *arguments)


def test_neither_config_nor_layers(complaint):
    assert "one of the two" in complaint("plan")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["warm", "http://a", "file", "--parallel", "300"], "--parallel must be a whole number from 1 to 256, not 300"),
        (["bench", "serve", "--turns", "0"], "--turns must be a whole number of 1 or more, not 0"),
        (["bench", "serve", "--speed", "quick"], "--speed must be a number, not 'quick'"),
        (["bench", "serve", "--speed", os.fsdecode(b"\xff")], "--speed holds what is not UTF-8; write plain text"),
        (
            ["bench", "serve", "--vocab-size", "9" * 20],
            f"--vocab-size must be a whole number from 16 to {1 << 31}, not {'9' * 20}",
        ),
        (["plan", LLAMA, "--tp", "two"], "--tp must be a whole number from 1 to 1048576, not 'two'"),
        (["bench", "serve", "--turns", " 0 "], "--turns must be a whole number of 1 or more, not 0"),
        (
            ["bench", "serve", "--concurrency", "9" * 400],
            f"--concurrency must be a whole number from 1 to 4096, not {'9' * 27}...{'9' * 28}",
        ),
        (
            ["bench", "serve", "--turns", "9" * 5000],
            f"--turns must be a whole number of 1 or more, not '{'9' * 27}...{'9' * 28}'",
        ),
    ],
)
def test_a_wrong_number_is_told_like_that_of_a_setting(complaint, arguments, sentence):
    """And not in the words of the library that reads it."""
    assert complaint(*arguments).startswith(f"octavo: {sentence}; try 'octavo ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["cache", "clear", "{}", "--yes"],
        ["store", "stat", "file://{}"],
        ["store", "verify", "file://{}"],
        ["store", "gc", "file://{}", "--size", "1GiB"],
        ["store", "delete", "file://{}", "--salt", "team", "--yes"],
        ["store", "warm", "file://{}", "--disk", "{}/disk", "--size", "1GiB"],
    ],
)
def test_an_empty_choice_is_not_all(complaint, tmp_path, arguments):
    """It is what a script's unset variable leaves."""
    told = complaint(*(argument.format(tmp_path) for argument in arguments), "--namespace", "")
    assert told == "octavo: --namespace: '' chooses nothing: name something, or leave the flag out\n"


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["simulate", "trace", "--sweep", "memory=1GiB..2GiB", "--sweep", "disk=1GiB..2GiB"], "--sweep"),
        (["simulate", "trace", "--compare", "policy=lru", "--compare=policy=arc"], "--compare"),
        (["plan", LLAMA, "--context", "8k", "--context", "32k"], "--context"),
        (["serve", "model", "--disk", "a", "--disk", "b"], "--disk"),
        (["route", "drain", "engine", "--url", "http://a", "--url", "http://b"], "--url"),
        (["cache", "clear", "folder", "--namespace", "a", "--namespace", "b"], "--namespace"),
        (["bench", "serve", "--trace", "a", "--trace", "b"], "--trace"),
    ],
)
def test_a_flag_with_one_value_is_given_once(complaint, arguments, flag):
    """Of two, the last would win, and nobody would know."""
    assert complaint(*arguments) == f"octavo: {flag} takes one value, and is given 2 times: leave the others out\n"


def test_every_command_asks_for_flags_with_one_value_once():
    def commands_of(command):
        children = getattr(command, "commands", None)
        return [command] if children is None else [one for child in children.values() for one in commands_of(child)]

    commands = [one for name in COMMANDS for one in commands_of(load_command(name))]
    assert len(commands) > len(COMMANDS)
    assert [one.name for one in commands if not isinstance(one, FlagsOnceCommand)] == []


def test_lists_and_switches_may_be_repeated(octavo):
    assert octavo("plan", LLAMA, "--json", "--json").code == 0
    assert "two engines are called 'a:1'" in octavo("route", "--engine", "http://a:1", "--engine", "http://a:1").err


def test_no_such_command(complaint):
    assert complaint("plam") == "octavo: No such command 'plam'. Did you mean 'plan'? Try 'octavo --help'\n"


@pytest.mark.parametrize("command", [["serve"], ["cache", "ls"], ["config", "show"]])
def test_the_hint_names_the_command_that_was_typed(complaint, octavo, command):
    assert complaint(*command, "--frobnicate").endswith(f"try 'octavo {' '.join(command)} --help'\n")
    short = octavo(*command, "-h")
    assert (short.code, "Usage: octavo" in short.out) == (0, True)


def test_a_shell_completes_names_to_choose_from(octavo, monkeypatch, capsys):
    asked = {"_OCTAVO_COMPLETE": "complete_bash", "COMP_WORDS": "octavo serve --dtype b", "COMP_CWORD": "3"}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        octavo()
    assert capsys.readouterr().out.split() == ["bfloat16"]


@pytest.mark.parametrize("flag", [["--tp", "2"], ["--kv-dtype", "fp8"]])
def test_layers_say_their_own_ranks_and_types(complaint, flag):
    assert "a --layers file says its own" in complaint("plan", "--layers", "x.yaml", *flag)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no JSON"),
        (b"{,}", "is no JSON"),
        (b"[1]", "must hold a JSON object"),
        (b"\x00\x01\xff\xfe", "not UTF-8"),
        (b"\x00\x01", "is no JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_files_that_are_no_config(complaint, tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    assert message in complaint("plan", file)
    assert str(file) in complaint("plan", tmp_path)


def test_files_that_are_not_there(complaint, tmp_path):
    assert "no such file" in complaint("plan", tmp_path / "absent.json")
    assert "no config.json in this folder" in complaint("plan", tmp_path)
    assert "not a file" in complaint("plan", "--layers", tmp_path)
    assert "no such file" in complaint("plan", "--layers", tmp_path / "absent.yaml")
    assert "no such file" in complaint("plan", "two\nlines\x1b[31m.json")
    assert "not a file" in complaint("plan", os.devnull)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no /proc here")
def test_an_unreadable_file(complaint):
    """Address 0 can be read by nobody, not even by root."""
    assert "cannot be read" in complaint("plan", "/proc/self/mem")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_oss", "sliding_window": 0, "num_hidden_layers": 2}, "sliding_window must be a whole"),
        ({"num_attention_heads": "many"}, "num_attention_heads must be a whole number"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"model_type": "warp_drive", "num_attention_heads": None}, "to guess from. Describe the layers yourself"),
        ({"model_type": "warp_drive", "layer_types": ["warp"] * 32}, "layer_types[0] = 'warp' is none of"),
    ],
)
def test_configs_that_no_plan_can_come_from(complaint, tmp_path, changes, message):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(LLAMA.read_text()), **changes}))
    line = complaint("plan", file)
    assert message in line
    assert str(file) in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it must hold keys and values with a list of layers"),
        ("layers: []", "at least one entry"),
        ("layers: [{kind: warp}]", "entry 1: unknown kind 'warp'; known are full_attention"),
        (
            "layers: [{kind: full_attention, num_kv_heads: 0, head_size: 64}]",
            "entry 1: FullAttentionSpec: num_kv_heads",
        ),
        ("layers: [{kind: sliding_window, num_kv_heads: 1, head_size: 64, sliding_window: 0}]", "sliding_window must"),
        ("layers: [", "not valid YAML"),
        ("layers: []\nlayers: []", "not valid YAML: 'layers' stands twice"),
        ("layers: [{kind: a, kind: b}]", "'kind' stands twice"),
        ("\0", "not valid YAML"),
    ],
)
def test_layers_files(complaint, tmp_path, text, message):
    file = tmp_path / "layers.yaml"
    file.write_text(text)
    line = complaint("plan", "--layers", file)
    assert message in line
    assert str(file) in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["tail", "inproc://x"],
        ["tail", "tcp://127.0.0.1:1", "--replay", "inproc://x"],
        ["record", "inproc://x", "events.jsonl"],
        ["replay", os.devnull, "inproc://x"],
    ],
)
def test_events_within_a_process_are_heard_by_no_command(complaint, arguments):
    assert "'inproc://x' is within one process" in complaint("events", *arguments)


def test_only_files_are_replayed(complaint, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert f"{pipe}: not a file" in complaint("events", "replay", pipe, "tcp://127.0.0.1:0")
    assert f"{tmp_path}: not a file" in complaint("events", "replay", tmp_path, "tcp://127.0.0.1:0")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
def test_a_log_or_a_trace_without_lines_ends(complaint):
    assert "in one line" in complaint("why", "cmpl-1", "--log", "/dev/zero")
    assert "in one line" in complaint("simulate", "/dev/zero", "--model", LLAMA)


@pytest.mark.parametrize(
    "arguments",
    [
        ["why", "{}", "--url", "http://127.0.0.1:1"],
        ["route", "drain", "{}", "--url", "http://127.0.0.1:1"],
        ["bench", "serve", "http://127.0.0.1:1", "--model", "{}"],
        ["serve", "--tiny", "gemma3", "--port", "{}"],
    ],
)
def test_bytes_that_are_no_text(complaint, arguments):
    foreign = os.fsdecode(b"\xff\xfe")
    assert "not UTF-8" in complaint(*(argument.format(foreign) for argument in arguments))


def test_endpoints_are_text(complaint):
    foreign = os.fsdecode(b"\xff")
    assert "is no endpoint" in complaint("events", "tail", f"tcp://{foreign}:1")
    assert "is no endpoint" in complaint("events", "record", f"ipc:///{foreign}", os.devnull)


def test_too_little_memory(complaint, monkeypatch):
    def plan(*_, **__):
        raise MemoryError

    monkeypatch.setattr("octavo.cli.commands.plan.command.plan_kv_cache", plan)
    assert "this machine has too little memory" in complaint("plan", LLAMA)
