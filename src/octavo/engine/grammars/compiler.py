"""`GrammarCompiler`: from a grammar's text to a `Grammar` for one model's tokens, by llguidance.

Texts are Lark grammars with llguidance's additions (`%json {...}`), or what `json_grammar` and `regex_grammar` make.
Compiling a large one takes a second or two, too long for the engine's thread.
"""

import json
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from octavo.engine.grammars.grammar import Grammar
from octavo.engine.grammars.one_of import settle_one_of
from octavo.errors import InputError
from octavo.extras import load_package

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from octavo.engine.tokenizer import FastTokenizer

MOST_GRAMMAR_CHARS = 64 << 10
_MOST_KEPT = 64
_LIMITS = {
    "max_lexer_states": 16_000,  # a choice may hold this many, of 1 to 2 KiB each
    "step_lexer_fuel": 100_000,
    "step_max_items": 20_000,  # per token: some 10 ms at most
    "max_items_in_row": 8_000,  # objects of up to 2,000 properties
    "max_grammar_size": 50_000,
    "verbose_errors": False,
}
_BEGINNINGS = ("", '{"')
"""Texts at which a grammar that is too large fails: where its first text, or its first property, may begin."""
_WHITESPACE = r"[ \n\r\t]{1,32}"
"""Whitespace between JSON's tokens. Without a bound, some models write nothing else."""


class GrammarCompiler:
    """Compiles grammars and keeps the latest. Any thread may call it."""

    def __init__(self, tokenizer: "FastTokenizer", vocab_size: int, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = frozenset(eos_token_ids) or _own_eos(tokenizer, vocab_size)
        self._lock = Lock()
        self._tokens: LLTokenizer | None = None
        """Made with the first grammar, as it takes seconds for a large vocabulary."""
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        """Compiled grammars by text, the least recently used first."""

    def find(self, text: str) -> Grammar | None:
        """A grammar that was compiled lately; None for any other."""
        with self._lock:
            grammar = self._kept.get(text)
            if grammar is not None:
                self._kept.move_to_end(text)
        return grammar

    def compile(self, text: str) -> Grammar:
        """Compiles a grammar. Raises InputError for a text that is no grammar, or one that no answer could follow."""
        if len(text) > MOST_GRAMMAR_CHARS:
            raise InputError(
                f"the grammar has {len(text):,} characters, and may have {MOST_GRAMMAR_CHARS:,}; make it smaller"
            )
        grammar = self.find(text)
        if grammar is None:
            with _refusing():
                grammar = self._compile(text)
            with self._lock:
                self._kept[text] = grammar
                if len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return grammar

    def _compile(self, text: str) -> Grammar:
        """It holds no lock, since it may take very long: the library's limits do not bound every grammar."""
        library = _llguidance()
        with self._lock:
            tokens = self._tokens = self._tokens or self._read_tokens()
        start = library.LLMatcher(tokens, text, log_level=0, limits=library.LLParserLimits(**_LIMITS))
        if start.is_error():
            raise InputError(f"the grammar cannot be used: {start.get_error().partition(chr(10))[0]}")
        grammar = Grammar(start, tokens=tokens, vocab_size=self._vocab_size, end_ids=self._eos_token_ids)
        for beginning in _BEGINNINGS:
            state = grammar.begin()
            if not state.try_accept(tokens.tokenize_str(beginning)) or state.is_complete:
                continue
            if not state.compute_allowed():
                raise InputError(f"no text fits the grammar, or it is too large: {state.why_broken or 'nothing fits'}")
        return grammar

    def _read_tokens(self) -> "LLTokenizer":
        from llguidance.hf import from_tokenizer

        own: Any = self._tokenizer  # untyped
        return from_tokenizer(
            own, n_vocab=max(self._vocab_size, len(own)), eos_token=sorted(self._eos_token_ids) or None
        )


def json_grammar(schema: Mapping[str, Any], *, is_strict: bool = True) -> str:
    """A grammar of JSON under a schema. If it is not strict, keywords that cannot be enforced are ignored."""
    return f"start: {json_rule(schema, is_strict=is_strict)}"


def json_rule(schema: Mapping[str, Any], *, is_strict: bool = True) -> str:
    """A rule of a Lark grammar for JSON under a schema. The branches of `oneOf` are parted here: llguidance follows no
    references there, and knows fewer ways to be apart."""
    guidance = {"whitespace_pattern": _WHITESPACE, "coerce_one_of": True, "lenient": not is_strict}
    with _refusing():
        settled = settle_one_of(schema, is_strict=is_strict)
        return f"%json {json.dumps({**settled, 'x-guidance': guidance})}"


def regex_grammar(pattern: str) -> str:
    """A grammar of texts that a regular expression matches as a whole, in JSON Schema's sense."""
    library = _llguidance()
    with _refusing():
        return f"start: /{library.regex_to_lark(pattern, use_ascii='dw')}/"


@contextmanager
def _refusing() -> Iterator[None]:
    """Turns whatever the library raises for a text, even a panic, into InputError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, InputError):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception
        raise InputError(f"the grammar cannot be used: {type(error).__name__}: {error}".partition("\n")[0]) from None


def _llguidance() -> ModuleType:
    return load_package("llguidance", "structured output")


def _own_eos(tokenizer: "FastTokenizer", vocab_size: int) -> frozenset[int]:
    eos = getattr(tokenizer, "eos_token_id", None)
    return frozenset([eos]) if isinstance(eos, int) and eos < vocab_size else frozenset()
