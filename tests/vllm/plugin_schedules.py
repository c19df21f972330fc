"""vLLM's own scheduler and connector on a small device, without a model: chance gives the tokens, and says when loads
end, and which of them fail."""

import random
from concurrent.futures import Future
from typing import Any

from plugin_serving import Offloading, start, tokens
from vllm import LLM, SamplingParams
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

_MOST_STEPS_OF_LOAD, _MOST_STEPS_OF_STORE = 20, 2
_REQUESTS = 20


def scenario_late_loads(
    model: str, transfer: dict[str, Any], fails: float, rounds: int, **options: Any
) -> dict[str, Any]:
    """Crowds of requests with shared beginnings, on a device that has room for little more than the longest one. A
    `fails`-th of the loads fails."""
    llm = start(model, transfer, dtype="float32", max_model_len=2048, max_num_seqs=10, **options)
    below = Offloading(llm)
    chance = Chance(llm, fails)
    unserved: list[str] = []
    for number in range(rounds):
        unserved += serve_crowd(llm, below, random.Random(number), name=str(number))
        if unserved:
            break
    below.adapter.shutdown()
    return {"unserved": unserved, "loads": chance.num_loads, "failed": chance.num_failed}


def serve_crowd(llm: LLM, below: Offloading, source: random.Random, *, name: str) -> list[str]:
    """The requests that wait for ever."""
    queue = llm.llm_engine
    beginnings = [tokens(1228, 50 + i) for i in range(6)]
    sampling = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, detokenize=False)
    waiting = [f"{name}-{index}" for index in range(_REQUESTS)]
    for index, request in enumerate(waiting):
        beginning = source.choice(beginnings)[: source.choice([409, 819, 1187])]
        prompt = beginning + tokens(source.randrange(1, 614), 1000 + source.randrange(40))
        salt = {"cache_salt": "own"} if index % 5 == 4 else {}
        queue.add_request(request, {"prompt_token_ids": prompt, **salt}, sampling)
    aborts = {source.randrange(1, 60): request for request in waiting[3::7]}
    num_steps = 0
    while queue.has_unfinished_requests() and not below.is_stuck():
        ended = [output.request_id for output in queue.step() if output.finished]
        num_steps += 1
        if num_steps in aborts:
            ended.append(aborts.pop(num_steps))
            queue.abort_request(ended[-1:])
        waiting = [request for request in waiting if request not in ended]
    return waiting if queue.has_unfinished_requests() else []


class Chance:
    """Takes the place of the model and of the transfers."""

    def __init__(self, llm: LLM, fails: float) -> None:
        self.num_loads = self.num_failed = 0
        self._fails = fails
        self._source = random.Random(1)
        core = llm.llm_engine.engine_core.engine_core
        self._scheduler = core.scheduler
        self._under_way: dict[int, tuple[int, str | None]] = {}
        """Job -> the steps that it takes, and the request if it is a load."""
        core.model_executor.execute_model = self._execute

    def _execute(self, scheduled: Any, *, non_block: bool) -> Future[ModelRunnerOutput]:
        assert non_block, "vLLM waits for the output elsewhere"
        requests = list(scheduled.num_scheduled_tokens)
        output: Future[ModelRunnerOutput] = Future()
        output.set_result(
            ModelRunnerOutput(
                req_ids=requests,
                req_id_to_index={request: index for index, request in enumerate(requests)},
                sampled_token_ids=[self._tokens_of(request) for request in requests],
                kv_connector_output=self._transfers(scheduled.kv_connector_metadata),
            )
        )
        return output

    def _tokens_of(self, name: str) -> list[int]:
        """A token, if the request's prompt is computed."""
        request = self._scheduler.requests[name]
        return [self._source.randrange(4, 500)] if request.num_computed_tokens >= request.num_tokens else []

    def _transfers(self, jobs: Any) -> KVConnectorOutput:
        source, meta = self._source, OffloadingWorkerMetadata()
        for job_id, job in jobs.load_jobs.items():
            self._under_way[job_id] = source.randint(0, _MOST_STEPS_OF_LOAD), job.req_id
        for job_id in jobs.store_jobs:
            self._under_way[job_id] = source.randint(0, _MOST_STEPS_OF_STORE), None
        loaded, failed = set(), set()
        for job_id, (steps_left, loads) in list(self._under_way.items()):
            if steps_left and job_id not in (jobs.jobs_to_flush or ()):
                self._under_way[job_id] = steps_left - 1, loads
                continue
            del self._under_way[job_id]
            meta.mark_completed(job_id)
            if loads is not None:
                self.num_loads += 1
                loaded.add(loads)
                if source.random() < self._fails:
                    self.num_failed += 1
                    failed.add(loads)
        return KVConnectorOutput(finished_recving=loaded, failed_recving=failed, kv_connector_worker_meta=meta)
