"""Answers follow their grammar, whatever the model would say: on hits, next to others, and after a preemption."""

import json
import re

import jsonschema
import pytest

from octavo.engine import Engine, EngineConfig, SamplingParams, json_grammar, offload_maker, regex_grammar
from octavo.engine.grammars import GrammarState
from octavo.engine.grammars.compiler import MOST_GRAMMAR_CHARS
from octavo.engine.outputs import FinishReason
from octavo.engine.tiny_models import save_tiny_model
from octavo.errors import InputError
from rigs.offload_always import offload_always
from rigs.spaced_words import save_spaced_words

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["sheet", "page"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 9999},
    },
    "required": ["name", "kind", "size"],
    "additionalProperties": False,
}
PROMPTS = [[5 + i, *range(10, 60)] for i in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid")
    save_tiny_model("gemma3", folder)
    return folder


def make_engine(folder, *, offload=None, **options):
    defaults = {"device_memory_bytes": 8 << 20, "max_model_len": 768, "max_num_seqs": 16}
    config = EngineConfig(model=folder, **{**defaults, **options})
    hooks = None if offload is None else offload_maker(config, offload_always(offload))
    return Engine.from_config(config, make_offload=hooks)


@pytest.fixture(scope="module")
def engine(folder):
    engine = make_engine(folder)
    yield engine
    engine.close()


def answer(engine, requests):
    """(text, tokens, reason, error) by request and choice, of requests that come all at once."""
    texts, tokens, ends = {}, {}, {}
    for number, (prompt, params) in enumerate(requests):
        engine.add_request(str(number), prompt, params)
    while engine.has_unfinished:
        for output in engine.step():
            key = int(output.request_id), output.index
            texts[key] = texts.get(key, "") + output.text
            tokens[key] = (*tokens.get(key, ()), *output.token_ids)
            ends[key] = output.finish_reason, output.error
    return [(texts[key], tokens[key], *ends[key]) for key in sorted(texts)]


def guided(engine, text, **options):
    return SamplingParams(**{"max_tokens": 500, "temperature": 0, **options}, grammar=engine.grammars.compile(text))


def test_json_by_a_schema(engine):
    greedy = guided(engine, json_grammar(SCHEMA))
    drawn = guided(engine, json_grammar(SCHEMA), temperature=1.0, seed=7, n=3)
    for text, _, reason, _ in answer(
        engine, [(prompt, params) for prompt in PROMPTS[:2] for params in (greedy, drawn)]
    ):
        assert reason is FinishReason.STOP
        jsonschema.validate(json.loads(text), SCHEMA)


def test_a_grammar_ends_the_text_without_a_token_more(engine):
    ((text, tokens, reason, _),) = answer(engine, [([9], guided(engine, regex_grammar("(yes|no), sir")))])
    assert text in ("yes, sir", "no, sir")
    assert (len(tokens), reason) == (len(text), FinishReason.STOP)


def test_a_text_that_may_end_or_go_on(engine):
    """It ends with the tokenizer's own end, which is no part of it."""
    params = guided(engine, regex_grammar("[0-9]{1,200}"), temperature=2.0, seed=3, max_tokens=400)
    ((text, tokens, reason, _),) = answer(engine, [([9], params)])
    assert reason is FinishReason.STOP
    assert re.fullmatch("[0-9]{1,200}", text)
    assert len(tokens) == len(text) + (len(text) < 200)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_an_end_token_that_is_text_ends_only_where_the_grammar_may(tmp_path, ignore_eos):
    """A model's end may be a token like any other. Before a text is whole it is a part of it."""
    end = 67
    save_tiny_model("gemma3", tmp_path, eos_token_id=[2, end])
    engine = make_engine(tmp_path)
    assert (engine.eos_token_ids, engine.tokenizer.decode([end])) == ({2, end}, "a")
    for pattern in ("ba{3}c", "ba", "(ba){1,9}", "b[a-c]{2,40}"):
        wishes = [
            guided(engine, regex_grammar(pattern), seed=i, temperature=1.0, ignore_eos=ignore_eos) for i in range(9)
        ]
        for text, tokens, reason, _ in answer(engine, [([9], params) for params in wishes]):
            assert reason is FinishReason.STOP
            assert re.fullmatch(pattern, text), (pattern, text)
            assert len(tokens) - len(text) in (0, tokens[-1] in (2, end))
    engine.close()


def test_a_text_keeps_its_first_space(tmp_path):
    """SentencePiece's decoders drop it, as they take each text for a whole one."""
    save_tiny_model("gemma3", tmp_path)
    save_spaced_words(tmp_path)
    engine = make_engine(tmp_path)
    for pattern in (" yes", " {1,2}[ab]{3}", " ?a", "[ é€]{3}a?"):
        wishes = [guided(engine, regex_grammar(pattern), seed=i, temperature=1.0) for i in range(9)]
        for text, _, reason, _ in answer(engine, [([9], params) for params in wishes]):
            assert reason is FinishReason.STOP
            assert re.fullmatch(pattern, text), (pattern, text)
    engine.close()


def test_neighbours_are_left_alone(engine):
    plain = SamplingParams(max_tokens=20, temperature=0, logprobs=0)
    drawn = SamplingParams(max_tokens=20, temperature=1.0, seed=11, presence_penalty=0.5)
    alone = [answer(engine, [(PROMPTS[0], params)])[0] for params in (plain, drawn)]
    together = answer(
        engine, [(PROMPTS[0], plain), (PROMPTS[1], guided(engine, json_grammar(SCHEMA))), (PROMPTS[0], drawn)]
    )
    assert [together[0], together[2]] == alone


def test_caches_and_preemptions_change_nothing(folder, tmp_path):
    """Computed anew, resumed from the device, after preemptions in a tight pool, and from a disk."""
    text = regex_grammar("[a-z]{20}(-[0-9]{3}){4} (yes|no)")
    tight = {"device_memory_bytes": 176 << 10, "max_model_len": 128, "max_step_tokens": 64}
    disk = {"memory": "1MiB", "tiers": [{"type": "disk", "path": str(tmp_path), "size": "64MiB"}]}
    rooms = [({"enable_prefix_caching": False}, None), ({}, None), (tight, disk), (tight, disk)]
    seen = []
    for options, offload in rooms:
        engine = make_engine(folder, offload=offload, **options)
        wishes = [guided(engine, text, temperature=heat, seed=5, max_tokens=60) for heat in (0, 1.0)]
        requests = [(prompt[:17], params) for prompt in PROMPTS for params in wishes]
        seen += [answer(engine, requests) for _ in range(2)]
        assert options is not tight or engine.counters.preemptions > 0
        engine.close()
    assert all(answers == seen[0] for answers in seen)


DEAD_END = 'start: /aa/ %json {"$ref": "#"}'
"""No text fits, and that is found out only after two letters."""


def test_a_grammar_that_runs_into_nothing_ends_its_own_choices(engine):
    (*ended, (text, *_)) = answer(
        engine, [([9], guided(engine, DEAD_END, n=2)), ([9], guided(engine, regex_grammar("ok")))]
    )
    for said, _, reason, error in ended:
        assert (said, reason) == ("aa", FinishReason.DEAD_END)
        assert "grammar" in error
    assert text == "ok"


class Stumbling:
    """A matcher that goes along for some calls, and then raises at each."""

    def __init__(self, matcher, num_calls, error):
        self.matcher, self.num_calls, self.error = matcher, num_calls, error

    def __getattr__(self, name):
        if name in ("get_error", "is_stopped"):
            return getattr(self.matcher, name)
        self.num_calls -= 1
        if self.num_calls < 0:
            raise self.error
        return getattr(self.matcher, name)


class Panic(BaseException):
    """As Rust's come to Python."""


@pytest.mark.parametrize("num_calls", range(5))
@pytest.mark.parametrize("error", [ValueError("odd\nmore"), Panic("unreachable")], ids=type)
def test_a_library_that_raises_ends_one_choice_alone(engine, num_calls, error, monkeypatch):
    """At whichever call: the engine and the neighbours go on."""
    params = guided(engine, regex_grammar("[ab]{9}"))
    ((alone, *_),) = answer(engine, [([9], params)])
    with monkeypatch.context() as patch:
        begin = lambda matcher, grammar: GrammarState(Stumbling(matcher, num_calls, error), grammar)  # noqa: E731
        patch.setattr("octavo.engine.grammars.grammar.GrammarState", begin)
        engine.add_request("0", [9], params)
    engine.add_request("1", [9], params)
    texts, ends = {"0": "", "1": ""}, {}
    while engine.has_unfinished:
        for output in engine.step():
            texts[output.request_id] += output.text
            ends[output.request_id] = output.finish_reason, output.error
    assert ends["1"] == (FinishReason.STOP, None)
    reason, message = ends["0"]
    assert reason is FinishReason.DEAD_END
    assert message == f"the grammar cannot be followed: {type(error).__name__}: {error.args[0].partition(chr(10))[0]}"
    assert texts["1"] == alone
    assert alone.startswith(texts["0"])
    assert engine.counters.failed_steps == 0


def test_what_cannot_be_written_is_no_grammar():
    nested = {}
    for _ in range(100_000):
        nested = {"not": nested}
    with pytest.raises(InputError, match="RecursionError"):
        json_grammar(nested)
    with pytest.raises(InputError, match="UnicodeEncodeError"):
        regex_grammar("\ud800")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start: (", "cannot be used"),
        (json_grammar({"type": "objekt"}), "objekt"),
        (json_grammar({"$ref": "#"}), "no text fits"),
        (json_grammar({"$ref": "https://example.org/schema"}), "cannot be used"),
        (json_grammar({"type": "string", "minLength": 5, "maxLength": 2}), "minLength"),
        (json_grammar({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (json_grammar({"type": "string", "pattern": "(a+)+$("}), "unclosed|cannot be used"),
        (json_grammar({"enum": ["x" * MOST_GRAMMAR_CHARS]}), "characters"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_grammar(engine, text, message):
    with pytest.raises(InputError, match=message):
        engine.grammars.compile(text)


@pytest.mark.parametrize("pattern", ["..", r"[^\[\]]{2}", r"\{\"", r"(\{\")?", ""])
def test_a_text_that_is_as_short_as_what_is_tried_is_a_grammar(engine, pattern):
    ((text, _, reason, _),) = answer(engine, [([9], guided(engine, regex_grammar(pattern), temperature=1.0, seed=1))])
    assert reason is FinishReason.STOP
    assert re.fullmatch(pattern, text)


def test_recursive_schemas_are_grammars(engine):
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "leaf": {"type": "null"}}}
    engine.grammars.compile(json_grammar(tree))


def test_a_grammar_is_compiled_once(engine):
    one = engine.grammars.compile(json_grammar(SCHEMA))
    assert engine.grammars.compile(json_grammar(SCHEMA)) is one
    for number in range(100):
        engine.grammars.compile(regex_grammar(f"a{number}"))
    assert engine.grammars.compile(json_grammar(SCHEMA)) is not one


def test_odd_wishes(engine, folder):
    grammar = engine.grammars.compile("start: /a+/")
    with pytest.raises(InputError, match="min_tokens"):
        SamplingParams(grammar=grammar, min_tokens=3)
    grammar.vocab_size -= 1
    with pytest.raises(InputError, match="another model"):
        engine.add_request("r", [5], SamplingParams(grammar=grammar))
    grammar.vocab_size += 1
