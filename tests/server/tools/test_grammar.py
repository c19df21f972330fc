"""What a grammar lets stand where a format has no quotes around texts."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from octavo.server.tools import FORMATS, calls_rule

PAIRED = [form for form in FORMATS if form.pairs is not None]
SCHEMA = {"properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.mark.parametrize("form", PAIRED, ids=lambda form: form.name)
@given(data=st.data())
def test_a_text_may_be_all_but_its_end(form, data):
    rule = calls_rule(form, {"f": SCHEMA}, json.dumps, is_parallel=False)
    (pattern,) = re.findall(r"(?<= )/(\S+)/(?= )", rule)
    end = form.pairs.end
    pieces = st.sampled_from([*end, "<", "</", end[:-1], end, "\n", "é"])
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    assert bool(re.fullmatch(pattern, text)) == (end not in text)
