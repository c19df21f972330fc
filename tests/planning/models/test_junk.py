"""Junk in place of any value of a real config: layers or an OctavoError, nothing else."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from octavo.errors import OctavoError
from octavo.planning.models import ModelLayers, layers_from_config
from octavo.planning.models.families import FAMILIES

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
CONFIGS = [json.loads(path.read_text()) for path in sorted(EXAMPLES.glob("*.json"))]
KEYS = sorted({key for config in CONFIGS for key in config} | {k for f in FAMILIES.values() for k in f.defaults})
KEYS += ["per_layer_config", "linear_attn_config", "sliding_window_pattern", "layer_types", "text_config"]

numbers = st.integers(-2, 200) | st.sampled_from([2**31, 10**9, 10**12, 10**30, -(10**30)]) | st.floats()
words = st.sampled_from(["", "auto", "float32", "full_attention", "mamba", "hybrid", "M*-", "llama", "\ud800", "a\nb"])
junk = st.recursive(
    st.none() | st.booleans() | numbers | words | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["0", "03", "head_dim", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_only_octavo_errors_come_out(config, data):
    config = copy.deepcopy(config)
    part = config
    if "text_config" in config and data.draw(st.booleans()):
        part = config["text_config"]
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from([*part, *KEYS]))
        if data.draw(st.booleans()):
            part.pop(key, None)
        else:
            part[key] = data.draw(junk)
    ranks, kv_dtype = data.draw(st.sampled_from([1, 2, 3, 8])), data.draw(st.sampled_from([None, "fp8"]))
    match outcome(config, tensor_parallel_size=ranks, kv_dtype=kv_dtype):
        case str() as message:
            assert "\n" not in message
            message.encode()
        case model:
            assert model.layers
            assert all(spec.page_size_bytes > 0 for spec in model.layers.values())


def outcome(config, **options) -> ModelLayers | str:
    try:
        return layers_from_config(config, **options)
    except OctavoError as error:
        return str(error)
