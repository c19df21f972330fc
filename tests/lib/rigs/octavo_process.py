"""`octavo` as a process, and `OctavoProcess`: one that serves over HTTP, and can be killed."""

import re
import subprocess
import sys
from functools import cached_property

from rigs.processes import bound

ENGINE_PACKAGES = ("jinja2", "llguidance", "safetensors", "tokenizers", "torch", "transformers")


def start_octavo(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, python=(), without=()):
    """The command line in a process that does not outlive this one; with further options for Python, and as if the
    packages of `without` were not installed."""
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    command = [sys.executable, *python, "-c", f"import sys; {hidden}from octavo.cli import main; main()", *arguments]
    return subprocess.Popen(bound(command), stdout=stdout, stderr=stderr, text=True)


class OctavoProcess:
    """Ready when it has told its address."""

    def __init__(self, *arguments, without=()):
        self._process = start_octavo(*arguments, stderr=subprocess.DEVNULL, without=without)

    @cached_property
    def url(self):
        for line in self._process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                return found[0]
        raise AssertionError(f"it ended with {self._process.wait()}")

    @property
    def name(self):
        return self.url.removeprefix("http://")

    def signal(self, number):
        self._process.send_signal(number)

    def close(self):
        self._process.kill()
        self._process.communicate()
