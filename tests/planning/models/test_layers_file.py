"""A person's own list of layers."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from octavo.errors import InputError
from octavo.planning.models import read_layers_file
from octavo.specs import FullAttentionSpec, KVCacheSpecRegistry, MambaSpec, TQFullAttentionSpec, register_kv_cache_spec

EXAMPLE = Path(__file__).parents[3] / "examples" / "layers.yaml"


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        file = tmp_path / "spec.yaml"
        file.write_text(text)
        return read_layers_file(file, **options)

    return read


def test_the_example():
    model = read_layers_file(EXAMPLE, block_size=16)
    assert (model.architecture, model.max_model_len, len(model.layers)) == ("MyHybridForCausalLM", 131072, 68)
    kinds = [spec.kind for spec in model.layers.values()]
    assert kinds == ["full_attention"] * 12 + ["sliding_window"] * 20 + ["mamba"] * 36
    state = model.layers["layers.67.mamba"]
    assert isinstance(state, MambaSpec)
    assert state.page_size_bytes == 2 * 3 * 8192 + 4 * 32 * 128 * 128


def test_block_size_is_a_default(read):
    model = read(
        "layers: [{kind: full_attention, num_kv_heads: 1, head_size: 8},"
        " {kind: full_attention, num_kv_heads: 1, head_size: 8, block_size: 64}]",
        block_size=32,
    )
    assert [spec.block_size for spec in model.layers.values()] == [32, 64]


def test_the_first_class_of_a_kind_wins_and_others_go_by_name(read):
    text = "layers: [{{kind: {}, num_kv_heads: 1, head_size: 8{}}}]"
    (plain,) = read(text.format("full_attention", "")).layers.values()
    (quantised,) = read(text.format("TQFullAttentionSpec", ", slot_bytes: 5")).layers.values()
    assert type(plain) is FullAttentionSpec
    assert type(quantised) is TQFullAttentionSpec


def test_third_party_specs(read):
    with KVCacheSpecRegistry.scoped():

        @register_kv_cache_spec("somewhere:Manager", uniform_type_base_spec=FullAttentionSpec)
        @dataclass(frozen=True, kw_only=True)
        class Mine(FullAttentionSpec):
            kind = "mine"
            label: str
            ratio: float = 1.0

        (spec,) = read("layers: [{kind: mine, num_kv_heads: 1, head_size: 8, label: a, ratio: 2}]").layers.values()
        assert isinstance(spec, Mine)
        with pytest.raises(InputError, match="entry 1: label must be of type str, not 3"):
            read("layers: [{kind: mine, num_kv_heads: 1, head_size: 8, label: 3}]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold keys and values"),
        ("[1]", "must hold keys and values"),
        ("{", "not valid YAML"),
        ("a: &a [*a]\nlayers: []", "unknown key 'a'"),
        ("a: !!timestamp 2001-99-99", "not valid YAML"),
        ("[" * 100_000, "nested too deeply"),
        ("layers: 3", "layers must be a list"),
        ("layers: []", "layers must be a list of at least one entry"),
        ("max_model_len: 3", "layers must be a list"),
        ("layres: []", "unknown key 'layres'; known are architecture"),
        ("layers: [3]", "entry 1: must be keys and values"),
        ("layers: [{}]", "entry 1: kind is missing; known are full_attention, mla_attention"),
        ("layers: [{kind: full}]", "entry 1: unknown kind 'full'; known are full_attention"),
        ("layers: [{kind: [1]}]", "entry 1: unknown kind"),
        ("layers: [{kind: full_attention, num_kv_heads: 1}]", "entry 1: FullAttentionSpec needs head_size"),
        ("layers: [{kind: full_attention, heads: 1}]", "FullAttentionSpec has no field 'heads'; it has block_size"),
        ("layers: [{kind: full_attention, 1: 1}]", "has no field 1"),
        ("layers: [{kind: full_attention, num_kv_heads: one, head_size: 8}]", "num_kv_heads must be a whole number"),
        ("layers: [{kind: full_attention, num_kv_heads: yes, head_size: 8}]", "num_kv_heads must be .* not true"),
        ("layers: [{kind: full_attention, num_kv_heads: 0, head_size: 8}]", "num_kv_heads must be .* 1 or more"),
        ("layers: [{kind: full_attention, num_kv_heads: 1, head_size: 8, dtype: 8}]", "dtype must name a type"),
        ("layers: [{kind: full_attention, num_kv_heads: 1, head_size: 8, dtype: x}]", "dtype: unknown dtype 'x'"),
        ("layers: [{kind: full_attention, count: 0}]", "entry 1: count must be a whole number from 1"),
        ("layers: [{kind: full_attention, num_kv_heads: 1, head_size: 8, count: 10001}]", "more than 10000 layers"),
        ("layers: [{kind: mamba, shapes: 3, dtypes: [bfloat16]}]", "shapes must be a list"),
        ("layers: [{kind: mamba, shapes: [3], dtypes: [bfloat16]}]", r"shapes\[0\] must be a list"),
        ("layers: [{kind: mamba, shapes: [[x]], dtypes: [bfloat16]}]", r"shapes\[0\]\[0\] must be a whole number"),
        ("layers: [{kind: mamba, shapes: [[1]], dtypes: []}]", "1 shapes and 0 dtypes"),
        ("architecture: 3\nlayers: [{kind: mamba, shapes: [[1]], dtypes: [fp32]}]", "architecture must be text"),
        ("max_model_len: -3\nlayers: [{kind: mamba, shapes: [[1]], dtypes: [fp32]}]", "max_model_len must be"),
    ],
)
def test_mistakes(read, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(text)
    assert "spec.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_layers_file(tmp_path / "spec.yaml")
