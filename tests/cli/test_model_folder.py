"""Models by name: from the hub's local cache, without a network."""

import json
import shutil
from pathlib import Path

import pytest

from octavo.cli import run
from octavo.cli.model_folder import find_model, hub_cache
from octavo.errors import InputError

CONFIG = Path(__file__).parents[2] / "examples" / "models" / "gemma-3-27b.json"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The hub's cache, with one model of which only the config was downloaded."""
    for name in ("HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    model = tmp_path / "hub" / "models--google--gemma-3-27b"
    snapshot = model / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    shutil.copy(CONFIG, snapshot / "config.json")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0123abcd")
    return snapshot


def test_a_name_is_found_in_the_cache(cached):
    assert find_model("google/gemma-3-27b") == cached


def test_a_path_comes_before_a_name(cached, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "google" / "gemma-3-27b").mkdir(parents=True)
    assert find_model("google/gemma-3-27b") == Path("google/gemma-3-27b")
    assert find_model("models/none.json") == Path("models/none.json")


def test_a_trace_is_simulated_for_a_name(octavo, cached, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [0]}))
    ran = octavo("simulate", trace, "--model", "google/gemma-3-27b", "--json")
    assert ran.code == 0, ran.err
    ran = octavo("simulate", trace, "--model", "google/gemma-4")
    assert (ran.code, "hf download google/gemma-4 config.json" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "damage", [lambda s: (s / "config.json").unlink(), lambda s: shutil.rmtree(s.parents[1] / "refs")]
)
def test_what_is_not_there_names_the_command_that_gets_it(cached, damage):
    damage(cached)
    with pytest.raises(InputError, match=r"hub; get it with: hf download google/gemma-3-27b config.json$"):
        find_model("google/gemma-3-27b", files="config.json")


@pytest.mark.parametrize(
    ("variables", "cache"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "~no.such.user"}, "~no.such.user/hub"),
    ],
)
def test_the_cache_lies_where_the_hubs_tools_put_it(monkeypatch, variables, cache):
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_cache() == Path(cache)


def test_plan_takes_a_name(cached, capsys):
    assert run(["plan", "google/gemma-3-27b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "Gemma3ForConditionalGeneration"
    assert run(["plan", "google/none"]) == 2
    assert "hf download google/none config.json" in capsys.readouterr().err


def test_serve_says_how_to_get_a_model(cached, capsys):
    assert run(["serve", "google/none"]) == 2
    assert "hf download google/none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "it is not there; give a folder, or a name of the hub"),
        ("model.gguf", "it is a file; give the folder that has config.json and *.safetensors"),
        (".", "it has no config.json"),
    ],
)
def test_serve_says_why_something_is_no_model(tmp_path, monkeypatch, capsys, name, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").touch()
    assert run(["serve", name]) == 2
    assert f"octavo: {name} is not a model's folder: {why}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_tiny_model_that_cannot_be_written(tmp_path, name):
    """Each of its writers fails with an error of its own."""
    pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")
    from octavo.engine import save_tiny_model

    (tmp_path / name / "taken").mkdir(parents=True)
    with pytest.raises(InputError, match=f"cannot write a tiny model to {tmp_path}: .*; make room there"):
        save_tiny_model("gemma3", tmp_path)
