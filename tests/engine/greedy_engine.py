"""The smallest engine that respects the manager's contract: greedy tokens, a budget of tokens per step."""

from dataclasses import dataclass, field
from itertools import count

from octavo.blocks import KVCacheManager, RequestBlocks
from octavo.engine import CacheGeometry, CausalModel, ModelRunner, ScheduledSequence, StepBatch
from octavo.errors import NotEnoughMemoryError
from octavo.planning import plan_kv_cache
from octavo.specs import RequestLimits


@dataclass(eq=False)
class Job:
    request: RequestBlocks
    max_new_tokens: int
    num_resumed: int = -1
    logits: list = field(default_factory=list)

    @property
    def generated(self):
        return list(self.request.tokens[self.request.num_prompt_tokens :])

    @property
    def is_done(self):
        return len(self.generated) >= self.max_new_tokens


class GreedyEngine:
    def __init__(
        self,
        model: CausalModel,
        *,
        memory_bytes=64 << 20,
        max_model_len=512,
        tokens_per_step=64,
        attention_block_size=8,
        state_block_size=16,
        checkpoint_interval_tokens=None,
    ):
        geometry = CacheGeometry(attention_block_size=attention_block_size, state_block_size=state_block_size)
        self.config = plan_kv_cache(
            model.kv_cache_specs(geometry),
            memory_bytes=memory_bytes,
            limits=RequestLimits(max_model_len=max_model_len, max_step_tokens=tokens_per_step),
            checkpoint_interval_tokens=checkpoint_interval_tokens,
        )
        self.manager = KVCacheManager(self.config)
        self.runner = ModelRunner(model, self.config)
        self.tokens_per_step = tokens_per_step
        self.jobs: list[Job] = []
        self.num_preemptions = self.num_moves = 0
        self._ids = count()

    @classmethod
    def with_least_memory(cls, model, *, times, **kwargs):
        """An engine whose pool holds one longest request, and some more."""
        memory_bytes = 1 << 16
        while True:
            try:
                cls(model, memory_bytes=memory_bytes, **kwargs)
            except NotEnoughMemoryError:
                memory_bytes = memory_bytes * 5 // 4
            else:
                return cls(model, memory_bytes=int(memory_bytes * times), **kwargs)

    def generate(self, prompts, max_new_tokens) -> list[Job]:
        jobs = [self.add(prompt, max_new_tokens) for prompt in prompts]
        while self.jobs:
            self.step()
        self.manager.check_invariants()
        return jobs

    def add(self, prompt, max_new_tokens) -> Job:
        job = Job(self.manager.begin_request(f"job {next(self._ids)}", prompt), max_new_tokens)
        self.jobs.append(job)
        return job

    def step(self):
        """Decodes first, then prompts as far as the budget goes; those that do not fit wait, or give way."""
        budget = self.tokens_per_step
        scheduled: list[tuple[Job, int]] = []
        for job in sorted(self.jobs, key=lambda job: not job.request.is_started):
            if budget == 0:
                break
            if (end := self._schedule(job, budget)) is not None:
                scheduled.append((job, end))
                budget -= end - job.request.num_computed_tokens
        if not scheduled:
            self._preempt_last()
            return
        self._compute(scheduled)

    def _schedule(self, job: Job, budget: int) -> int | None:
        request = job.request
        resume = None if request.is_started else self.manager.find_resume(request)
        computed = request.num_computed_tokens if resume is None else resume.num_tokens
        end = self.manager.cut_prefill(request, min(request.num_tokens, computed + budget), resume)
        allocation = self.manager.allocate(request, end, resume=resume)
        if allocation is None:
            return None
        if resume is not None and job.num_resumed < 0:
            job.num_resumed = request.num_computed_tokens
        self.num_moves += len(allocation.moves)
        self.runner.execute([allocation])
        return end

    def _compute(self, scheduled):
        sequences = [
            ScheduledSequence(
                token_ids=job.request.tokens[job.request.num_computed_tokens : end],
                num_computed_tokens=job.request.num_computed_tokens,
                block_tables=[table.rows for table in job.request.tables],
                known_token_ids=job.request.tokens,
            )
            for job, end in scheduled
        ]
        logits = self.runner.run(StepBatch(sequences=sequences)).last
        for (job, end), of_job in zip(scheduled, logits, strict=True):
            request = job.request
            self.manager.commit(request, end)
            if end == request.num_tokens:
                job.logits.append(of_job)
                self.manager.append_tokens(request, [int(of_job.argmax())])
            if job.is_done:
                self.manager.free(request)
                self.jobs.remove(job)

    def _preempt_last(self):
        started = [job for job in self.jobs if job.request.is_started]
        assert started, "not even one request fits"
        self.manager.preempt(started[-1].request)
        self.num_preemptions += 1
