"""Ports for servers that others start."""

import subprocess
import sys

from rigs.processes import SCRIPTS


def free_port() -> int:
    """A free TCP port of 127.0.0.1 that no outgoing connection takes before a server does, however long that starts."""
    told = subprocess.run([sys.executable, SCRIPTS / "free_port.py"], stdout=subprocess.PIPE, text=True, check=True)
    return int(told.stdout)
