"""A real vLLM engine with the plug-in, in a process of its own: plays a scenario, and prints what came of it as JSON.

    plugin_engine.py SCENARIO '{"family": "llama", ...}'

Prompts are served one at a time where outputs are compared: in bfloat16, what shares a batch decides how sums are
rounded.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from PIL import Image
from plugin_schedules import scenario_late_loads
from plugin_serving import Offloading, generate_each, start, tokens  # sets vLLM up before it is imported
from plugin_stress import (
    scenario_failed_loads,
    scenario_loads_ahead,
    scenario_queued_at_reset,
    scenario_reset_under_way,
    scenario_stress,
)
from plugin_weights import (
    scenario_elsewhere,
    scenario_reset_late,
    scenario_reset_preempts,
    scenario_transferred,
)
from prometheus_client import REGISTRY
from vllm import LLM, SamplingParams, __version__ as vllm_version
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.distributed.kv_events import AllBlocksCleared, BlockStored
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown
from vllm.lora.request import LoRARequest
from vllm.v1.kv_hints import KvHintAction, KvHintsEnvelope

from octavo.errors import OctavoError
from octavo.transfer import StagedWorker
from octavo.vllm_plugin.adapter import worker
from rigs.host_lane import HostLane

PROMPT_TOKENS = 520
"""A little more than four blocks, so that the answer depends on what was loaded."""


def scenario_loads(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The same prompts by vLLM's own hits, from memory, longer by a turn, from disk, and from memory full of zeros."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    report, answers = serve_from_memory(llm, below)
    prompts = report["prompts"]
    turns = [p + answer + tokens(130, 50 + i) for i, (p, answer) in enumerate(zip(prompts, answers, strict=True))]
    generate_each(llm, turns)
    report["turn_local"] = generate_each(llm, turns)
    below.forget_device()
    report["turn_memory"] = generate_each(llm, turns)
    below.settle()
    below.lose_memory()
    return serve_from_below(llm, below, report)


def scenario_ranks(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """As `loads`, in short."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    report, _ = serve_from_memory(llm, below)
    below.settle()
    below.lose_memory()
    return serve_from_below(llm, below, report)


def scenario_staged(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """As `ranks`, with the worker that GPUs have, whose device is the host's memory here."""

    def make_worker(*arguments: Any, inline_bytes: int, **options: Any) -> StagedWorker:
        return StagedWorker(*arguments, make_lane=HostLane, **options)

    worker.CpuWorker = make_worker
    return scenario_ranks(model, transfer, **options)


def serve_from_memory(llm: LLM, below: "Offloading") -> tuple[dict[str, Any], list[list[int]]]:
    """The report so far, and the answers."""
    prompts = make_prompts(3)
    answers, first_cached = generate_each(llm, prompts)
    report: dict[str, Any] = {"prompts": prompts, "first_cached": first_cached}
    report["local"] = generate_each(llm, prompts)
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    return report, answers


def serve_from_below(llm: LLM, below: "Offloading", report: dict[str, Any]) -> dict[str, Any]:
    promoted = below.counters()["promoted"]
    below.forget_device()
    report["disk"] = generate_each(llm, report["prompts"])
    report["promoted"] = below.counters()["promoted"] - promoted
    below.forget_device()
    below.spoil_memory()
    report["zeros"] = generate_each(llm, report["prompts"])
    below.adapter.shutdown()
    return report


def make_prompts(count: int) -> list[list[int]]:
    return [tokens(PROMPT_TOKENS, seed) for seed in range(10, 10 + count)]


def scenario_again(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Another process: what it finds of the first one's."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    prompts = make_prompts(3)
    report = {"prompts": prompts, "disk": generate_each(llm, prompts)}
    below.settle()
    report["counters"] = below.counters()
    below.adapter.shutdown()
    return report


def serve_asked(connection: Connection, model: str, transfer: dict[str, Any]) -> None:
    """Serves the prompts of each list of seeds, and says what came of them; ends when the connection does."""
    llm = start(model, transfer)
    below = Offloading(llm)
    with suppress(EOFError):
        while True:
            answers, cached = generate_each(llm, [tokens(PROMPT_TOKENS, seed) for seed in connection.recv()])
            below.settle()
            connection.send({"answers": answers, "cached": cached, "loaded": below.counters()["loaded"]})
    below.adapter.shutdown()


def scenario_handed(
    model: str, transfer: dict[str, Any], resumes: list[int], computes: list[int], **options: Any
) -> dict[str, Any]:
    """Prompts of which others have stored the beginning, as they are found and as they are computed (a salt parts them
    from what is stored); then new ones, which are stored."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    prompts = [tokens(PROMPT_TOKENS, seed) for seed in resumes]
    report = {"found": generate_each(llm, prompts), "computed": generate_each(llm, prompts, salt="none has it")}
    report["stored"] = generate_each(llm, [tokens(PROMPT_TOKENS, seed) for seed in computes])
    below.settle()
    below.adapter.shutdown()
    return report


def scenario_strangers(models: dict[str, tuple[str, dict[str, Any], str]], transfer: dict[str, Any]) -> dict[str, Any]:
    """Engines one after the other over the same disk, each a model, options and a hash seed: what each finds, and
    whether what it stores itself comes back."""
    return {name: meet(*variant, transfer) for name, variant in models.items()}


def meet(model: str, options: dict[str, Any], seed: str, transfer: dict[str, Any]) -> dict[str, Any]:
    os.environ["PYTHONHASHSEED"] = seed
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    prompts = make_prompts(2)
    report: dict[str, Any] = {"found": generate_each(llm, prompts), "local": generate_each(llm, prompts)}
    report["promoted"] = below.counters()["promoted"]
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    end(llm, below)
    return report


def end(llm: LLM, below: Offloading) -> None:
    """So that another engine can start in this process."""
    below.adapter.shutdown()
    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()


def scenario_reloaded(model: str, other: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A prompt before and after other weights are loaded into the engine, and in the next one, which has the first."""
    prompts = make_prompts(1)
    llm = start(model, transfer)
    below = Offloading(llm)
    report: dict[str, Any] = {"first": generate_each(llm, prompts)}
    below.settle()
    llm.collective_rpc("reload_weights", kwargs={"weights_path": other})
    assert llm.reset_prefix_cache()  # the device's alone
    report["other"] = generate_each(llm, prompts)
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    below.settle()
    end(llm, below)
    llm = start(model, transfer)
    below = Offloading(llm)
    report["again"] = generate_each(llm, prompts)
    end(llm, below)
    return report


def scenario_shared(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """vLLM alone, and then engines of each role over one store that is empty at first."""
    *first, other = make_prompts(3)
    own = tokens(PROMPT_TOKENS, 99)
    llm = start(model, None)
    generate_each(llm, [*first, other])
    report: dict[str, Any] = {"local": generate_each(llm, [*first, other])}
    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()
    asks = {
        "kv_producer": {"first": first},
        "kv_both": {"first": first, "others": [other]},
        "kv_consumer": {"first": first, "others": [other], "own": [own]},
    }
    store = Path(transfer["kv_connector_extra_config"]["shared"]["url"].removeprefix("file://"))
    for role, prompts in asks.items():
        had = set(store.rglob("*"))
        llm = start(model, transfer | {"kv_role": role})
        below = Offloading(llm)
        seen: dict[str, Any] = {name: generate_each(llm, some) for name, some in prompts.items()}
        below.settle()
        seen |= {name: below.counters()[name] for name in ("loaded", "stored")}
        end(llm, below)
        seen["has_stored"] = set(store.rglob("*")) != had
        report[role] = seen
    return report


def scenario_recorded(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Prompts that are computed, then resumed from the device, from memory, and a turn longer; one is aborted."""
    llm = start(model, transfer)
    below = Offloading(llm)
    report, answers = serve_from_memory(llm, below)
    turn = [*report["prompts"][0], *answers[0], *tokens(130, 50)]
    report["turn"] = generate_each(llm, [turn])
    llm.llm_engine.add_request("aborted", {"prompt_token_ids": tokens(PROMPT_TOKENS, 60)}, SamplingParams(max_tokens=9))
    llm.llm_engine.abort_request(["aborted"])
    below.settle()
    below.adapter.shutdown()
    return report


class Published:
    """A publisher of vLLM's that keeps what the scheduler gives it."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def publish(self, batch: Any) -> None:
        self.events += batch.events

    def shutdown(self) -> None: ...


def scenario_cleared(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """How many chunks are told of each medium: when a prompt is stored, and after a clear of the device alone."""
    llm = start(model, transfer, kv_events_config={"enable_kv_cache_events": True, "publisher": "null"})
    below, published = Offloading(llm), Published()
    llm.llm_engine.engine_core.engine_core.scheduler.kv_event_publisher = published
    generate_each(llm, make_prompts(1))
    below.settle()
    report = {"stored": count_stored(published.events)}
    published.events.clear()
    below.forget_device()
    generate_each(llm, [tokens(5, 1)])
    below.settle()
    clears = [number for number, event in enumerate(published.events) if isinstance(event, AllBlocksCleared)]
    report |= {"clears": len(clears), "told_anew": count_stored(published.events[clears[0] :])}
    below.adapter.shutdown()
    return report


def count_stored(events: list[Any]) -> dict[str, int]:
    """By medium, those of the tiers: the hashes that were told."""
    told = [(event.medium, set(event.block_hashes)) for event in events if isinstance(event, BlockStored)]
    media = sorted({medium for medium, _ in told if medium in ("CPU", "STORAGE")})
    return {medium: len(set().union(*(hashes for other, hashes in told if other == medium))) for medium in media}


def scenario_flips(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """The same prompts by vLLM's own hits, and from memory in which bits have flipped."""
    llm = start(model, transfer)
    below = Offloading(llm)
    report, _ = serve_from_memory(llm, below)
    below.settle()
    below.flip_bits()
    below.forget_device()
    report["flipped"] = generate_each(llm, report["prompts"])
    report["load_failed"] = below.counters()["load_failed"]
    below.adapter.shutdown()
    return report


def scenario_beside(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Prompts from memory, by an engine with another connector beside, and the metrics by name."""
    llm = start(model, transfer)
    below = Offloading(llm)
    report, _ = serve_from_memory(llm, below)
    report["metrics"] = [metric.name for metric in REGISTRY.collect() if metric.samples]
    below.adapter.shutdown()
    return report


def scenario_plain(model: str) -> dict[str, Any]:
    """vLLM without Octavo, beside which Octavo is installed."""
    llm = start(model, None)
    prompt = tokens(PROMPT_TOKENS, 10)
    report = {"version": vllm_version, "cached": generate_each(llm, [prompt, prompt])[1]}
    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()
    return report


def scenario_refused(
    model: str, transfers: list[dict[str, Any]], transfer: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """What engines with wrong configurations say; and after them a right one serves, if there is one."""
    said = []
    for wrong in transfers:
        try:
            start(model, wrong, **options)
        except OctavoError as error:
            said.append(f"{type(error).__name__}: {error}")
        ensure_kv_transfer_shutdown()
        cleanup_dist_env_and_memory()
    return {"said": said} | (meet(model, {}, "0", transfer) if transfer else {})


def scenario_limited(model: str, transfer: dict[str, Any], limits: list[int], **options: Any) -> dict[str, Any]:
    """Prompts of which at most so many tokens are to be stored, each again after the device has forgotten it."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    report: dict[str, Any] = {"found": []}
    for number, limit in enumerate(limits):
        prompt = {"prompt_token_ids": tokens(PROMPT_TOKENS + 80, 10 + number)}  # it ends inside a block
        asked = {"kv_transfer_params": {"max_offload_tokens": limit}}
        sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False, extra_args=asked)
        for _ in range(2):
            (output,) = llm.generate([prompt], sampling, use_tqdm=False)
            below.forget_device()
        report["found"].append(output.num_cached_tokens or 0)
    below.adapter.shutdown()
    return report


def scenario_salts(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Tokens of one prompt that come from memory: with a salt, with the same one, another one, and none."""
    llm = start(model, transfer)
    below = Offloading(llm)
    prompt = tokens(PROMPT_TOKENS, 10)
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    found, answers = [], []
    for salt in ("a", "a", "b", None):
        below.forget_device()
        given = {"prompt_token_ids": prompt} | ({"cache_salt": salt} if salt else {})
        (output,) = llm.generate([given], sampling, use_tqdm=False)
        found.append(output.num_cached_tokens or 0)
        answers.append(list(output.outputs[0].token_ids))
    below.adapter.shutdown()
    return {"found": found, "answers": answers}


def scenario_branches(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Three questions about one document, of which the device forgets all after each; then on the device, where nothing
    is loaded."""
    llm = start(model, transfer)
    below = Offloading(llm)
    questions = [tokens(PROMPT_TOKENS, 10) + tokens(130, seed) for seed in range(20, 23)]
    answers, cached = [], []
    for question in questions:
        below.forget_device()
        answer, tokens_cached = generate_each(llm, [question])
        answers += answer
        cached += tokens_cached
    below.settle()
    assert llm.reset_prefix_cache(reset_connector=True)
    report = {"memory": (answers, cached), "local": generate_each(llm, questions)}
    below.adapter.shutdown()
    return report


def scenario_documents(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Questions about three documents behind one beginning, and one more about the last; the device forgets all after
    each. Then the last once more, computed."""
    llm = start(model, transfer, dtype="float32", max_model_len=1536)
    below = Offloading(llm)
    documents = [tokens(256, 10) + tokens(1000, seed) for seed in (20, 21, 22, 22)]
    answers, cached = [], []
    for seed, document in enumerate(documents, 30):
        below.forget_device()
        answer, tokens_cached = generate_each(llm, [document + tokens(60, seed)])
        answers += answer
        cached += tokens_cached
    below.settle()
    assert llm.reset_prefix_cache(reset_connector=True)
    computed, _ = generate_each(llm, [documents[-1] + tokens(60, seed)])
    below.adapter.shutdown()
    return {"cached": cached, "last": answers[-1], "computed": computed[0]}


def scenario_drafts(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """The kinds of groups that hold drafts, of a model with a layer for the next token but one. This vLLM has no kernel
    that computes with it on a CPU, so nothing is asked."""
    llm = start(
        model,
        transfer,
        speculative_config={"method": "mtp", "num_speculative_tokens": 1},
        hf_overrides={"num_nextn_predict_layers": 1},
        load_format="dummy",
    )
    below = Offloading(llm)
    kinds = [group.spec.kind for group in below.adapter._groups if group.is_draft]
    below.adapter.shutdown()
    return {"kinds": kinds}


def scenario_session(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A client streams a prompt in two parts. Then somebody asks the same, after the device has forgotten it."""
    llm = start(model, transfer)
    below = Offloading(llm)
    prompt, queue = tokens(PROMPT_TOKENS, 10), llm.llm_engine
    core = queue.engine_core.engine_core
    for part in (prompt[:300], prompt[300:]):
        sampling = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
        given = {"prompt_token_ids": part}
        request = queue.input_processor.process_inputs(
            "session", given, sampling, supported_tasks=llm.supported_tasks, resumable=True
        )
        core.add_request(*core.preprocess_add_request(request))
        while core.scheduler.has_unfinished_requests():
            core.step()
    core.abort_requests([*core.scheduler.requests])
    below.forget_device()
    report = {"after": generate_each(llm, [prompt]), "right": generate_each(llm, [prompt], salt="none has it")}
    below.adapter.shutdown()
    return report


def scenario_hinted(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A request with a router's hints. vLLM's API server takes none: a router that runs the engine gives them to it."""
    llm = start(model, transfer)
    below = Offloading(llm)
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    for number, payload in enumerate(({"retain": "1h"}, {"retain": "for ever"}, {"demote": True})):
        action = KvHintAction(action_id="a", action_type="octavo", action_version="1.0", payload=payload)
        envelope = KvHintsEnvelope(protocol_version="0.1", message_id=str(number), actions=[action])
        prompt = {"prompt_token_ids": tokens(PROMPT_TOKENS, 10 + number)}
        llm.llm_engine.add_request(str(number), prompt, sampling, kv_hints=envelope)
        while llm.llm_engine.has_unfinished_requests():
            llm.llm_engine.step()
    below.settle()
    outcomes = below.manager.retentions.outcomes
    below.adapter.shutdown()
    return {"outcomes": {f"{kind.value} {outcome.value}": count for (kind, outcome), count in outcomes.items()}}


def scenario_adapters(model: str, adapters: list[str], transfer: dict[str, Any]) -> dict[str, Any]:
    """One prompt without an adapter and with each: cold, by vLLM's own hits, from memory, and from below."""
    llm = start(model, transfer, enable_lora=True, max_loras=2, max_lora_rank=8)
    below = Offloading(llm)
    requests = [LoRARequest(name, number, name) for number, name in enumerate(adapters, 1)]
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)

    def ask() -> tuple[list[list[int]], list[int]]:
        prompt = {"prompt_token_ids": tokens(PROMPT_TOKENS, 10)}
        outputs = [llm.generate([prompt], sampling, use_tqdm=False, lora_request=lora)[0] for lora in (None, *requests)]
        return [list(o.outputs[0].token_ids) for o in outputs], [o.num_cached_tokens or 0 for o in outputs]

    report: dict[str, Any] = {"cold": ask(), "local": ask()}
    below.forget_device()
    report["memory"] = ask()
    below.settle()
    below.lose_memory()
    below.forget_device()
    report["below"] = ask()
    below.adapter.shutdown()
    return report


def scenario_replaced_adapter(model: str, adapter: str, other: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A prompt with an adapter, which is loaded again, and then after its files were replaced; before each question but
    two after that the device has forgotten all."""
    llm = start(model, transfer, enable_lora=True, max_loras=1, max_lora_rank=8)
    below = Offloading(llm)
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    request = LoRARequest("a", 1, adapter)
    again = LoRARequest("a", 1, adapter, load_inplace=True)

    def ask(*, forgets: bool = True) -> tuple[list[int], int]:
        if forgets:
            below.forget_device()
        prompt = {"prompt_token_ids": tokens(PROMPT_TOKENS, 10)}
        (output,) = llm.generate([prompt], sampling, use_tqdm=False, lora_request=request)
        return list(output.outputs[0].token_ids), output.num_cached_tokens or 0

    report: dict[str, Any] = {"first": ask()}
    llm.llm_engine.add_lora(again)
    report["loaded_again"] = ask()
    shutil.copytree(other, adapter, dirs_exist_ok=True)
    llm.llm_engine.add_lora(again)
    report["former"] = [ask(forgets=False)[1] for _ in range(2)]
    report["other"], report["memory"] = ask(), ask()
    below.adapter.shutdown()
    return report


def scenario_images(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """One prompt with one image, and with another; then in engines that read images in another way, and in the same."""
    report = {"first": serve_images(model, transfer)}
    report["other"] = serve_images(model, transfer, mm_processor_kwargs={"do_normalize": False})
    report["again"] = serve_images(model, transfer)
    return report


def scenario_named_image(
    model: str, transfer: dict[str, Any], colour: str, uuid: str | None, **options: Any
) -> dict[str, Any]:
    """An image under a client's name twice, and a prompt without one: answers, and tokens that were not computed."""
    llm = start(model, transfer, skip_tokenizer_init=False, limit_mm_per_prompt={"image": 1}, **options)
    below = Offloading(llm)
    text = [max(5, token) for token in tokens(PROMPT_TOKENS, 10)]
    named = {
        "prompt_token_ids": [4, *text],
        "multi_modal_data": {"image": Image.new("RGB", (28, 28), colour)},
        "multi_modal_uuids": {"image": [uuid]},
    }
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    answers, found = [], []
    for prompt in (named, named, {"prompt_token_ids": text}):
        (output,) = llm.generate([prompt], sampling, use_tqdm=False)
        answers.append(list(output.outputs[0].token_ids))
        found.append(output.num_cached_tokens or 0)
        below.forget_device()
    end(llm, below)
    return {"answers": answers, "found": found}


def serve_images(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    llm = start(model, transfer, skip_tokenizer_init=False, limit_mm_per_prompt={"image": 1}, **options)
    below = Offloading(llm)
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    prompt = [4, *(max(5, token) for token in tokens(PROMPT_TOKENS, 10))]
    images = [Image.new("RGB", (28, 28), colour) for colour in ("red", "blue")]

    def ask() -> tuple[list[list[int]], list[int]]:
        given = [{"prompt_token_ids": prompt, "multi_modal_data": {"image": image}} for image in images]
        outputs = [llm.generate([one], sampling, use_tqdm=False)[0] for one in given]
        return [list(o.outputs[0].token_ids) for o in outputs], [o.num_cached_tokens or 0 for o in outputs]

    report: dict[str, Any] = {"found": ask(), "local": ask()}
    below.forget_device()
    report["memory"] = ask()
    end(llm, below)
    return report


SCENARIOS: dict[str, Callable[..., dict[str, Any]]] = {
    "loads": scenario_loads,
    "ranks": scenario_ranks,
    "staged": scenario_staged,
    "again": scenario_again,
    "handed": scenario_handed,
    "strangers": scenario_strangers,
    "plain": scenario_plain,
    "beside": scenario_beside,
    "reloaded": scenario_reloaded,
    "transferred": scenario_transferred,
    "elsewhere": scenario_elsewhere,
    "reset_late": scenario_reset_late,
    "reset_preempts": scenario_reset_preempts,
    "shared": scenario_shared,
    "recorded": scenario_recorded,
    "flips": scenario_flips,
    "cleared": scenario_cleared,
    "refused": scenario_refused,
    "limited": scenario_limited,
    "salts": scenario_salts,
    "branches": scenario_branches,
    "documents": scenario_documents,
    "drafts": scenario_drafts,
    "session": scenario_session,
    "hinted": scenario_hinted,
    "adapters": scenario_adapters,
    "replaced_adapter": scenario_replaced_adapter,
    "images": scenario_images,
    "named_image": scenario_named_image,
    "stress": scenario_stress,
    "failed_loads": scenario_failed_loads,
    "loads_ahead": scenario_loads_ahead,
    "reset_under_way": scenario_reset_under_way,
    "queued_at_reset": scenario_queued_at_reset,
    "late_loads": scenario_late_loads,
}


def main() -> None:
    for name, arguments in json.loads(sys.argv[1]).items():
        print("KNOWN " + json.dumps(SCENARIOS[name](**arguments)), flush=True)


if __name__ == "__main__":
    main()
