"""`octavo serve` as a process: it says where it is, serves, keeps what it computed, and ends when it is asked to."""

import asyncio
import fcntl
import gc
import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import httpx
import pytest
import torch

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

from octavo.cli.commands.serve.engine import announce, build_engine
from octavo.engine import Engine, EngineConfig, SamplingParams, save_tiny_model
from octavo.events import Delivered, SourceConfig, Subscriber, SubscriberConfig
from octavo.server import ServerConfig
from rigs.octavo_process import start_octavo
from rigs.offload_always import offload_always
from rigs.processes import bound
from rigs.running_server import ENDLESS

BODY = {"prompt": "p" * 200, "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-qwen"
    save_tiny_model("qwen3", folder)
    return folder


@contextmanager
def serving(folder, *flags):
    flags += () if folder is None else (folder,)
    process = start_octavo("serve", "--port", "0", "--log-level", "warning", *flags)
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_what_was_computed_is_there_after_a_restart(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    flags = ["--device-memory", "16MiB", "--max-model-len", "512", "--memory", "16MiB"]
    flags += ["--disk", tmp_path / "disk", "--disk-size", "64MiB"]
    with serving(model_folder, *flags) as (process, line):
        assert line.startswith("Serving tiny-qwen: page at http://127.0.0.1:")
        assert line.rstrip().endswith("pool 16 MiB")
        url = line.split()[4]
        answer = httpx.post(f"{url}/v1/completions", json=BODY, timeout=300).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        tiers = httpx.get(f"{url}/state", timeout=300).json()["engine"]["tiers"]
        assert [tier["medium"] for tier in tiers] == ["memory", "disk"]
        metrics = httpx.get(f"{url}/metrics", timeout=300).text
        assert 'octavo_tier_up{medium="disk",model="tiny-qwen"} 1.0' in metrics
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")
    text, cached = asyncio.run(complete_again(model_folder, tmp_path / "disk"))
    assert text == answer["choices"][0]["text"]
    assert cached == {"disk": 192}


def test_a_reset_that_was_answered_holds_although_the_process_is_killed(model_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    flags = ["--device-memory", "16MiB", "--max-model-len", "512", "--memory", "16MiB"]
    flags += ["--disk", tmp_path / "disk", "--disk-size", "64MiB"]
    with serving(model_folder, *flags) as (process, line):
        url = line.split()[4]
        answer = httpx.post(f"{url}/v1/completions", json=BODY, timeout=300).json()
        chunks = 'octavo_tier_chunks{medium="disk",model="tiny-qwen"} '
        while f"{chunks}0.0" in (metrics := httpx.get(f"{url}/metrics", timeout=300).text):
            pass  # each question lets the engine poll its tiers
        assert chunks in metrics
        assert httpx.post(f"{url}/reset_prefix_cache?tiers=true", timeout=300).status_code == 200
        process.kill()
    text, cached = asyncio.run(complete_again(model_folder, tmp_path / "disk"))
    assert text == answer["choices"][0]["text"]
    assert cached == {}


def test_a_tiny_model_needs_no_folder():
    with serving(None, "--tiny", "gemma3", "--device-memory", "16MiB") as (process, line):
        assert line.startswith("Serving tiny-gemma3: page at http://127.0.0.1:")
        answer = httpx.post(f"{line.split()[4]}/v1/completions", json=BODY, timeout=300).json()
        assert answer["usage"]["completion_tokens"] == 4
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")


def test_a_closed_terminal_ends_a_server_as_it_should(tmp_path, monkeypatch, hanging_up):
    """The shell and the kernel both send SIGHUP: it is one request to end, with time for what is open."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    body = {"prompt": "a", "stream": True, **ENDLESS, "max_tokens": 300}
    with serving(None, "--tiny", "gemma3", "--device-memory", "16MiB") as (process, line):
        with httpx.stream("POST", f"{line.split()[4]}/v1/completions", json=body, timeout=300) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGHUP)
            *_, last, done = [line.removeprefix("data: ") for line in lines if line]
        _, errors = process.communicate(timeout=300)
    assert (json.loads(last)["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    assert (process.returncode, errors) == (0, "")
    assert not list(tmp_path.glob("octavo-*"))


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("build_engine", signal.SIGTERM),
        ("build_engine", signal.SIGINT),
        ("build_engine", signal.SIGHUP),
        ("tell_facts", signal.SIGTERM),
        ("tell_facts", signal.SIGHUP),
    ],
)
@pytest.mark.usefixtures("hanging_up")
def test_a_server_that_starts_ends_as_it_should(tmp_path, monkeypatch, place, number):
    """While it loads the model, and when it has said where it is."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = (
        "import signal; from octavo.cli import main; from octavo.cli.commands.serve import engine\n"
        f"def ask(*_, **__): signal.raise_signal({number}); signal.raise_signal({number})\n"
        f"engine.{place} = ask; main()"
    )
    if number != signal.SIGHUP:  # a second one is no second request
        program = program.replace(f"; signal.raise_signal({number})\n", "\n")
    flags = ["serve", "--tiny", "gemma3", "--port", "0", "--device-memory", "16MiB", "--log-level", "warning"]
    command = bound([sys.executable, "-c", program, *flags])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = process.communicate(timeout=300)
    assert (process.returncode, errors, said.startswith("Serving")) == (0, "", place == "tell_facts")
    assert not list(tmp_path.glob("octavo-*"))


def ends_before_torch(*arguments):
    """The text and the code of a command that must end before it has loaded torch."""
    program = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); "
    command = [sys.executable, "-c", f"{program} from octavo.cli import main; main()", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout == "False\n"
    return ended.stderr, ended.returncode


def test_what_is_wrong_without_a_model_is_said_before_torch_is_loaded(tmp_path):
    """Which takes seconds."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        error, code = ends_before_torch("serve", "--tiny", "llama", "--port", port)
    assert (error.splitlines()[0].startswith("octavo: cannot listen on 127.0.0.1 port"), code) == (True, 2)
    for arguments, part in [
        (["serve", tmp_path], "has no config.json"),
        (["serve", "--tiny", "gemma9"], "is not one of bamba"),
        (["demo", "--kind", "windows"], "is not one of 'full attention'"),
    ]:
        error, code = ends_before_torch(*arguments)
        assert (part in error, code) == (True, 2)


@pytest.mark.parametrize(("level", "count"), [("info", 1), ("warning", 0)])
def test_a_server_says_at_once_that_it_starts(level, count):
    program = (
        "import sys; from octavo.cli import main; from octavo.cli.commands.serve import command\n"
        "command.quiet_transformers = sys.exit; main()"
    )
    flags = ["serve", "--tiny", "llama", "--port", "0", "--log-level", level]
    ended = subprocess.run(
        [sys.executable, "-c", program, *flags], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stderr.count("loads torch and transformers") == count


def test_a_server_without_a_hangup_stays(hanging_up):
    hanging_up(signal.SIG_IGN)  # as nohup does
    with serving(None, "--tiny", "gemma3", "--device-memory", "16MiB") as (process, line):
        process.send_signal(signal.SIGHUP)
        assert httpx.get(f"{line.split()[4]}/health", timeout=300).status_code == 200


def test_a_user_without_a_home_is_served(tmp_path, monkeypatch):
    """Only digests of weights are not remembered."""
    monkeypatch.setenv("HOME", "~")  # as good as none: a container's user without a name has no other
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    flags = ["--device-memory", "16MiB", "--memory", "16MiB", "--disk", tmp_path / "disk", "--disk-size", "64MiB"]
    with serving(None, "--tiny", "llama", *flags) as (_, line):
        assert line.startswith("Serving tiny-llama")


def test_a_model_or_a_tiny_one_is_asked_for(octavo, model_folder):
    for arguments in [(), (model_folder, "--tiny", "gemma3")]:
        assert "--tiny FAMILY, one of the two" in octavo("serve", *arguments).err
    unknown = octavo("serve", "--tiny", "gemma9")
    assert unknown.code == 2
    assert "'gemma9' is not one of bamba, deepseek_v3, deepseek_v4" in unknown.err


async def complete_again(folder, disk):
    """With another engine, over the same disk."""
    config = EngineConfig(model=folder, device_memory_bytes=16 << 20, max_model_len=512)
    offload = offload_always({"memory": 16 << 20, "disk": {"path": str(disk), "size": 64 << 20}})
    engine, _ = build_engine(config, offload, quotas={}, model_name="")
    prompt = engine.engine.tokenizer.encode(BODY["prompt"])
    outputs = [output async for output in engine.generate(prompt, SamplingParams(max_tokens=4, temperature=0))]
    await engine.close(0)
    return "".join(output.text for output in outputs), dict(outputs[-1].cached_tokens)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--device-memory", "much"], "--device-memory: 'much' is not a size"),
        (["--memory", "much"], "--memory: 'much' is not a size"),
        (["--disk", "/dev/null/none", "--device-memory", "8MiB"], "/dev/null/none"),
        (["--disk", "cache", "--disk-wait", "soon"], "--disk-wait: 'soon' is not a time; write it like 60s"),
        (["--disk-wait", "60s"], "--disk-wait needs --disk (OCTAVO_DISK, offload.disk.path in a file)"),
        (["--disk", "cache", "--disk-key-file", "/nowhere/key"], "/nowhere/key"),
        (["--policy", "fifo", "--memory", "1GiB"], "resume_points"),
        (["--host", "no such host"], "cannot listen on no such host"),
        (["--host", "192.0.2.1"], "; give an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"),
        (["--max-model-len", "long"], "--max-model-len: 'long' is not a number of tokens"),
        (["--kv-events", "nowhere"], "nowhere"),
        (["--kv-events", "tcp://*:0"], "events contain the prompts"),
        (["--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://0.0.0.0:0"], "events contain the prompts"),
        (["--kv-events-replay", "tcp://127.0.0.1:0"], "--kv-events-replay needs --kv-events"),
        (["--kv-events", "tcp://127.0.0.1:0", "--no-prefix-caching"], "without prefix caching there are no events"),
        (["--hash-seed", ""], "hash_seed must not be empty"),
        (["--api-key", ""], "API key"),
        (["--device-memory", "1KiB"], "memory"),
        (["--dtype", "int3"], "int3"),
        (["--device-memory", "100TiB"], "did not give 100 TiB of device memory"),
        (["--device-memory", "8000000TiB"], "lower device_memory (--device-memory)"),
        (["--device-memory", "9" * 18 + "t"], "is too large; it must be below 8 EiB"),
        (["--policy", "zz"], "policy 'zz' is not known; choose one of: arc, lru, resume_points"),
        (["--max-model-len", "1"], "--max-model-len must be 2 or more"),
        (["--max-model-len", "2.5"], "--max-model-len: '2.5' is not a whole number of tokens"),
        (["--shutdown-timeout", "inf"], "--shutdown-timeout: 'inf' is not a time"),
        (["--shutdown-timeout", "nan"], "--shutdown-timeout"),
    ],
)
def test_bad_flags(octavo, model_folder, flags, complaint):
    ran = octavo("serve", model_folder, "--port", "0", *flags)
    assert ran.code == 2
    *logged, last = ran.err.splitlines()
    assert last.startswith("octavo: ")
    assert complaint in last
    assert not any("octavo: " in line for line in logged)
    assert "Traceback" not in ran.err


def test_a_context_too_short_for_any_resume_is_warned_of(model_folder, capsys):
    for context, warned in ((17, True), (18, False)):  # blocks of 16 tokens, and one more token to compute
        engine = Engine.from_config(
            EngineConfig(model=model_folder, max_model_len=context, device_memory_bytes=1 << 20)
        )
        announce(ServerConfig(model_name="tiny"), "http://here", engine)
        engine.close()
        assert ("no request can ever be resumed" in capsys.readouterr().err) is warned
        assert gc.get_freeze_count() > 10_000, "what was loaded is not looked at while it serves"
        gc.unfreeze()


@pytest.mark.parametrize("part", ["step", "rest"])
def test_an_engine_that_dies_takes_the_process_with_it(model_folder, part):
    """While it computes, or while it has nothing to do."""
    program = (
        "from octavo.cli import main; from octavo.engine import Engine\n"
        f"def {part}(engine): raise MemoryError('all gone')\n"
        f"Engine.{part} = {part}; main()"
    )
    flags = ["serve", model_folder, "--port", "0", "--max-model-len", "512", "--device-memory", "16MiB"]
    command = [sys.executable, "-c", program, *map(str, flags)]
    with subprocess.Popen(bound(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        if part == "step":
            with suppress(httpx.HTTPError):
                answer = httpx.post(f"{line.split()[4]}/v1/completions", json=BODY, timeout=300)
                assert answer.status_code in (500, 503)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors.rstrip().splitlines()[-1].endswith("the engine has died: MemoryError: all gone")


def test_a_folder_that_is_no_model(octavo, tmp_path):
    ran = octavo("serve", tmp_path)
    assert (ran.code, "config.json" in ran.err) == (2, True)


def test_a_port_that_is_taken(octavo, model_folder):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ran = octavo("serve", model_folder, "--port", port)
    assert ran.code == 2
    assert f"port {port}" in ran.err
    assert ran.err.endswith("; give another port, or 0 for a free one\n")


def test_a_port_of_events_that_is_taken_is_told_before_the_model_is_loaded(octavo, model_folder):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        ran = octavo("serve", model_folder, "--port", "0", "--kv-events", endpoint)
    assert (ran.code, f"cannot bind {endpoint}" in ran.err, "loaded in" in ran.err) == (2, True, False)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--memory", "16MiB", "--no-prefix-caching"], "without prefix caching nothing is stored"),
        (
            ["--hash-algorithm", "md5"],
            "--hash-algorithm must be one of: sha256_cbor, sha256_int32, xxh3_128, not 'md5'",
        ),
        (["--record", "/dev/null"], "the recording '/dev/null' is there already, and is no file"),
        (["--record", "/dev/null/r.jsonl"], "the recording '/dev/null/r.jsonl' cannot be made"),
        (["--max-model-len", "5k"], "is more than the 4,096 positions"),
        (["--device", "cuda"], "; install torch's build for this device, or choose the device cpu"),
    ],
)
def test_what_can_be_known_without_weights_is_told_before_they_are_read(octavo, model_folder, flags, complaint):
    if "cuda" in flags and torch.cuda.is_available():
        pytest.skip("this machine has the device: the test needs one without CUDA")
    ran = octavo("serve", model_folder, "--port", "0", *flags)
    assert ran.code == 2
    assert f"loads {model_folder}" not in ran.err
    assert ran.err.splitlines()[-1].startswith("octavo: ")
    assert complaint in ran.err


def test_what_is_wrong_with_a_disk_is_told_before_the_model_is_loaded(octavo, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    disk = tmp_path / "disk"
    serve = ["serve", model, "--port", "0", "--disk", disk]
    (tmp_path / "file").write_text("")
    ran = octavo("serve", model, "--port", "0", "--disk", tmp_path / "file")
    assert (ran.code, f"{tmp_path / 'file'} cannot be used" in ran.err) == (2, True)
    ran = octavo(*serve, "--disk-size", "4096TiB")
    assert "size 4096 TiB is more than the whole file system" in ran.err
    assert "has no *.safetensors" in ran.err, "a server keeps to what there is, and goes on to the model"
    assert {file.name for file in disk.iterdir()} == {"lock"}
    disk.chmod(0o777)
    ran = octavo(*serve)
    assert (ran.code, f"{disk} is not private" in ran.err) == (2, True)
    disk.chmod(0o700)
    (tmp_path / "key").write_text("short")
    ran = octavo(*serve, "--disk-key-file", tmp_path / "key")
    assert (ran.code, "must hold 32 bytes" in ran.err) == (2, True)
    with (disk / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = octavo(*serve)
        assert (ran.code, f"{disk} is in use by" in ran.err) == (2, True)
        assert "is in use by" not in octavo(*serve, "--disk-wait", "60s").err, "it may end while the model loads"


def test_tenants_are_told_apart_by_their_keys(octavo, model_folder, tmp_path):
    keys = tmp_path / "keys.yaml"
    keys.write_text("- {key: sk-a, tenant: a, quota: 64KiB}\n- {key: sk-b, tenant: b}\n")
    ran = octavo("serve", model_folder, "--port", "0", "--tenants", keys)
    assert (ran.code, "chmod 600" in ran.err) == (2, True)
    keys.chmod(0o600)
    ran = octavo("serve", model_folder, "--port", "0", "--tenants", keys, "--api-key", "sk-b")
    assert (ran.code, "entry 2: its key is api_key too" in ran.err, "sk-" in ran.err) == (2, True, False)
    flags = ["--device-memory", "16MiB", "--max-model-len", "512", "--memory", "16MiB", "--tenants", keys]
    with serving(model_folder, *flags) as (_, line), httpx.Client(base_url=line.split()[4], timeout=300) as client:

        def resumed(key, **fields):
            answer = client.post("/v1/completions", json=BODY | fields, headers={"authorization": f"Bearer {key}"})
            if answer.status_code != 200:
                return answer.status_code
            return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert [resumed("sk-a"), resumed("sk-a"), resumed("sk-b"), resumed("sk-b")] == [0, 192, 0, 192]
        assert resumed("sk-a", cache_salt="a") == 192
        assert [resumed("sk-a", cache_salt="b"), resumed("sk-c")] == [400, 401]
        reset = client.post("/reset_prefix_cache", headers={"authorization": "Bearer sk-a"})
        assert (reset.status_code, client.get("/health").status_code) == (403, 200)
        told = client.get("/metrics", headers={"authorization": "Bearer sk-b"}).text
        assert "sk-" not in told


def test_events_are_read_live_and_replayed_where_the_server_says(model_folder):
    flags = ["--device-memory", "16MiB", "--max-model-len", "512"]
    flags += ["--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://127.0.0.1:0"]
    with serving(model_folder, *flags) as (process, line):
        told = process.stdout.readline().split()
        live, replay = (word for word in told if word.startswith("tcp://127.0.0.1:"))
        httpx.post(f"{line.split()[4]}/v1/completions", json=BODY, timeout=300).raise_for_status()
        source = SourceConfig(endpoint=live, replay_endpoint=replay)
        with Subscriber(SubscriberConfig(sources=(source,))) as subscriber:
            first = subscriber.poll(60)
    assert isinstance(first, Delivered)
    assert (first.sequence, first.is_replayed) == (0, True)
