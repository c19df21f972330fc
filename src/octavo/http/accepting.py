"""`tell_full`: one warning where the process may open no more files, instead of a traceback for each try.

asyncio tries to accept as often as its backlog is long, complains of each failure, and has planned as many retries for
a second later: hundreds of tracebacks a second. A retry that was planned before the socket was closed fails too.
"""

import asyncio
import errno
import logging
import math
from collections.abc import Callable
from typing import Any

_logger = logging.getLogger(__name__)

_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_TELL_EVERY_S = 60.0
_RETRY = "_start_serving"
"""A part of asyncio's complaint of a retry."""


def tell_full(loop: asyncio.AbstractEventLoop, is_ending: Callable[[], bool]) -> None:
    """From now on, for the servers of a loop. Other complaints go where they went before."""
    others = loop.get_exception_handler()
    last_told_s = -math.inf

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_told_s
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in _FULL:
            if loop.time() - last_told_s >= _TELL_EVERY_S:
                last_told_s = loop.time()
                _logger.warning(
                    "new connections wait until others end, as the system gives no more files or memory for them "
                    "(%s): raise the limit of open files (ulimit -n)",
                    error.strerror,
                )
        elif is_ending() and _RETRY in context.get("message", ""):
            pass  # its socket is closed
        elif others is None:
            loop.default_exception_handler(context)
        else:
            others(loop, context)

    loop.set_exception_handler(tell)
