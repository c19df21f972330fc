"""`octavo plan`: its numbers, its JSON and its schema."""

import json
import time
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples" / "models"
SCHEMA = json.loads((ROOT / "docs" / "plan.schema.json").read_text())
GIB = 1 << 30


@pytest.fixture
def planned(octavo):
    def report(*arguments):
        ran = octavo("plan", *arguments, "--json")
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    return report


def test_llama_fills_its_memory(planned):
    """8 KV heads of 128, K and V, 2 bytes, 32 layers: 128 KiB per token."""
    report = planned(MODELS / "llama-3.1-8b.json", "--memory", "32GiB", "--context", "64k")
    (group,) = report["groups"]
    assert group["kind"] == "full_attention"
    assert (group["layers"], group["block_size"], group["page_size_bytes"]) == (32, 16, 16 * 128 * 1024)
    assert group["window_tokens"] is None
    assert (report["sheet_bytes"], report["num_sheets"]) == (2 << 20, 16384)
    assert (report["tokens"], report["requests_at_once"], report["waste_fraction"]) == (4 * 65536, 4, 0)


def test_qwen3_next_keeps_small_blocks_beside_its_state(planned):
    report = planned(MODELS / "qwen3-next-80b.json", "--memory", "40GiB", "--context", "128k", "--compare", "vllm")
    attention, state = report["groups"]
    assert (attention["kind"], attention["layers"], attention["block_size"]) == ("full_attention", 12, 16)
    assert attention["page_size_bytes"] == 16 * 12 * 2 * 2 * 256 * 2
    assert (state["kind"], state["layers"]) == ("mamba", 36)
    assert state["page_size_bytes"] == 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 4)
    assert state["padded_page_bytes"] * state["pages_per_sheet"] == report["sheet_bytes"]
    assert report["sheet_bytes"] * report["num_sheets"] + report["waste"]["remainder"] == 40 * GIB
    assert sum(report["waste"].values()) / (40 * GIB) == report["waste_fraction"] < 0.005
    assert {group["block_size"] for group in report["vllm"]["groups"]} == {1056}
    assert len(report["vllm"]["groups"]) == 4


@pytest.mark.parametrize(("text", "tokens"), [("1.5k", 1536), ("2.0", 2), ("0.5m", 1 << 19)])
def test_contexts_may_be_parts_of_a_unit(planned, text, tokens):
    assert planned(MODELS / "mamba2-2.7b.json", "--context", text)["context"] == tokens


def test_a_context_that_is_not_the_models_is_noted(planned):
    def note_of(name, *flags):
        return [note for note in planned(MODELS / name, *flags)["notes"] if "longest context" in note]

    (beyond,) = note_of("mistral-7b-v0.1.json", "--context", "8k,64k")
    assert beyond.startswith("The config names 32,768 tokens as the longest context;")
    (assumed,) = note_of("mamba2-2.7b.json")
    assert assumed == ("The config names no longest context: 131,072 tokens are assumed; --context says another.")
    assert not note_of("mistral-7b-v0.1.json", "--context", "32k")
    assert not note_of("mistral-7b-v0.1.json")
    assert not note_of("mamba2-2.7b.json", "--context", "1m")


def test_a_context_too_short_for_any_resume_is_said(planned):
    (note,) = planned(MODELS / "llama-3.1-8b.json", "--context", "16")["notes"]
    assert note.startswith("No request can ever be resumed, and every prompt is computed anew: resume points lie 16 ")
    assert planned(MODELS / "llama-3.1-8b.json", "--context", "18")["notes"] == []


def test_gpt_oss_has_windows(planned):
    report = planned(MODELS / "gpt-oss-20b.json")
    full, window = report["groups"]
    assert (full["kind"], full["layers"], full["window_tokens"]) == ("full_attention", 12, None)
    assert (window["kind"], window["layers"], window["window_tokens"]) == ("sliding_window", 12, 128)
    assert full["page_size_bytes"] == window["page_size_bytes"] == 16 * 12 * 2 * 8 * 64 * 2
    assert window["blocks_per_request"] == -(-(127 + 8192) // 16) + 1
    assert not window["grows_with_context"]


def test_ranks_and_types_shrink_pages(planned):
    whole = planned(MODELS / "qwen3-8b.json")["groups"][0]["page_size_bytes"]
    assert planned(MODELS / "qwen3-8b.json", "--tp", "2")["groups"][0]["page_size_bytes"] == whole / 2
    assert planned(MODELS / "qwen3-8b.json", "--kv-dtype", "fp8")["groups"][0]["page_size_bytes"] == whole / 2
    int8 = planned(MODELS / "qwen3-8b.json", "--kv-dtype", "int8")["groups"][0]["page_size_bytes"]
    assert int8 == whole / 2 * (128 + 4) / 128  # a float32 scale beside each vector


def test_a_folder_and_layers_of_ones_own(planned, tmp_path):
    (tmp_path / "config.json").write_text((MODELS / "qwen3-8b.json").read_text())
    assert planned(tmp_path) == planned(MODELS / "qwen3-8b.json")
    kinds = [group["kind"] for group in planned("--layers", ROOT / "examples" / "layers.yaml")["groups"]]
    assert kinds == ["full_attention", "sliding_window", "mamba"]


def test_the_context_shrinks_to_what_fits_unless_it_was_asked_for(planned, octavo):
    report = planned(MODELS / "llama-4-scout.json")
    assert 0 < report["context"] < 10_485_760
    assert any("10,485,760 tokens does not fit" in note for note in report["notes"])
    asked = octavo("plan", MODELS / "llama-4-scout.json", "--context", "10m")
    assert asked.code == 2
    assert f"the longest context that fits is {report['context']:,} tokens" in asked.err


def test_vllms_plan_counts_the_checkpoints_of_mamba_2(planned):
    """249 requests of two states each; vLLM keeps a third for a checkpoint inside a prefill."""
    report = planned(MODELS / "mamba2-2.7b.json", "--compare", "vllm")
    assert report["vllm"]["requests_at_once"] == pytest.approx(report["requests_at_once"] * 2 / 3, rel=0.01)


def test_where_vllm_refuses_the_report_still_comes(planned):
    report = planned(MODELS / "llama-3.1-70b.json", "--compare", "vllm")
    assert report["vllm"] is None
    assert any("No plan of vLLM's to compare with: vLLM needs" in note for note in report["notes"])


def test_memory_beyond_64_bits_of_tokens(planned):
    report = planned(MODELS / "mamba2-2.7b.json", "--memory", "8388607TiB", "--context", str(1 << 40))
    assert report["tokens"] > 1 << 64


def test_all_examples_obey_the_schema_and_read_quickly(planned, octavo):
    files = sorted(MODELS.glob("*.json"))
    start = time.perf_counter()
    for file in files:
        jsonschema.validate(planned(file, "--compare", "vllm"), SCHEMA)
    assert time.perf_counter() - start < 20  # reading and planning take a hundredth of it: this finds a runaway search
    for file in files:
        assert octavo("plan", file, "--compare", "vllm").code == 0


def test_the_schema_names_what_others_rely_on():
    report, group = SCHEMA["$defs"]["PlanReport"], SCHEMA["$defs"]["GroupReport"]
    assert {
        "groups", "sheet_bytes", "num_sheets", "tokens", "requests_at_once", "waste_fraction",
    } <= set(report["required"])  # fmt: skip
    assert {"kind", "layers", "block_size", "page_size_bytes"} <= set(group["required"])
