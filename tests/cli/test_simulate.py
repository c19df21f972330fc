"""`octavo simulate`: a table, a curve, a picture, JSON; and what is wrong is said before minutes are spent."""

import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, wait
from multiprocessing import active_children
from pathlib import Path

import pytest

from octavo.sim import SimulatedEngine

MODEL = Path(__file__).parents[2] / "examples/models/gpt-oss-20b.json"


SWEEP = ("--device", "1GiB", "--sweep", "memory=1GiB..4GiB:2")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Twenty requests of three sessions that grow, with a common first block."""
    path = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    lines = []
    for number in range(20):
        session, turn = number % 3, number // 3
        ids = [0, *(1000 * (session + 1) + block for block in range(2 * turn + 2))]
        lines.append(
            {"timestamp": 700 * number, "input_length": 512 * len(ids) - 9, "output_length": 20, "hash_ids": ids}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_one_of_anything_is_told_as_one(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "1GiB", "--requests", 1)
    assert ran.out.startswith("1 request, 1,527 prompt tokens\n")


def test_a_request_that_does_not_fit_is_named(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "100MiB")
    assert ran.code == 2
    assert "--device: 100 MiB cannot hold one request" in ran.err
    assert ran.err.endswith("That is the trace's longest request, line 19.\n")


def test_a_request_that_is_too_long_for_the_model_is_refused(octavo, trace):
    asked = ("simulate", trace, "--model", MODEL, "--device", "4GiB", "--max-model-len", "7000")
    ran = octavo(*asked)
    assert ran.out.splitlines()[0].startswith("18 requests within 11.9 s, ")
    assert ran.out.splitlines()[2] == "2 requests beside them: too long for --max-model-len."
    assert json.loads(octavo(*asked, "--json").out)["refused_requests"] == 2


def test_states_are_kept_as_often_as_asked(octavo, trace):
    model = MODEL.with_name("qwen3-next-80b.json")
    asked = ("simulate", trace, "--model", model, "--device", "8GiB", "--json")
    usual, dense = (
        json.loads(octavo(*asked, *interval).out)["results"][0]
        for interval in ([], ["--checkpoint-interval-tokens", "512"])
    )
    assert usual["bytes_stored"]["memory"] < dense["bytes_stored"]["memory"]
    assert usual["configuration"]["checkpoint_interval_tokens"] is None
    assert dense["configuration"]["checkpoint_interval_tokens"] == 512
    assert octavo(*asked, "--checkpoint-interval-tokens", "0").code == 2


def test_a_table(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "4GiB", "--memory", "8GiB", "--disk", "16GiB")
    assert ran.code == 0, ran.err
    assert "20 requests within 13.3 s" in ran.out
    assert ran.out.splitlines()[3].split() == ["device", "4GiB"]  # no empty heads
    assert "prompt tokens resumed" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_json_says_the_same(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--json", "--compare", "policy=lru,memory=1GiB")
    (first, second) = json.loads(ran.out)["results"]
    assert first["configuration"]["policy"] == "resume_points"
    assert (second["configuration"]["policy"], second["configuration"]["memory"]) == ("lru", "1GiB")
    assert sum(first["resumed_tokens"].values()) == pytest.approx(first["resumed_share"] * first["prompt_tokens"])


def test_placements_of_a_fleet_are_compared(octavo, trace):
    fleet = ("--engines", 3, "--placement", "octavo", "--compare", "placement=random")
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "4GiB", "--memory", "0", *fleet)
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["engines", "3", "3"] in rows
    assert ["placement", "octavo", "random"] in rows
    (routed, spread) = json.loads(octavo("simulate", trace, "--model", MODEL, *fleet, "--json").out)["results"]
    assert routed["resumed_share"] > spread["resumed_share"]


def test_prices(octavo, trace):
    prices = ("--price", "memory=3,disk=0.1,gpu-hour=2.5")
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "1GiB", "--memory", "8GiB", *prices)
    assert "memory and disk, an hour" in ran.out
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP, *prices)
    assert "By money: " in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    (first, _) = json.loads(octavo("simulate", trace, "--model", MODEL, *SWEEP, *prices, "--json").out)["results"]
    assert first["money_per_hour"]["cost"] == pytest.approx(3 / 730)


def test_a_curve_and_a_picture(octavo, trace, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'octavo[plot]'")
    picture = tmp_path / "curve.svg"
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP, "--plot", picture)
    assert ran.code == 0, ran.err
    assert "1 GiB" in ran.out
    assert "4 GiB" in ran.out
    assert picture.read_text().startswith("<?xml")


def test_a_picture_of_requests_that_share_nothing(octavo, tmp_path):
    """Its curve has no medium to draw."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'octavo[plot]'")
    alone, picture = tmp_path / "alone.jsonl", tmp_path / "curve.svg"
    alone.write_text('{"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [1]}\n')
    ran = octavo("simulate", alone, "--model", MODEL, *SWEEP, "--plot", picture)
    assert ran.code == 0, ran.err
    assert picture.read_text().startswith("<?xml")


def test_a_picture_behind_a_link_is_checked_before_minutes_of_simulation(octavo, trace, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'octavo[plot]'")
    link = tmp_path / "curve.svg"
    link.symlink_to(tmp_path / "nowhere" / "curve.svg")
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP, "--plot", link)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be written: name a file in a folder that is there" in ran.err
    link.unlink()
    link.symlink_to(tmp_path / "real.svg")
    assert octavo("simulate", trace, "--model", MODEL, *SWEEP, "--plot", link).code == 0
    assert (tmp_path / "real.svg").read_text().startswith("<?xml")


def test_a_curve_that_is_flat_brings_nothing_more(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "8GiB", "--sweep", "memory=1GiB..4GiB:2")
    assert "; more brings nothing." in ran.out


def test_conversations(octavo, tmp_path):
    """Three that share what the system says, as ShareGPT's are: a list with an indentation."""
    system = {"from": "system", "value": "word " * 200}
    chats = [
        {
            "id": f"chat_{number}",
            "conversations": [
                system,
                *({"from": who, "value": f"{number} {turn} " * 40} for turn in range(3) for who in ("human", "gpt")),
            ],
        }
        for number in range(3)
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(chats, indent=1))
    ran = octavo("simulate", path, "--model", MODEL, "--device", "1GiB", "--memory", "1GiB", "--json")
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)["results"]
    assert result["num_requests"] == 9
    assert result["resumed_share"] == pytest.approx(result["seen_share"], abs=0.05)
    assert result["resumed_share"] > 0.6


def test_a_picture_that_cannot_be_written_leaves_the_former_one(octavo, trace, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'octavo[plot]'")
    picture = tmp_path / "curve.svg"
    picture.write_text("of yesterday")

    def on_a_full_disk(handle, mode):
        os.close(handle)
        return Path("/dev/full").open(mode)

    monkeypatch.setattr(os, "fdopen", on_a_full_disk)
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP, "--plot", picture)
    assert (ran.code, ran.err.endswith("cannot be written: No space left on device\n")) == (2, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("curve.svg", "of yesterday")]


ENDS = pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


@ENDS
@pytest.mark.usefixtures("hanging_up")
def test_a_signal_shows_what_was_served(octavo, trace, monkeypatch, end):
    submit = SimulatedEngine.submit

    def submit_and_interrupt(engine, number, asked):
        submit(engine, number, asked)
        if number == 9:
            signal.raise_signal(end)

    monkeypatch.setattr(SimulatedEngine, "submit", submit_and_interrupt)
    ran = octavo("simulate", trace, "--model", MODEL)
    assert ran.code == 0, ran.err
    assert "Interrupted: this is about the requests that had been served." in ran.out


def test_a_sweep_takes_no_module_from_the_current_folder(octavo, trace, tmp_path, monkeypatch):
    (tmp_path / "types.py").write_text("raise SystemExit('not the types of Python')")
    monkeypatch.chdir(tmp_path)
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP)
    assert (ran.code, ran.err) == (0, "")
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_sweep_without_shared_memory_is_told_with_the_remedy(octavo, trace, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", fail)
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP)
    assert (ran.code, ran.out) == (2, "")
    assert "/dev/shm, and it gives none (No space left on device): make room there" in ran.err


@ENDS
@pytest.mark.usefixtures("hanging_up")
def test_a_signal_ends_a_sweep_at_what_there_is(octavo, trace, monkeypatch, end):
    flags = ("simulate", trace, "--model", MODEL, "--device", "1GiB", "--sweep", "memory=1GiB..4GiB:5", "--json")
    whole = {result["configuration"]["memory"]: result for result in json.loads(octavo(*flags).out)["results"]}

    def wait_for_one(futures, timeout):
        wait(futures, return_when=FIRST_COMPLETED)
        signal.raise_signal(end)

    monkeypatch.setattr("octavo.cli.commands.simulate.run.wait", wait_for_one)
    ran = octavo(*flags)
    assert ran.code == 0, ran.err
    results = json.loads(ran.out)["results"]
    assert any(result["is_whole"] for result in results)
    assert all(result == whole[result["configuration"]["memory"]] for result in results if result["is_whole"])


@ENDS
@pytest.mark.usefixtures("hanging_up")
def test_a_signal_to_all_is_no_traceback_while_the_processes_of_a_sweep_start(octavo, trace, monkeypatch, end):
    """A terminal sends its own to all, and so do `timeout` and systemd."""

    def interrupt_all(*_, **__):
        send_to_children(end)
        signal.raise_signal(end)

    monkeypatch.setattr("octavo.cli.commands.simulate.run.wait", interrupt_all)
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP)
    assert (ran.code, ran.err) in ((0, ""), (130, "octavo: the simulation was interrupted before it had a result\n"))


def test_a_sweep_that_is_asked_to_end_leaves_no_process_and_says_nothing_of_its_own(trace):
    command = ["simulate", trace, "--model", MODEL, *SWEEP, "--json"]
    program = (
        "import octavo.cli.commands.simulate.run as module, os, signal, time\n"
        "def wait(futures, timeout):\n"
        "    os.killpg(0, signal.SIGTERM)\n"
        "    time.sleep(60)\n"
        "module.wait = wait\n"
        "if __name__ == '__main__':\n"
        "    from octavo.cli import main\n"
        "    main()"
    )
    started = [sys.executable, "-c", program, *map(str, command)]
    ran = subprocess.run(started, capture_output=True, text=True, timeout=300, process_group=0, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        130,
        "",
        "octavo: the simulation was interrupted before it had a result\n",
    )


def test_ctrl_c_before_the_first_result_is_no_mistake_of_the_command_line(octavo, trace, monkeypatch):
    def interrupt(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SimulatedEngine, "submit", interrupt)
    ran = octavo("simulate", trace, "--model", MODEL)
    assert (ran.code, ran.out) == (130, "")
    assert ran.err == "octavo: the simulation was interrupted before it had a result\n"


def test_a_process_of_a_sweep_that_is_killed_is_told_with_the_remedy(octavo, trace, monkeypatch):
    def kill_all(futures, timeout):
        send_to_children(signal.SIGKILL)
        return wait(futures)

    monkeypatch.setattr("octavo.cli.commands.simulate.run.wait", kill_all)
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP)
    assert (ran.code, ran.out) == (2, "")
    assert "was killed, as the system does where it lacks memory: ask for fewer sizes" in ran.err


def send_to_children(number):
    """As a terminal or the system does, at once: they have only begun to start."""
    for process in active_children():
        os.kill(process.pid, number)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--sweep", "memory=1GiB"], "is not of the form memory=16GiB..512GiB"),
        (["--sweep", "policy=lru..arc"], "what can be swept: device, memory, disk"),
        (["--sweep", "memory=2GiB..1GiB"], "2GiB is not below 1GiB"),
        (["--sweep", "memory=1GiB..2GiB:1"], "a curve has 2 to 64 points"),
        (["--sweep", f"memory=1GiB..2GiB:{'9' * 5000}"], "a curve has 2 to 64 points"),
        (["--sweep", "memory=1GiB..2GiB", "--compare", "policy=lru"], "ask one at a time"),
        (["--plot", "curve.png"], "add --sweep"),
        (["--sweep", "memory=1GiB..2GiB", "--plot", "curve.gif"], "must end in .svg or .png"),
        (["--sweep", "memory=1GiB..2GiB", "--plot", "nowhere/curve.svg"], "a folder that is there and writable"),
        (["--compare", "colour=red"], "what may differ: device, memory, disk, policy"),
        (["--policy", "nothing"], "choose one of: arc, lru, resume_points"),
        (["--memory", "0", "--disk", "1GiB"], "give --memory too"),
        (["--memory", "0GiB", "--disk", "1GiB"], "give --memory too"),
        (["--engines", "1000000"], "--engines"),
        (["--memory", "0", "--sweep", "disk=1GiB..2GiB"], "give --memory too"),
        (["--memory", "90000TiB"], "more than one process can address"),
        (["--sweep", "memory=1GiB..90000TiB:2"], "more than one process can address"),
        (["--placement", "anywhere"], "choose one of round_robin"),
        (["--compare", "placement=anywhere"], "choose one of round_robin"),
        (["--device", "1MiB"], "memory"),
        (["--memory", "much"], "--memory"),
        (["--prefill-rate", "0"], "--prefill-rate must be a number from 1e-06 to 1e+12, not 0.0"),
        (["--prefill-rate", "1e-308"], "--prefill-rate must be a number from 1e-06"),
        (["--step-ms", "nan"], "--step-ms must be a number from 1e-06"),
        (["--price", "memory=1e308"], "'memory=1e308' is not of the form"),
        (["--price", "memory=cheap"], "is not of the form memory=3,disk=0.08,gpu-hour=2.5"),
        (["--price", "memory=3,memory=4"], "'memory=3,memory=4' names memory twice"),
        (["--compare", "policy=lru,policy=arc"], "'policy=lru,policy=arc' names policy twice"),
        (["--speeds", "nothing.json"], "cannot be read"),
        (["--speeds", "nothing.json", "--step-ms", "3"], "leave out --prefill-rate and --step-ms"),
        (["--trace-block", "16"], "blocks of another size"),
    ],
)
def test_what_is_wrong_is_said(octavo, trace, flags, complaint):
    ran = octavo("simulate", trace, "--model", MODEL, *flags)
    assert ran.code == 2
    assert complaint in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("zero", ["0", "0GiB", "0.0 gb"])
def test_no_memory_in_any_unit(octavo, trace, zero):
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "1GiB", "--memory", zero, "--disk", zero, "--json")
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)["results"]
    assert set(result["resumed_tokens"]) <= {"device"}


def test_a_sweep_of_sizes_below_a_mebibyte(octavo, trace):
    flags = ("--device", "1GiB", "--memory", "1GiB", "--sweep", "disk=960KiB..2MiB:3", "--block-size", 16)
    ran = octavo("simulate", trace, "--model", MODEL, *flags)
    assert ran.code == 0, ran.err
    assert "960 KiB" in ran.out


def test_nothing_but_the_report_is_printed_where_there_is_no_terminal(octavo, trace):
    assert octavo("simulate", trace, "--model", MODEL, "--device", "1GiB").err == ""


def test_a_disk_that_no_engine_would_take_is_refused(octavo, trace):
    """In the words of the disk tier, and with a size that it takes."""
    flags = ("simulate", trace, "--model", MODEL, "--device", "1GiB")
    for refused in (("--disk", "1KiB"), ("--sweep", "disk=1KiB..1GiB:2"), ("--compare", "disk=1KiB")):
        ran = octavo(*flags, *refused)
        assert (ran.code, ran.out) == (2, "")
        assert "disk tier: size 1 KiB has no room for 2 segments of 12 MiB; give at least 25 MiB" in ran.err
    assert octavo(*flags, "--disk", "25MiB").code == 0


def test_names_that_are_no_text(octavo, trace, tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    (folder / "config.json").write_bytes(MODEL.read_bytes())
    ran = octavo("simulate", trace, "--model", folder, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["results"][0]["configuration"]["model"].endswith("\N{REPLACEMENT CHARACTER}")
