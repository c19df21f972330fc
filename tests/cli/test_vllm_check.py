"""`octavo vllm-check` as far as it goes without vLLM: what a person typed, what an engine's log says, the verdict."""

import pytest
from msgspec.structs import replace

from octavo.cli.commands.vllm_check import run as vllm_check_run
from octavo.cli.commands.vllm_check.causes import explain_cause, find_cause
from octavo.cli.commands.vllm_check.run import (
    COLD,
    DEVICE,
    DISK,
    MEMORY,
    STORING,
    Measured,
    Pass,
    has_no_tokenizer,
)
from octavo.cli.commands.vllm_check.view import find_problem, show_check, show_gain
from octavo.errors import InputError

RIGHT, OTHER, WRONG = [[1, 2], [3, 4]], [[1, 2], [3, 5]], [[1, 2], [0, 0]]
LEADS_TO = "The above exception was the direct cause of the following exception:"
LOG = """\
(EngineCore pid=1) INFO 11-21 20:51:28 [core.py:1] Loading weights took 0.1 seconds
(Worker pid=2) ERROR 11-21 20:51:28 [core.py:1512] Traceback (most recent call last):
(Worker pid=2) ERROR 11-21 20:51:28 [core.py:1512]     raise TierError("no room")
(Worker pid=2) ERROR 11-21 20:51:28 [core.py:1512] octavo.errors.TierError: no room
Traceback (most recent call last):
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.
"""


def served(answers, loaded_tokens=0):
    return Pass(
        answers=answers,
        cached_tokens=0,
        loaded_tokens=loaded_tokens,
        loaded_bytes=loaded_tokens,
        first_token_s=[0.1],
        chunks_from_disk=loaded_tokens,
    )


def measured(memory, **others):
    passes = {COLD: served(RIGHT), DEVICE: served(RIGHT), STORING: served(OTHER), MEMORY: memory} | others
    return Measured(prompt_tokens=20, passes=passes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "lots"], "--memory: 'lots' is not a size"),
        (["--disk", "/x", "--disk-size", "0"], "--disk-size: '0' is too small"),
        (["--policy", "mru"], "choose one of: arc, lru, resume_points"),
        (["--vllm-args", "[1"], "--vllm-args is no JSON"),
        (["--vllm-args", '{"seed": ' + "9" * 5000 + "}"], "--vllm-args has a number of too many digits"),
        (["--vllm-args", "[]"], "--vllm-args must be an object"),
        ([], "vLLM is not installed here"),
    ],
)
def test_what_is_refused_before_an_engine_starts(octavo, monkeypatch, arguments, message):
    monkeypatch.setattr(vllm_check_run, "is_installed", lambda _: False)
    ran = octavo("vllm-check", "model", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_folder_without_a_model(octavo, monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_check_run, "require_vllm", lambda: None)
    ran = octavo("vllm-check", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path} holds no model" in ran.err
    monkeypatch.chdir(tmp_path.parent)
    assert f"octavo: {tmp_path.name} holds no model" in octavo("vllm-check", tmp_path.name).err


def test_a_config_that_is_damaged_is_named(octavo, monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_check_run, "require_vllm", lambda: None)
    (tmp_path / "config.json").write_text("{")
    ran = octavo("vllm-check", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path}/config.json is no JSON" in ran.err


def test_a_disk_that_cannot_be_used_is_refused_before_an_engine_starts(octavo, monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_check_run, "require_vllm", lambda: None)
    file = tmp_path / "file"
    file.touch()
    ran = octavo("vllm-check", "model", "--disk", file)
    assert (ran.code, ran.out) == (2, "")
    assert f"octavo: disk tier: {file} cannot be used" in ran.err
    assert ran.err.count("\n") == 1


def test_an_engine_that_ends_is_quoted_and_its_log_is_kept(octavo, monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_check_run, "require_vllm", lambda: None)
    monkeypatch.setattr(vllm_check_run.sys, "executable", "/bin/false")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    ran = octavo("vllm-check", "some/model")
    assert ran.code == 2
    assert "vLLM did not serve the model without the plug-in: it said nothing" in ran.err
    (log,) = tmp_path.glob("octavo-vllm-check-*.log")
    assert str(log) in ran.err


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (LOG, "TierError: no room"),
        (
            "(EngineCore pid=1) ERROR 11-21 20:51:28 [m.py:3] Worker proc W-0 died unexpectedly (exit code: -4)\n"
            + LOG,
            "Worker proc W-0 died unexpectedly (exit code: -4)",
        ),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for A\n  Value error, Invalid repository",
            "ValidationError: 1 validation error for A Value error, Invalid repository",
        ),
        ("KeyError: 'x'", "KeyError: 'x'"),
        (
            f"OSError: [Errno 28]\n\n{LEADS_TO}\n\nTraceback:\n  raise\noctavo.errors.TierError: no room",
            "TierError: no room",
        ),
        (f"KeyError: 'x'\n\n{LEADS_TO}\n\nRuntimeError: Engine core initialization failed", "KeyError: 'x'"),
        ("Killed\n\n", "Killed"),
        ("", "it said nothing"),
    ],
)
def test_the_cause_in_a_log(log, cause):
    assert find_cause(log) == cause


def test_answers_that_vllm_gives_too_are_right():
    for answers in (RIGHT, OTHER):
        assert find_problem(measured(served(answers, 9), **{DISK: served(RIGHT, 9)})) is None


def test_answers_of_its_own_are_wrong():
    problem = find_problem(measured(served(RIGHT, 9), **{DISK: served(WRONG, 9)}))
    assert problem == "Octavo disk: 1 of 2 answers are none that vLLM gave without loads"
    shaky = measured(served(WRONG, 9), **{COLD: served(OTHER)})
    assert "the model is not reproducible here" in find_problem(shaky)


def test_nothing_loaded_proves_nothing():
    assert "nothing was loaded" in find_problem(measured(served(RIGHT)))


def test_what_a_second_process_loads_from_its_memory_proves_nothing_of_the_disk():
    from_memory = replace(served(RIGHT, 9), chunks_from_disk=0)
    assert "more --disk-size" in find_problem(measured(served(RIGHT, 9), **{DISK: from_memory}))
    told = replace(from_memory, why_no_disk="the weights are random: load real ones")
    problem = find_problem(measured(served(RIGHT, 9), **{DISK: told}))
    assert problem.startswith("Octavo disk: nothing was read from there")
    assert problem.endswith("the weights are random: load real ones")


def test_the_verdict_says_what_it_brought():
    gain = show_gain(measured(served(RIGHT, 10), **{DISK: served(OTHER, 5)}))
    assert gain == (
        "the plug-in works here. All 2 answers are vLLM's own; loaded from memory 50% of prompt tokens, "
        "first token 1.0x sooner; from disk 25% of prompt tokens, first token 1.0x sooner."
    )


def test_a_hub_that_cannot_be_reached_is_explained():
    said = explain_cause("httpcore.ConnectError: [Errno -2] Name or service not known")
    assert said.startswith("ConnectError: [Errno -2] Name or service not known; the model is in no folder here")


def test_memory_is_explained_in_this_commands_terms():
    busy = explain_cause(
        "ValueError: Free memory on device (1/2 GiB) is less than desired GPU memory utilization (0.9)"
    )
    assert busy.endswith("""--vllm-args '{"gpu_memory_utilization": 0.5}'""")
    full = explain_cause(
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    )
    assert "--memory is host memory and does not help" in full
    assert "--shared-tokens" in explain_cause("VLLMValidationError: This model's maximum context length is 512 tokens.")
    assert "path of the model's folder" in explain_cause("LocalEntryNotFoundError: Cannot find an appropriate snapshot")
    assert explain_cause("KeyError: 'x'") == "KeyError: 'x'"


def test_the_table_names_every_pass():
    shown = show_check(measured(served(WRONG, 9), **{DISK: served(OTHER, 9)}))
    rows = {line.strip().split("  ")[0]: line.rstrip() for line in shown.splitlines()}
    assert rows[COLD].endswith("the same")
    assert rows[STORING].endswith("1 differ")
    assert rows[MEMORY].endswith("1 differ")
    assert rows[DISK].endswith("the same")
    assert "2 prompts of 10 tokens" in shown


def test_a_log_line_for_each_engine(monkeypatch):
    told = []
    monkeypatch.setattr(vllm_check_run, "_in_own_process", lambda _, names: dict.fromkeys(names, served(RIGHT)))
    task = vllm_check_run.CheckTask(
        model="m",
        num_prompts=1,
        shared_tokens=1,
        own_tokens=1,
        output_tokens=1,
        seed=0,
        vllm_args={},
        extra_config={},
    )
    found = vllm_check_run.run_check(task, has_disk=True, tell=told.append)
    assert len(told) == 3
    assert list(found.passes)[-1] == DISK


def test_other_versions_are_refused(monkeypatch):
    monkeypatch.setattr(vllm_check_run, "is_installed", lambda _: True)
    monkeypatch.setitem(__import__("sys").modules, "vllm", type("vllm", (), {"__version__": "0.20.1"}))
    with pytest.raises(InputError, match=r"knows vLLM 0\.31 to 0\.33, and 0\.20\.1 is installed"):
        vllm_check_run.require_vllm()


@pytest.mark.parametrize(
    ("names", "lacks"),
    [
        (["config.json"], True),
        (["config.json", "tokenizer.json"], False),
        (["vocab.txt"], False),
        (["tekken.json"], False),
    ],
)
def test_a_model_is_run_with_its_tokenizer_if_it_has_one(tmp_path, names, lacks):
    for name in names:
        (tmp_path / name).touch()
    assert has_no_tokenizer(tmp_path) is lacks
    assert not has_no_tokenizer(tmp_path / "a name")
