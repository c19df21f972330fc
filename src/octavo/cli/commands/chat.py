"""`octavo chat`: a conversation in the terminal with any server that speaks OpenAI's API."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.exit_codes import FAILED
from octavo.cli.flags import SERVER_URL, ApiKey, ServedModel
from octavo.cli.output import print_error, printable, write_output
from octavo.errors import InputError

if TYPE_CHECKING:
    import httpx

_PROMPT = "> "
_HELP = "/reset forgets the conversation, /quit ends (or Ctrl+D)\n"


def chat(
    url: Annotated[str, typer.Argument(help="Where the server is.")] = SERVER_URL,
    *,
    model: ServedModel = None,
    api_key: ApiKey = None,
    system: Annotated[str | None, typer.Option(help="What the model is told first.", show_default=False)] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.", show_default="the server's")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Of each answer.", min=1, show_default="the server's")] = None,
) -> None:
    """Talk to a served model."""
    if temperature is not None and not math.isfinite(temperature):
        raise InputError(f"--temperature must be a number, not {temperature}")
    from octavo.cli.client import base_url_of, first_model_of, headers_of, open_client

    with open_client(base_url_of(url), headers_of(api_key)) as client:
        name = model or first_model_of(client)
        wishes = {"temperature": temperature, "max_tokens": max_tokens}
        conversation = Conversation(client, name, system, {k: v for k, v in wishes.items() if v is not None})
        write_output(f"{name} at {base_url_of(url)}. {_HELP}")
        are_answered = talk(conversation, _ask)
    if not are_answered and not sys.stdin.isatty():  # a script reads no error, but the status
        raise typer.Exit(FAILED)


class Conversation:
    """The messages so far, and the server."""

    def __init__(self, client: "httpx.Client", model: str, system: str | None, wishes: dict[str, Any]) -> None:
        self._client = client
        self._fixed = {"model": model, "stream": True, "stream_options": {"include_usage": True}, **wishes}
        self._most_tokens = wishes.get("max_tokens")
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict[str, str]] = [*self._system]
        self.resumed = ""
        """How much of the last prompt was resumed, as the server tells it; empty if it does not."""

    def reset(self) -> None:
        """Forgets all messages but the first instructions."""
        self.messages = [*self._system]

    def say(self, text: str) -> Iterator[str]:
        """Yields the answer piece by piece. A failed turn is forgotten; one that is cut short is kept so far."""
        import httpx

        from octavo.cli.client import events, text_of_error

        turn = [*self.messages, {"role": "user", "content": text}]
        answer: list[str] = []
        self.resumed = ""
        try:
            with self._client.stream(
                "POST", "/v1/chat/completions", json={**self._fixed, "messages": turn}
            ) as response:
                for message in events(response, most_tokens=self._most_tokens):
                    self.resumed = _resumed_in(message) or self.resumed
                    if piece := _text_of(message):
                        answer.append(piece)
                        yield piece
        except InputError as error:
            if response.status_code == HTTPStatus.BAD_REQUEST and len(self.messages) > len(self._system):
                raise InputError(f"{error}; /reset begins a new conversation") from None
            raise
        except httpx.HTTPError as error:
            raise InputError(f"the connection broke: {text_of_error(error)}") from None
        except (KeyboardInterrupt, GeneratorExit):
            self._remember(turn, answer)
            raise
        self._remember(turn, answer)

    def _remember(self, turn: list[dict[str, str]], answer: list[str]) -> None:
        self.messages = [*turn, {"role": "assistant", "content": "".join(answer)}]


def talk(conversation: Conversation, ask: Callable[[], str | None]) -> bool:
    """Takes turn after turn, until the user ends it. Whether all were answered."""
    are_answered = True
    while (line := ask()) is not None:
        match line.strip():
            case "":
                continue
            case "/quit" | "/exit":
                break
            case "/reset":
                conversation.reset()
                write_output("(a new conversation)\n")
            case text if text.startswith("/"):
                write_output(_HELP)
            case text:
                are_answered &= _answer(conversation, text)
    return are_answered


def _answer(conversation: Conversation, text: str) -> bool:
    """Whether the server answered, or the user cut it short."""
    has_failed = False
    try:
        for piece in conversation.say(text):
            write_output(printable(piece))
    except InputError as error:
        print_error(str(error))
        has_failed = True
    except KeyboardInterrupt:
        pass
    write_output("\n")
    if conversation.resumed:
        write_output(f"({conversation.resumed})\n")
    return not has_failed


def _ask() -> str | None:
    with suppress(ImportError):
        import readline  # noqa: F401 - makes input lines editable
    try:
        line = input(_PROMPT)
    except EOFError:
        write_output("\n")
        return None
    return line.encode(errors="surrogateescape").decode(errors="replace")  # a file's lines may be any bytes


def _resumed_in(message: dict[str, Any]) -> str:
    """How much of the prompt was resumed, by the server's message; empty if nothing."""
    try:
        usage = message["usage"]
        prompt, resumed = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    except (LookupError, TypeError):
        return ""
    is_number = isinstance(prompt, int) and isinstance(resumed, int)
    return f"{resumed:,} of {prompt:,} prompt tokens resumed" if is_number else ""


def _text_of(message: dict[str, Any]) -> str:
    """The text in a server's message, which may hold anything."""
    try:
        text = message["choices"][0]["delta"].get("content")
    except (LookupError, TypeError, AttributeError):
        return ""
    return text if isinstance(text, str) else ""
