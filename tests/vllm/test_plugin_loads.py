"""What the plug-in loads is what vLLM's own prefix hits have: from memory, from disk, and in the next process."""

import json
import shutil
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm_environment  # noqa: F401 - before vLLM
from plugin_process import (
    add_format,
    among_others,
    leftovers,
    make_adapter,
    make_image_model,
    make_model,
    other_offloading,
    play,
    transfer_config,
)
from vllm.v1.kv_offload.base import OffloadingWorker

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

MEMORY = {
    "llama": "3MiB",
    "circular": "3MiB",
    "gemma3": "2MiB",
    "gemma4": "3MiB",
    "gpt_oss": "2.5MiB",
    "llama4": "2.5MiB",
    "qwen3_next": "12MiB",
    "qwen3_5": "14MiB",
    "lfm2": "3MiB",
    "deepseek_v2": "14MiB",
}
"""Room for the prompts, and for little more."""
LACKING = {
    "deepseek_v2": ""
    if torch.cpu._is_amx_tile_supported()
    else "vLLM turns prefix caching off with MLA on a CPU without AMX",
}
NUM_HIT, NUM_HIT_OF_TURN = 512, 640
LONGEST_BLOCK = {"gemma4": 256}
"""Tokens of the longest block, where it is longer than 128."""


class Served:
    """A model that an engine has served, and what it said."""

    def __init__(self, family: str, folder: Path) -> None:
        self.model = make_model(family, folder / "model")
        self.transfer = transfer_config(
            memory=MEMORY[family], disk=str(folder / "disk"), disk_size="256MiB", digests=str(folder)
        )
        self.seen = play("loads", model=self.model, transfer=self.transfer)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served("llama", tmp_path_factory.mktemp("llama"))


_ON_EVERY_VLLM = ("gemma3", "qwen3_next")
FAMILIES = [
    pytest.param(family, marks=[pytest.mark.every_vllm] if family in _ON_EVERY_VLLM else []) for family in MEMORY
]


@pytest.mark.parametrize("family", FAMILIES)
def test_loads_are_what_vllm_has(family: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if reason := LACKING.get(family):
        pytest.skip(reason)
    served = request.getfixturevalue("llama") if family == "llama" else Served(family, tmp_path)
    seen = served.seen
    answers, cached = seen["local"]
    assert seen["first_cached"] == [0] * len(answers)
    assert cached == [NUM_HIT] * len(answers)
    assert seen["memory"] == seen["local"]
    assert seen["turn_memory"] == seen["turn_local"]
    num_hit_of_turn = NUM_HIT_OF_TURN - NUM_HIT_OF_TURN % LONGEST_BLOCK.get(family, 128)
    assert seen["turn_memory"][1] == [num_hit_of_turn] * len(answers)
    assert seen["promoted"] > 0
    assert seen["disk"] == seen["local"]
    assert_zeros_are_wrong(seen)

    again = play("again", model=served.model, transfer=served.transfer)
    assert again["prompts"] == seen["prompts"]
    assert again["disk"] == seen["local"]
    assert again["counters"]["promoted"] >= again["counters"]["loaded"] > 0


@pytest.mark.parametrize("family", ["gemma3", "qwen3_next"])
def test_loads_by_the_worker_of_a_gpu_are_what_vllm_has(family: str, tmp_path: Path) -> None:
    transfer = transfer_config(memory="16MiB", disk=str(tmp_path / "disk"), disk_size="256MiB", digests=str(tmp_path))
    seen = play("staged", model=make_model(family, tmp_path / "model"), transfer=transfer)
    assert seen["memory"] == seen["disk"] == seen["local"]
    assert seen["local"][1] == [NUM_HIT] * len(seen["prompts"])
    assert_zeros_are_wrong(seen)


@pytest.mark.parametrize(("family", "second"), [("gemma3", 0), ("gpt_oss", NUM_HIT), ("qwen3_next", NUM_HIT)])
def test_where_the_second_leaves_a_stored_prompt_the_third_resumes(family: str, second: int, tmp_path: Path) -> None:
    """vLLM sees such a branch on the device only. Where windows and states are light, the second resumes too: at a
    point before the first one's end."""
    seen = play("branches", model=make_model(family, tmp_path / "model"), transfer=transfer_config(memory="32MiB"))
    assert seen["memory"][1] == [0, second, NUM_HIT]
    assert seen["local"][1] == [0, second, NUM_HIT]
    assert seen["memory"][0][2] == seen["local"][0][2]


def test_a_second_question_about_a_new_document_resumes_before_the_end_of_the_first(tmp_path: Path) -> None:
    """The third document resumes where the others left the beginning, and keeps a point of its own."""
    seen = play("documents", model=make_model("gpt_oss", tmp_path / "model"), transfer=transfer_config(memory="32MiB"))
    assert seen["cached"] == [0, 0, 256, 1152]
    assert seen["last"] == seen["computed"]


@pytest.mark.every_vllm
def test_what_lies_below_is_told_anew_after_a_clear_of_the_device(tmp_path: Path) -> None:
    """Whoever follows vLLM's events takes the clear for one of everything. The plug-in finds it in vLLM's own frame."""
    transfer = transfer_config(memory="16MiB", disk=str(tmp_path / "disk"), disk_size="64MiB", digests=str(tmp_path))
    seen = play("cleared", model=make_model("gemma3", tmp_path / "model"), transfer=transfer)
    assert seen["stored"].keys() == {"CPU", "STORAGE"}
    assert (seen["clears"], seen["told_anew"]) == (1, seen["stored"])


@pytest.mark.every_vllm
def test_the_group_with_the_drafts_is_known(tmp_path: Path) -> None:
    seen = play("drafts", model=make_model("qwen3_next", tmp_path / "model"), transfer=transfer_config(memory="32MiB"))
    assert seen["kinds"] == ["full_attention"]


def test_a_client_who_limits_what_is_stored_ends_no_engine(tmp_path: Path) -> None:
    """vLLM stores the tail of a prompt beside states, and asserts that no limit lies before it."""
    limits = [0, 100, 500, 600]
    seen = play(
        "limited",
        model=make_model("qwen3_next", tmp_path / "model"),
        transfer=transfer_config("OctavoConnector", memory="32MiB"),
        limits=limits,
        prefix_match_unit=16,
    )
    assert all(found <= limit for found, limit in zip(seen["found"], limits, strict=True))
    assert seen["found"][0] == 0 < seen["found"][-1]


@pytest.mark.every_vllm
def test_loads_within_a_step_are_what_vllm_has(tmp_path: Path) -> None:
    """Not of recurrent state: this vLLM takes the state that a step begins with before the step's loads."""
    transfer = transfer_config(
        memory="16MiB",
        disk=str(tmp_path / "disk"),
        disk_size="256MiB",
        digests=str(tmp_path),
        sync_load_budget_bytes=1 << 30,
    )
    model = make_model("gemma3", tmp_path / "model")
    if "expedited" not in signature(OffloadingWorker.submit_load).parameters:
        (said,) = play("refused", model=model, transfers=[transfer])["said"]
        assert "sync_load_budget_bytes needs vLLM 0.33" in said
        return
    seen = play("ranks", model=model, transfer=transfer)
    assert seen["memory"] == seen["disk"] == seen["local"]
    assert seen["local"][1] == [NUM_HIT] * len(seen["prompts"])
    assert_zeros_are_wrong(seen)
    (said,) = play("refused", model=make_model("qwen3_next", tmp_path / "state"), transfers=[transfer])["said"]
    assert "recurrent state" in said


@pytest.mark.parametrize("family", ["gemma3", "qwen3_next"])
def test_bits_that_flip_in_memory_reach_no_answer(family: str, tmp_path: Path) -> None:
    transfer = transfer_config("OctavoConnector", memory="16MiB")
    seen = play("flips", model=make_model(family, tmp_path / "model"), transfer=transfer)
    assert seen["memory"] == seen["local"]
    assert seen["flipped"][0] == seen["local"][0]
    assert seen["load_failed"] > 0


def test_one_of_several_connectors_has_its_own_kind_and_role(tmp_path: Path) -> None:
    model, transfer = make_model("gemma3", tmp_path / "model"), transfer_config("OctavoConnector", memory="16MiB")
    seen = play("flips", model=model, transfer=among_others(transfer))
    assert seen["flipped"][0] == seen["local"][0]
    assert seen["load_failed"] > 0
    consumer = play("again", model=model, transfer=among_others(transfer | {"kv_role": "kv_consumer"}))
    assert consumer["counters"]["stored"] == 0


def test_several_connectors_may_have_octavo_once(llama: Served) -> None:
    transfer = transfer_config(memory="8MiB")
    twice, within = among_others(transfer), among_others(among_others(transfer))
    twice["kv_connector_extra_config"]["connectors"] *= 2
    seen = play("refused", model=llama.model, transfers=[twice], transfer=within)
    assert "MultiConnector has Octavo 2 times" in seen["said"][0]
    assert seen["memory"] == seen["local"]
    assert seen["memory"][1] == [NUM_HIT, NUM_HIT]


@pytest.mark.every_vllm
def test_a_connector_that_hides_octavo_is_refused(llama: Served) -> None:
    hidden = transfer_config(memory="8MiB") | {
        "kv_connector": "AroundOffloading",
        "kv_connector_module_path": "other_offloading",
    }
    (said,) = play("refused", model=llama.model, transfers=[hidden])["said"]
    assert said.startswith("InputError: AroundOffloading has Octavo somewhere inside")


@pytest.mark.every_vllm
@pytest.mark.parametrize("is_last", [False, True])
def test_another_offloading_connector_may_stand_beside(is_last: bool, llama: Served) -> None:
    transfer = among_others(transfer_config("OctavoConnector", memory="8MiB"), other_offloading(), is_last=is_last)
    seen = play("beside", model=llama.model, transfer=transfer)
    assert seen["memory"] == seen["local"]
    assert seen["memory"][1] == [NUM_HIT] * len(seen["prompts"])
    assert {"octavo_tier_events", "other_requests", "vllm:kv_offload_load_bytes"} <= set(seen["metrics"])


def test_beside_another_offloading_connector_ours_has_a_name_of_its_own(llama: Served) -> None:
    """vLLM has the metrics of one spec for each class of connectors, and ends when another's come."""
    transfers = [
        among_others(transfer_config(memory="8MiB"), other_offloading(), is_last=last) for last in (True, False)
    ]
    seen = play("refused", model=llama.model, transfers=transfers)
    assert len(seen["said"]) == 2
    assert all('"kv_connector": "OctavoConnector"' in said for said in seen["said"])


def test_what_a_session_stores_is_what_its_tokens_have(llama: Served) -> None:
    seen = play("session", model=llama.model, transfer=transfer_config(memory="16MiB"))
    assert seen["after"][0] == seen["right"][0]
    assert seen["after"][1] == [256]  # the first part of 300


def test_two_ranks_share_what_they_store_and_what_one_has_stored(llama: Served) -> None:
    ranks = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    seen = play("ranks", model=llama.model, transfer=llama.transfer, **ranks)
    assert seen["prompts"] == llama.seen["prompts"]
    assert seen["first_cached"] == [NUM_HIT] * len(seen["prompts"])
    assert seen["local"][1] == [NUM_HIT] * len(seen["prompts"])
    assert seen["memory"] == seen["disk"] == seen["local"]
    assert seen["promoted"] > 0
    assert_zeros_are_wrong(seen)


def test_strangers_find_nothing(llama: Served, tmp_path: Path) -> None:
    transfer = transfer_config(memory="8MiB", disk=str(tmp_path / "disk"), disk_size="64MiB", digests=str(tmp_path))
    other = make_model("llama", tmp_path / "other", seed=1)
    first = add_format(make_model("llama", tmp_path / "first"), other)
    models = {
        "the first": (first, {}, "0"),
        "other weights": (other, {}, "0"),
        "other format": (first, {"load_format": "pt"}, "0"),
        "other dtype": (first, {"dtype": "float32"}, "0"),
        "other block size": (first, {"block_size": 64}, "0"),
        "other hash seed": (first, {}, "1"),
        "other code": (first, {"model_impl": "transformers"}, "0"),
        "the first again": (first, {"max_model_len": 2048, "max_num_seqs": 8}, "0"),
    }
    seen = play("strangers", models=models, transfer=transfer)
    again = seen.pop("the first again")
    assert len(seen) == 7
    for name, met in seen.items():
        assert met["found"][1] == [0, 0], name
        assert met["promoted"] == 0, name
        assert met["memory"] == met["local"], name
        assert met["memory"][1] == [NUM_HIT, NUM_HIT], name
    assert seen["other weights"]["found"][0] != seen["the first"]["found"][0]
    assert seen["other format"]["found"][0] == seen["other weights"]["found"][0]
    assert again["found"] == seen["the first"]["local"]
    assert again["promoted"] > 0


def test_weights_in_a_second_folder_part_what_they_compute(llama: Served, tmp_path: Path) -> None:
    transfer = transfer_config(memory="8MiB", disk=str(tmp_path / "disk"), disk_size="64MiB", digests=str(tmp_path))
    model, second = tmp_path / "model", tmp_path / "second"
    shutil.copytree(llama.model, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"elsewhere": str(second)}))
    answers = []
    for seed, cached in ((1, 0), (2, 0), (2, NUM_HIT)):
        shutil.rmtree(second, ignore_errors=True)
        make_model("llama", second, seed)
        ((answer,), found) = play("elsewhere", model=str(model), transfer=transfer)["found"]
        assert found == [cached]
        answers.append(answer)
    assert answers[0] != answers[1] == answers[2]


def test_weights_that_are_loaded_into_the_engine_part_what_they_compute(tmp_path: Path) -> None:
    transfer = transfer_config(memory="8MiB", disk=str(tmp_path / "disk"), disk_size="64MiB", digests=str(tmp_path))
    model, other = make_model("gemma3", tmp_path / "model"), make_model("gemma3", tmp_path / "other", seed=1)
    seen = play("reloaded", model=model, other=other, transfer=transfer)
    assert seen["other"][1] == [0]
    assert seen["other"][0] != seen["first"][0]
    assert seen["memory"] == [seen["other"][0], [NUM_HIT]]
    assert seen["again"] == [seen["first"][0], [NUM_HIT]]


def test_what_the_device_has_of_former_weights_is_not_stored(tmp_path: Path) -> None:
    """Until somebody resets the device's cache, vLLM goes on with what the former weights have computed."""
    model, other = make_model("llama", tmp_path / "model"), make_model("llama", tmp_path / "other", seed=1)
    seen = play("reset_late", model=model, other=other, transfer=transfer_config(memory="8MiB"))
    assert seen["former"] == [NUM_HIT, NUM_HIT]
    assert seen["after"][0] == seen["right"][0]
    assert seen["after"][1] == [0, NUM_HIT]
    assert seen["memory"] == [seen["right"][0], [NUM_HIT, NUM_HIT + 128]]


@pytest.mark.every_vllm
@pytest.mark.parametrize("family", ["gemma3", "qwen3_next"])
def test_after_the_reset_of_the_device_everything_is_stored_again(family: str, tmp_path: Path) -> None:
    """Before it nothing is stored of a request that has computed something when its first block is full: it might have
    begun with what the former weights have computed."""
    model, other = make_model(family, tmp_path / "model"), make_model(family, tmp_path / "other", seed=1)
    seen = play("reset_preempts", model=model, other=other, transfer=transfer_config(memory="16MiB"))
    assert seen["stored_late"] == 0
    assert seen["late"] == seen["after"][0] == seen["right"]
    assert seen["after"][1][0] == 0
    assert seen["memory"] == [seen["right"], [NUM_HIT, NUM_HIT]]
    assert seen["leaks"] == {}


@pytest.mark.every_vllm
def test_weights_that_a_trainer_writes_into_the_engine_part_what_they_compute(llama: Served) -> None:
    seen = play("transferred", model=llama.model, transfer=transfer_config(memory="8MiB"))
    answers = [seen["before"][0], seen["within"][0][0], seen["after"][0][0]]
    assert len({str(answer) for answer in answers}) == 3
    for found, computed in (seen["within"], seen["after"]):
        assert found == computed
        assert found[1] == [0]
    assert seen["memory"] == [seen["after"][0][0], [NUM_HIT]]


def test_salts_part_requests(llama: Served) -> None:
    seen = play("salts", model=llama.model, transfer=transfer_config(memory="8MiB"))
    assert seen["found"] == [0, NUM_HIT, 0, 0]
    assert seen["answers"] == [seen["answers"][0]] * 4


@pytest.mark.every_vllm
def test_a_router_hints(llama: Served) -> None:
    seen = play("hinted", model=llama.model, transfer=transfer_config(memory="8MiB"))
    assert seen["outcomes"] == {"retain taken": 1, "demote taken": 1}


def test_adapters_part_requests(llama: Served, tmp_path: Path) -> None:
    adapters = [make_adapter(tmp_path / name, seed) for seed, name in enumerate(("a", "b"))]
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "64MiB", "digests": str(tmp_path)}
    transfer = transfer_config(memory="8MiB", **disk)
    seen = play("adapters", model=llama.model, adapters=adapters, transfer=transfer)
    assert seen["cold"][1] == [0, 0, 0]
    assert len(set(map(tuple, seen["cold"][0]))) == 3
    assert seen["memory"] == seen["local"]
    assert seen["memory"][1] == [NUM_HIT] * 3
    assert seen["below"] == [seen["local"][0], [NUM_HIT, 0, 0]]  # a name is not enough for a disk


@pytest.mark.every_vllm
def test_an_adapter_whose_files_were_replaced_finds_nothing_of_the_former(llama: Served, tmp_path: Path) -> None:
    """vLLM knows an adapter by its name and path, and goes on with what the device has, until somebody resets that."""
    adapters = [make_adapter(tmp_path / name, seed) for seed, name in enumerate(("a", "b"))]
    named = {"adapter": adapters[0], "other": adapters[1]}
    seen = play("replaced_adapter", model=llama.model, transfer=transfer_config(memory="8MiB"), **named)
    assert seen["first"][1] == seen["other"][1] == 0
    assert seen["loaded_again"] == [seen["first"][0], NUM_HIT]
    assert seen["former"] == [NUM_HIT, NUM_HIT]
    assert seen["memory"] == [seen["other"][0], NUM_HIT]
    assert seen["other"][0] != seen["first"][0]


def test_images_part_requests_and_how_they_are_read_parts_engines(tmp_path: Path) -> None:
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "64MiB", "digests": str(tmp_path)}
    transfer = transfer_config(memory="8MiB", keep_media=True, **disk)
    seen = play("images", model=make_image_model(tmp_path / "model"), transfer=transfer)
    for name in ("first", "other"):
        answers, cached = seen[name]["found"]
        assert cached == [0, 0], name
        assert answers[0] != answers[1], name
        assert seen[name]["memory"] == seen[name]["local"] == [answers, [NUM_HIT] * 2], name
    assert seen["other"]["found"][0] != seen["first"]["found"][0]
    assert seen["again"]["found"] == seen["first"]["local"]


def test_images_that_clients_name_stay_in_memory(tmp_path: Path) -> None:
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "64MiB", "digests": str(tmp_path)}
    engine = {"model": make_image_model(tmp_path / "model"), "transfer": transfer_config(memory="8MiB", **disk)}
    red, blue = (play("named_image", colour=colour, uuid="pic-1", **engine) for colour in ("red", "blue"))
    assert red["found"] == [0, NUM_HIT, 0]
    assert blue["found"] == [0, NUM_HIT, NUM_HIT]  # the prompt without an image is found on disk
    assert red["answers"][0] != blue["answers"][0]
    assert red["answers"][2] == blue["answers"][2]


@pytest.mark.every_vllm
def test_images_that_vllm_numbers_stay_in_memory(tmp_path: Path) -> None:
    """Without caches of its own vLLM reads no image to name it, and begins to count anew in each process."""
    disk = {"disk": str(tmp_path / "disk"), "disk_size": "64MiB", "digests": str(tmp_path)}
    transfer = transfer_config(memory="8MiB", keep_media=True, **disk)
    caches = {"enable_prefix_caching": False, "mm_processor_cache_gb": 0}
    engine = {"model": make_image_model(tmp_path / "model"), "transfer": transfer, "uuid": None, **caches}
    red, blue = (play("named_image", colour=colour, **engine) for colour in ("red", "blue"))
    assert red["found"] == [0, 0, 0]
    assert blue["found"] == [0, 0, NUM_HIT]  # the prompt without an image is found on disk
    assert red["answers"][0] != blue["answers"][0]
    assert red["answers"][2] == blue["answers"][2]


def test_wrong_configurations_are_refused_and_the_short_form_is_right(llama: Served) -> None:
    wrong = {
        "unknown setting 'dsik'; did you mean 'disk'?": {"memory": "8MiB", "dsik": "/x"},
        "memory: '8 bananas' is not a size": {"memory": "8 bananas"},
        "the largest chunk takes 1: give it": {"memory": "64KiB"},
        "choose one of: arc, lru, resume_points": {"memory": "8MiB", "policy": "lfuu"},
        "/proc/octavo cannot be used": {"memory": "8MiB", "disk": "/proc/octavo", "disk_size": "64MiB"},
    }
    right = transfer_config(memory="8MiB")
    del right["kv_connector_extra_config"]["spec_module_path"]
    before = leftovers()
    transfers = [transfer_config(**extra) for extra in wrong.values()]
    other_spec = transfer_config("OctavoConnector", memory="8MiB")
    other_spec["kv_connector_extra_config"]["spec_name"] = "CPUOffloadingSpec"
    transfers.append(other_spec)
    wrong["not 'CPUOffloadingSpec'"] = {}
    seen = play("refused", model=llama.model, transfers=transfers, transfer=right)
    assert len(seen["said"]) == len(wrong)
    for message, said in zip(wrong, seen["said"], strict=True):
        assert message in said
    assert seen["memory"] == seen["local"]
    assert seen["memory"][1] == [NUM_HIT, NUM_HIT]
    assert leftovers() <= before


@pytest.mark.every_vllm
def test_a_pooling_that_needs_every_token_is_refused(llama: Served) -> None:
    """vLLM loads for it too, and ends when the output of the loaded tokens is missing."""
    pooling = {"runner": "pooling", "pooler_config": {"seq_pooling_type": "MEAN"}, "skip_tokenizer_init": False}
    (said,) = play("refused", model=llama.model, transfers=[transfer_config(memory="8MiB")], **pooling)["said"]
    assert "pooling needs the output of every token" in said


def assert_zeros_are_wrong(seen: dict[str, Any]) -> None:
    """The check has teeth: what is loaded decides every answer."""
    zeros, cached = seen["zeros"]
    answers, cached_by_vllm = seen["local"]
    assert cached == cached_by_vllm
    assert all(zero != right for zero, right in zip(zeros, answers, strict=True))
