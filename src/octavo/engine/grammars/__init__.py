"""Grammars: what an answer must be, compiled for a model's tokens, and followed while it is sampled."""

from octavo.engine.grammars.compiler import GrammarCompiler, json_grammar, json_rule, regex_grammar
from octavo.engine.grammars.grammar import Grammar, GrammarState

__all__ = ["Grammar", "GrammarCompiler", "GrammarState", "json_grammar", "json_rule", "regex_grammar"]
