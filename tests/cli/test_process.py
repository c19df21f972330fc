"""The command as a process: streams that are closed, full or no terminal; start-up."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from octavo import __version__

ROOT = Path(__file__).parents[2]
LLAMA = ROOT / "examples" / "models" / "llama-3.1-8b.json"
OCTAVO = [sys.executable, "-P", "-W", "error", "-c", "from octavo.cli import main; main()"]
"""-P: the installed command does not import from the current folder either."""


def octavo(*arguments, **options):
    return subprocess.run(
        [*OCTAVO, *map(str, arguments)], stderr=subprocess.PIPE, text=True, timeout=300, check=False, **options
    )


def test_version_and_help():
    asked = octavo("--version", stdout=subprocess.PIPE)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, f"octavo {__version__}\n", "")
    for arguments in ([], ["--help"], ["plan", "--help"]):
        asked = octavo(*arguments, stdout=subprocess.PIPE)
        assert (asked.returncode, asked.stderr) == (0, "")
        assert "Usage: octavo" in asked.stdout


def test_the_command_of_an_interpreter():
    for arguments in (["--help"], ["plan", "absent.json"]):
        by_module, by_name = (
            subprocess.run([*start, *arguments], capture_output=True, text=True, timeout=300, check=False)
            for start in ([sys.executable, "-m", "octavo"], OCTAVO)
        )
        assert by_module.returncode == by_name.returncode
        assert (by_module.stdout, by_module.stderr) == (by_name.stdout, by_name.stderr)


def test_bad_input():
    asked = octavo("plan", "absent.json", stdout=subprocess.PIPE)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert asked.stderr == "octavo: absent.json: no such file\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plan", LLAMA, "--json"], 0),
        (["plan", LLAMA], 0),
        (["config", "list"], 0),
        (["--version"], 0),
        (["--help"], 1),
        (["serve", "--help"], 1),
    ],
)
def test_a_reader_that_has_gone(arguments, code):
    """Nothing is said; the code of a page of help is Rich's."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    asked = octavo(*arguments, stdout=write_end)
    os.close(write_end)
    assert (asked.returncode, asked.stderr) == (code, "")


def test_a_command_prints_through_one_function():
    """Which knows what to do when its reader has gone."""
    folder = ROOT / "src" / "octavo"
    sources = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.py")}
    assert {file for file, text in sources.items() if re.search(r"(?<![\w.])print\(", text)} == set()
    writers = {file for file, text in sources.items() if "sys.stdout.write(" in text}
    own = "cli/commands/vllm_check/run.py"  # its reader is `octavo vllm-check` itself
    assert writers == {"cli/output.py", own}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (LLAMA, "cannot write to standard output: No space left on device"),
        ("--help", "[Errno 28] No space left on device"),
    ],
)
def test_a_full_disk(argument, said):
    with Path("/dev/full").open("w") as full:
        asked = octavo("plan", argument, stdout=full)
    assert (asked.returncode, asked.stderr) == (2, f"octavo: {said}\n")


def test_a_folder_that_is_gone(tmp_path):
    """transformers asks where it is as it is imported."""
    gone = tmp_path / "gone"
    gone.mkdir()
    asked = octavo("serve", "--tiny", "gemma3", "--port", 0, cwd=gone, preexec_fn=gone.rmdir)
    assert asked.returncode == 2
    assert asked.stderr.endswith("\noctavo: the current folder is gone: change to one that is there\n")


def test_no_folder_for_temporary_files():
    """As on a full disk. torch asks for one as it is imported."""
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    asked = octavo("serve", "--tiny", "gemma3", "--port", 0, preexec_fn=full)
    assert asked.returncode == 2
    assert asked.stderr.startswith("octavo: No usable temporary directory found in [")
    assert asked.stderr.endswith("name a folder that can be written in TMPDIR\n")


def test_python_without_docstrings():
    """transformers would complain of its own in the middle of a model's weights."""
    asked = octavo("serve", "--tiny", "gemma3", "--port", 0, env={**os.environ, "PYTHONOPTIMIZE": "2"})
    assert asked.returncode == 2
    assert asked.stderr.endswith("leaves out under -OO: start it without, or with -O (PYTHONOPTIMIZE=1)\n")
    assert asked.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_no_file_takes_the_number_of_a_closed_stream(closed, tmp_path):
    """What a library or a child process writes to stderr would go into it."""
    program = (
        "import os, pathlib, sys\n"
        "from octavo.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "null = os.stat(os.devnull)\n"
        f"numbers = {[number for number in range(3) if f'{number}<' in closed or f'{number}>' in closed]}\n"
        "are_null = [os.path.samestat(os.fstat(number), null) for number in numbers]\n"
        "pathlib.Path(sys.argv[2]).write_text(str(all(are_null)))\n"
    )
    told = tmp_path / "told"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program, "plan", told]
    subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert told.read_text() == "True"


@pytest.mark.parametrize("closed", ["1>&-", "2>&-"])
def test_nobody_is_asked_where_an_output_is_closed(closed, tmp_path):
    script = f'exec "$@" {closed}'
    command = ["sh", "-c", script, "sh", *OCTAVO, "store", "delete", f"file://{tmp_path}", "--salt", "x"]
    asked = subprocess.run(command, input="y\n", capture_output=True, text=True, timeout=300, check=False)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert asked.stderr in ("", "octavo: there is no terminal to ask on: give --yes, or leave the outputs open\n")


def test_a_terminal_without_block_characters():
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    asked = octavo("plan", LLAMA, stdout=subprocess.PIPE, env=environment)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.isascii()


@pytest.mark.parametrize("module", ["lazy_loader", "typer"])
def test_an_interrupt_while_modules_are_imported_is_no_traceback(tmp_path, module):
    """The first and the last of those that are not Octavo's own."""
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    asked = octavo("--version", stdout=subprocess.PIPE, env=environment)
    assert (asked.returncode, asked.stdout, asked.stderr) == (130, "", "")


def test_an_interrupt_while_a_class_is_made_is_no_traceback(tmp_path):
    """Python 3.11 makes a RuntimeError of it."""
    (tmp_path / "typer.py").write_text(
        "import signal\n"
        "class Named:\n"
        "    def __set_name__(self, owner, name):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "class Owner:\n"
        "    named = Named()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    asked = octavo("--version", stdout=subprocess.PIPE, env=environment)
    assert (asked.returncode, asked.stdout, asked.stderr) == (130, "", "")


def test_no_source_names_a_character():
    """To compile the name Python imports `unicodedata`, and makes a SyntaxError of an interrupt meanwhile."""
    sources = {file.name: file.read_text() for file in (ROOT / "src" / "octavo").rglob("*.py")}
    assert {name for name, text in sources.items() if "\\N{" in text} == set()


def test_the_command_catches_interrupts_before_it_loads_anything_slow():
    program = "import sys; before = set(sys.modules); from octavo.cli import main; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {name.partition(".")[0] for name in loaded} == {"octavo"}


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], set()),
        (["--help"], set()),
        (["chat", "--help"], set()),
        (["plan", LLAMA], {"octavo.planning", "yaml"}),
        (["cache", "ls", "."], {"octavo.tiers", "numpy"}),
    ],
    ids=lambda value: " ".join(map(str, value[:2])) if isinstance(value, list) else "",
)
def test_a_light_command_does_not_wait_for_what_others_load(arguments, needed, tmp_path):
    rooms = ("engine", "server", "router", "offload", "stores", "host", "blocks", "tiers", "planning")
    slow = {f"octavo.{room}" for room in rooms} | {"numpy", "torch", "transformers", "asyncio", "zmq", "httpx", "yaml"}
    program = "import sys; from octavo.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=True)
    assert slow & set(ran.stderr.split()) == needed


@pytest.mark.parametrize("scheme", ["s3", "redis"])
def test_an_interrupt_ends_a_command_that_a_store_does_not_answer(scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = "{}:{}".format(*silent.getsockname())
        where = [f"redis://{place}"] if scheme == "redis" else ["s3://bucket/prefix", "--endpoint", f"http://{place}"]
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        command = [*OCTAVO, "store", "ls", *where]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **keys}) as asking:
            try:
                connection, _ = silent.accept()
                with connection:
                    assert connection.recv(1), "it waits for the answer"
                    asking.send_signal(signal.SIGINT)
                    assert asking.communicate(timeout=300)[1] == ""
            finally:
                asking.kill()
    assert asking.returncode == 130


def test_an_interrupt_at_the_end_is_no_traceback():
    program = "import atexit, signal; atexit.register(signal.raise_signal, 2); from octavo.cli import main; main()"
    asked = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stderr) == (-signal.SIGINT, "")
