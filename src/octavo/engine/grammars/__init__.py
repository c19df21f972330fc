"""Grammars: the form that an answer must have, compiled for a model's tokens and followed while sampling."""

from octavo.engine.grammars.compiler import GrammarCompiler, json_grammar, json_rule, regex_grammar
from octavo.engine.grammars.grammar import Grammar, GrammarState

__all__ = ["Grammar", "GrammarCompiler", "GrammarState", "json_grammar", "json_rule", "regex_grammar"]
