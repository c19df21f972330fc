"""`OctavoProcess`: a command that serves over HTTP, as a process that can be killed."""

import re
import subprocess
import sys


class OctavoProcess:
    """Ready when it has told its address."""

    def __init__(self, command, *arguments):
        program = [sys.executable, "-c", "from octavo.cli import main; main()"]
        self._process = subprocess.Popen(
            [*program, command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self._process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = found[0]
                break

    @property
    def name(self):
        return self.url.removeprefix("http://")

    def signal(self, number):
        self._process.send_signal(number)

    def close(self):
        self._process.kill()
        self._process.communicate()
