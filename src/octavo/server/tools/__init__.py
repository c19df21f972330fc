"""Tools: how a model's template writes calls, grammars that enforce them, and calls read from what a model says.

Inside:

    formats                                     the known ways to write a call, and which of them a template uses
    grammar                                     the text of a grammar for calls
    answer_reader                               what readers of answers have in common
    call_reader, object_scanner, pair_scanner   calls within a text that is said
    channel_reader                              answers that are messages with headers
"""

from collections.abc import Mapping

from octavo.server.tools.answer_reader import AnswerReader, CallPiece, End, ReadText, Words, whole_calls
from octavo.server.tools.call_reader import CallReader
from octavo.server.tools.channel_reader import ChannelReader
from octavo.server.tools.formats import FORMATS, ToolFormat, find_format, shows_tools
from octavo.server.tools.grammar import answer_rule, calls_rule
from octavo.server.tools.text_arguments import Schema

__all__ = [
    "FORMATS", "AnswerReader", "CallPiece", "CallReader", "ChannelReader", "End", "ReadText", "ToolFormat", "Words",
    "answer_rule", "calls_rule", "find_format", "make_reader", "shows_tools", "whole_calls",
]  # fmt: skip


def make_reader(
    form: ToolFormat, *, most_calls: int | None, schemas: Mapping[str, Schema], waits: bool = False
) -> AnswerReader:
    """A reader for one choice of an answer in this format."""
    if form.has_channels:
        return ChannelReader(most_calls=most_calls, waits=waits)
    return CallReader(form, most_calls=most_calls, schemas=schemas, waits=waits)
