"""Prints docs/configuration.md: every setting of `octavo serve`, `route`, `epp` and `select`, its names and default."""

import signal
import sys

from octavo.cli import run

INTRODUCTION = """\
# Configuration

`octavo serve`, `octavo route`, `octavo epp` and `octavo select` take each setting from a flag, from a variable of the
environment, or from a YAML file. A flag counts more than a variable, and a variable more than the file:

```yaml
# octavo serve --config serve.yaml
engine:
  model: /models/gemma-3-27b-it
  dtype: auto
  device_memory: 80%
server:
  port: 8000
offload:
  memory: 16GiB
  disk: {path: /var/cache/octavo, size: 200GiB}
```

A router's file has one section, `router`, an endpoint picker's one, `picker`, and a selection service's one, `select`.
A flag that takes a list may be given several times; within one flag or variable, commas part the members of the list.

`octavo config check serve.yaml` says what is wrong with a file; `octavo config show --config serve.yaml` shows what is
in force and where each value comes from. Sizes are written like 8GiB, numbers of tokens like 32k. A flag or a variable
that is a time may have a unit (`30s`, `2m`); in a file the key names it. A text
means the same in all three: `hash_seed: 0123` needs no quotes. Numbers within lists and maps are decimal, or
hexadecimal after `0x`: not 8 for 010 and 90 for 1:30, as YAML 1.1 has them.

`--device-memory 80%` gives the cache 80% of what is free on the device once the weights are loaded: of a GPU's memory,
or of the memory that the system can give without swapping, within a container's limit.

This page is made from the code by `make docs`.
"""


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(INTRODUCTION)
    sys.stdout.flush()
    sys.exit(run(["config", "list"]))
