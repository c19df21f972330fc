"""Weights that come from elsewhere than the model's folder: from a trainer, or from another folder."""

from typing import Any

import torch
from plugin_serving import Offloading, generate_each, start, tokens
from vllm import SamplingParams
from vllm.config import WeightTransferConfig
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.llama import LlamaForCausalLM


class InPlace(WeightTransferEngine):
    """Writes into the parameters without `load_weights`, as some of vLLM's do: at each update and at the end."""

    def parse_init_info(self, info: dict[str, Any]) -> Any:
        return info

    def parse_update_info(self, info: dict[str, Any]) -> Any:
        return info

    def init_transfer_engine(self, init_info: Any) -> None: ...

    def start_weight_update(self) -> None: ...

    def receive_weights(self, update_info: Any) -> None:
        self._change()

    def finish_weight_update(self) -> None:
        self._change()

    def shutdown(self) -> None: ...

    def _change(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(-1.5)


def scenario_transferred(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A prompt before, within and after an update of the weights, of which the device has forgotten all, and beside
    each a salt that parts it from what was stored."""
    WeightTransferEngineFactory.register_engine("in_place", InPlace)
    llm = start(model, transfer, weight_transfer_config=WeightTransferConfig(backend="in_place"))
    below = Offloading(llm)
    prompts = [tokens(520, 10)]
    report: dict[str, Any] = {"before": generate_each(llm, prompts)}
    llm.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {}})
    llm.collective_rpc("start_weight_update")
    below.forget_device()
    llm.collective_rpc("update_weights", kwargs={"update_info": {}})
    report["within"] = generate_each(llm, prompts), generate_each(llm, prompts, salt="within")
    below.forget_device()
    llm.collective_rpc("finish_weight_update")
    report["after"] = generate_each(llm, prompts), generate_each(llm, prompts, salt="after")
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    below.adapter.shutdown()
    return report


def scenario_reset_late(model: str, other: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A prompt with which others go on, before other weights are loaded, after that while the device has not forgotten
    it, and when the device has; and what is right then."""
    llm = start(model, transfer)
    below = Offloading(llm)
    prompt = tokens(520, 10)
    prompts = [prompt, prompt + tokens(130, 11)]
    report: dict[str, Any] = {"before": generate_each(llm, prompts[:1])}
    llm.collective_rpc("reload_weights", kwargs={"weights_path": other})
    report["former"] = generate_each(llm, prompts)[1]
    below.forget_device()
    report["after"] = generate_each(llm, prompts)
    report["right"] = generate_each(llm, prompts, salt="none has it")
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    below.adapter.shutdown()
    return report


def scenario_reset_preempts(model: str, other: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """After other weights are loaded: a prompt whose first block is full after two steps, and one that a reset of the
    device preempts. Then both twice, each time after the device has forgotten them, and what is right."""
    llm = start(model, transfer, max_num_batched_tokens=100)
    below, queue = Offloading(llm), llm.llm_engine
    prompts = [tokens(520, seed) for seed in (10, 11)]
    generate_each(llm, prompts[:1], salt="the former weights'")
    below.settle()
    stored = below.counters()["stored"]
    llm.collective_rpc("reload_weights", kwargs={"weights_path": other})
    report: dict[str, Any] = {"late": generate_each(llm, prompts[:1])[0]}
    below.settle()
    report["stored_late"] = below.counters()["stored"] - stored
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    queue.add_request("0", {"prompt_token_ids": prompts[1]}, sampling)
    for _ in range(3):
        queue.step()
    assert queue.reset_prefix_cache(reset_running_requests=True)
    while queue.has_unfinished_requests():
        outputs = queue.step()
    report["late"].append(list(outputs[0].outputs[0].token_ids))
    below.forget_device()
    report["after"] = generate_each(llm, prompts)
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    report["right"] = generate_each(llm, prompts, salt="none has it")[0]
    report["leaks"] = below.leaks()
    below.adapter.shutdown()
    return report


class WithWeightsElsewhere(LlamaForCausalLM):
    """Has weights in a second folder, which its config names, as Ultravox has its towers."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        place = vllm_config.model_config.hf_config.elsewhere
        self.secondary_weights = [DefaultModelLoader.Source(model_or_path=place, revision=None)]


def scenario_elsewhere(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A prompt by a model with weights in a second folder."""
    ModelRegistry.register_model("LlamaForCausalLM", WithWeightsElsewhere)
    llm = start(model, transfer)
    below = Offloading(llm)
    report = {"found": generate_each(llm, [tokens(520, 10)])}
    below.settle()
    below.adapter.shutdown()
    return report
