"""A client of any server that speaks OpenAI's API: commands that ask one import this late, as httpx takes a while.

Inside, where an arrow leads to what a module calls:

    connection -> answers  the server's address, its key and its models; what servers answer, read within bounds
"""

from octavo.cli.client.answers import events, events_async, read_body_async
from octavo.cli.client.connection import (
    ask,
    base_url_of,
    first_model_of,
    headers_of,
    open_async_client,
    open_client,
    text_of_error,
)

__all__ = [
    "ask",
    "base_url_of",
    "events",
    "events_async",
    "first_model_of",
    "headers_of",
    "open_async_client",
    "open_client",
    "read_body_async",
    "text_of_error",
]
