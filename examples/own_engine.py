"""An engine of one's own over Octavo: a toy hybrid model, whose prefixes survive a restart.

    python examples/own_engine.py

The model has a layer of full attention, one with a window of 24 tokens, and one of recurrent state. Its weights are
random, and so are its answers. But the same prompt must get the same answer, wherever its prefix comes from.
"""

import hashlib
import tempfile
from time import monotonic

import torch
from torch import Tensor

from octavo import KVCacheManager, OffloadConfig, plan_kv_cache
from octavo.blocks import Allocation, RequestBlocks
from octavo.offload import Readiness, make_offload_scheduler
from octavo.planning import KVCacheConfig
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec, RequestLimits, SlidingWindowSpec
from octavo.transfer import CacheRegistration, register_kv_caches

# ---- 1. What each layer keeps. The memory plan follows from it. ----
WIDTH, BLOCK, WINDOW, LONGEST = 32, 8, 24, 256
LAYERS = {
    "full": FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=WIDTH, dtype=CacheDType.FLOAT32),
    "window": SlidingWindowSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=WIDTH, dtype=CacheDType.FLOAT32, sliding_window=WINDOW
    ),
    "state": MambaSpec(block_size=BLOCK, shapes=((WIDTH, WIDTH),), dtypes=(CacheDType.FLOAT32,)),
}
VOCABULARY, TOKENS_PER_STEP, ANSWER_TOKENS = 100, 64, 10


class ToyModel:
    """The weights, and a cache tensor for each layer. A table says in which row of it a request's block lies."""

    # ---- 2. The cache tensors: views of one pool, laid out as the plan says. ----
    def __init__(self, plan: KVCacheConfig) -> None:
        random = torch.Generator().manual_seed(7)
        self.embedding = torch.randn(VOCABULARY, WIDTH, generator=random)
        self.weights = {name: torch.randn(WIDTH, 3 * WIDTH, generator=random) for name in LAYERS}
        self.plan = plan
        pool = torch.zeros(plan.num_sheets * plan.sheet_bytes, dtype=torch.int8)
        self.pages: dict[int | None, Tensor] = {
            index: pool.view(-1, pages.page_bytes) for index, pages in enumerate(plan.page_classes)
        }
        self.caches: dict[str, Tensor] = {}
        for group in plan.groups:
            for name, start in group.layer_offsets.items():
                part = self.pages[group.page_class][:, start : start + LAYERS[name].page_size_bytes]
                shape = (WIDTH, WIDTH) if name == "state" else (2, BLOCK, WIDTH)  # 2: keys and values
                self.caches[name] = part.view(torch.float32).view(-1, *shape)

    def digest(self) -> bytes:
        """The identity of the weights. What one model stored, another one must not find."""
        weights = [self.embedding, *self.weights.values()]
        return hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).digest()

    # ---- 3. The manager moves no bytes: it says which pages must be copied before a step runs. ----
    def copy_pages(self, allocation: Allocation) -> None:
        for move in allocation.moves:
            pages = self.pages[move.page_class]
            pages[move.destination] = pages[move.source]
        for copy in allocation.copies:
            pages = self.pages[self.plan.groups[copy.group_idx].page_class]
            pages[copy.destination] = pages[copy.source]

    # ---- 4. The forward pass: reads and writes the rows that the tables name. ----
    def next_token(self, tokens: list[int], start: int, tables: dict[str, list[int]]) -> int:
        """Computes tokens, the first of which has position `start`. Returns the likeliest token after the last."""
        hidden = self.embedding[tokens]
        for name, weights in self.weights.items():
            layer = self.recur if name == "state" else self.attend
            projected = (hidden @ weights / WIDTH**0.5).chunk(3, dim=1)
            hidden = torch.tanh(hidden + layer(name, projected, start, tables[name]))
        return int((self.embedding @ hidden[-1]).argmax())

    def attend(self, name: str, projected: tuple[Tensor, ...], start: int, table: list[int]) -> Tensor:
        query, key, value = projected
        cache, rows = self.caches[name], torch.tensor(table)
        new = torch.arange(start, start + len(query))
        cache[rows[new // BLOCK], :, new % BLOCK] = torch.stack([key, value], dim=1)
        reach = WINDOW if name == "window" else LONGEST
        seen = torch.arange(max(0, start - reach + 1), start + len(query))
        keys, values = cache[rows[seen // BLOCK], :, seen % BLOCK].unbind(dim=1)
        distance = new[:, None] - seen
        scores = (query @ keys.T).masked_fill((distance < 0) | (distance >= reach), -torch.inf)
        return scores.softmax(dim=1) @ values

    def recur(self, name: str, projected: tuple[Tensor, ...], start: int, table: list[int]) -> Tensor:
        state = self.caches[name][table[0]]  # one page holds the whole past
        if start == 0:
            state.zero_()
        outputs = []
        for query, key, value in zip(*projected, strict=True):
            state.mul_(0.9).add_(torch.outer(key, value))
            outputs.append(query @ state)
        return torch.stack(outputs)


class ToyEngine:
    """Serves one request at a time."""

    # ---- 5. The parts: a plan, the manager of the device's pages, and what lies below the device. ----
    def __init__(self, disk: str) -> None:
        plan = plan_kv_cache(
            LAYERS,
            memory_bytes=512 << 10,
            limits=RequestLimits(max_model_len=LONGEST, max_step_tokens=TOKENS_PER_STEP),
        )
        self.model = ToyModel(plan)
        self.manager = KVCacheManager(plan)
        tiers = [{"type": "disk", "path": disk, "size": "64MiB"}]
        self.offload = make_offload_scheduler(
            self.manager,
            register_kv_caches(self.model.caches, CacheRegistration.of_plan(plan)),
            OffloadConfig.from_mapping({"memory": "8MiB", "tiers": tiers}),
            model_digest=self.model.digest(),
            dtype="float32",
            attention_backend="toy engine 1",
        )

    # ---- 6. A request's life. ----
    def answer(self, name: str, prompt: list[int]) -> tuple[list[int], str]:
        """The answer to a prompt, and what of the prompt was resumed."""
        request = self.manager.begin_request(name, prompt)
        allocation, end = self.start(request)
        resumed = self.describe_resume(request)
        while True:
            self.compute(request, allocation, end)
            if request.num_tokens == len(prompt) + ANSWER_TOKENS:
                break
            next_end = min(request.num_tokens, request.num_computed_tokens + TOKENS_PER_STEP)
            end = self.manager.cut_prefill(request, next_end)
            while (room := self.manager.allocate(request, end)) is None:
                self.wait()  # stores hold pages until they have read them
            allocation = room
        self.offload.finished(request, monotonic())
        self.manager.free(request)
        return list(request.tokens[len(prompt) :]), resumed

    def start(self, request: RequestBlocks) -> tuple[Allocation, int]:
        """Waits for what is loaded, resumes, and makes room for the first step."""
        while True:
            if self.offload.prepare(request, monotonic()) is Readiness.READY:
                resume = self.manager.find_resume(request)
                end = min(request.num_tokens, resume.num_tokens + TOKENS_PER_STEP)
                end = self.manager.cut_prefill(request, end, resume)
                allocation = self.manager.allocate(request, end, resume=resume)
                if allocation is not None:
                    self.offload.started(request)
                    return allocation, end
                self.offload.call_in(request)
            self.wait()

    def compute(self, request: RequestBlocks, allocation: Allocation, end: int) -> None:
        """One step: the tokens up to `end`, and a new one if they are all that are known."""
        self.model.copy_pages(allocation)
        start = request.num_computed_tokens
        groups = zip(self.manager.config.groups, request.tables, strict=True)
        tables = {name: table.rows for group, table in groups for name in group.layer_names}
        token = self.model.next_token(list(request.tokens[start:end]), start, tables)
        self.manager.commit(request, end)
        self.offload.computed(request, monotonic())
        self.offload.poll(monotonic())
        if end == request.num_tokens:
            self.manager.append_tokens(request, [token])

    def wait(self) -> None:
        self.offload.wait(timeout_s=0.01)
        self.offload.poll(monotonic())

    def describe_resume(self, request: RequestBlocks) -> str:
        """Where the request goes on, and the blocks of each layer that this takes."""
        num_tokens = request.num_computed_tokens
        if num_tokens == 0:
            return "nothing resumed"
        medium = next(iter(self.offload.resumed_from(request)), "device")
        point = request.resume_point(num_tokens)
        groups = self.manager.config.groups
        blocks = [f"{' '.join(g.layer_names)} {r[0]}-{r[-1]}" for g in groups for r in g.spec.needed_blocks(point)]
        return f"{num_tokens} of {request.num_prompt_tokens} tokens from {medium}: blocks {', '.join(blocks)}"

    def close(self) -> None:
        """What was stored is on disk after it."""
        self.offload.flush(10.0, monotonic)
        self.offload.close()


# ---- 7. The same prompts, with ever less left on the device. ----
def main() -> None:
    random = torch.Generator().manual_seed(1)
    shared = torch.randint(VOCABULARY, (80,), generator=random).tolist()
    prompts = [shared + torch.randint(VOCABULARY, (40,), generator=random).tolist() for _ in range(3)]
    with tempfile.TemporaryDirectory() as disk:
        engine = ToyEngine(disk)
        answers = [serve(engine, prompts, "A new engine"), serve(engine, prompts, "Asked again")]
        engine.manager.reset_prefix_cache()
        answers += [serve(engine, prompts, "The device is emptied")]
        engine.close()
        engine = ToyEngine(disk)
        answers += [serve(engine, prompts, "A new engine finds the disk")]
        engine.close()
    if any(again != answers[0] for again in answers):
        raise SystemExit("The answers differ.")
    print("All answers are the same.")


def serve(engine: ToyEngine, prompts: list[list[int]], title: str) -> list[list[int]]:
    print(title)
    answers = []
    for number, prompt in enumerate(prompts):
        answer, resumed = engine.answer(f"{title}, prompt {number}", prompt)
        answers.append(answer)
        print(f"  prompt {number}: {resumed}")
    return answers


if __name__ == "__main__":
    main()
