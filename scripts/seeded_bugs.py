"""The seeded bugs of `mutation_check.py`: what is replaced by what, and which tests ought to see it."""

from dataclasses import dataclass

Tests = tuple[str, ...]
"""Arguments of pytest."""

WINDOW = ("tests/engine/test_identical.py", "-k", "gemma3 and not gemma3n")
STATE = ("tests/engine/test_identical.py", "-k", "qwen3_next")
BITS_IN_MEMORY = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and flip_in_memory")
BITS_ON_DISK = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and (flips or between)")
HANGS = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and (HANGS or hangs)")
RESTARTS = ("tests/engine/test_identical_restarts.py", "-k", "llama")
LATE = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and (begin_late or too_late)")
OFFLOADING = ("tests/offload/test_state_machine.py", "-k", "wrong and window and full")
MANAGER = ("tests/offload/test_manager.py", "tests/offload/test_manager_tiers.py")
WAITS = ("tests/offload/test_scheduler.py",)
FORKS = ("tests/blocks/test_state_machine.py", "-k", "null")
LIVENESS = ("tests/engine/test_liveness.py", "-k", "loaded_ahead")
TURNS = ("tests/engine/test_scheduler.py", "-k", "tenant")
LENDING = ("tests/offload/test_lending.py",)
STALLS = ("tests/engine/test_stalls.py",)
POINTS = (
    "tests/policies/test_resume_points.py",
    "-k",
    "renews or comes_back or fork or saves_more or together or went_through",
)
DOCUMENTS = ("tests/sim/test_policy_net.py", "-k", "documents_rather")
LOOPS = ("tests/sim/test_policy_net.py", "-k", "part_of_a_loop")
COMPARED = ("tests/engine/test_compared.py", "-k", "llama and not taken")
_OTHER_STAGED = "Narrow or Large or Direct or Units or Unpinned"
GPU_WORKER = ("tests/transfer/test_workers.py", "-k", "TestStagedWorker and they")
PLACEMENT = ("tests/router/test_placement.py",)
BLOCKS = ("tests/blocks/test_state_machine.py", "-k", "window and full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One wrong line, and who ought to see it."""

    name: str
    file: str
    """Under src/octavo."""
    right: str
    wrong: str
    tests: Tests


ENGINE_BUGS = (
    Bug(
        name="a window needs one token less",
        file="specs/attention.py",
        right="first = max(0, point.num_tokens - self.sliding_window + 1)",
        wrong="first = max(0, point.num_tokens - self.sliding_window + 2)",
        tests=WINDOW,
    ),
    Bug(
        name="a query sees one token more than its window",
        file="engine/cache/visibility.py",
        right="np.maximum(queries - (spec.sliding_window - 1), 0)",
        wrong="np.maximum(queries - spec.sliding_window, 0)",
        tests=WINDOW,
    ),
    Bug(
        name="stale state: a page is not copied before it is written",
        file="engine/cache/pages.py",
        right="view[copy.destination].copy_(view[copy.source])",
        wrong="view[copy.destination].zero_()",
        tests=STATE,
    ),
    Bug(
        name="stale state: states of a batch are not written back",
        file="engine/cache/bound_states.py",
        right="tensor.index_copy_(0, self._segment.write_rows, state.to(tensor.dtype))",
        wrong="tensor.index_select(0, self._segment.write_rows)",
        tests=STATE,
    ),
    Bug(
        name="chunks are not cut where a checkpoint is wanted",
        file="blocks/kv_cache_manager.py",
        right="return num_tokens if boundary is None else min(num_tokens, boundary)",
        wrong="return num_tokens",
        tests=STATE,
    ),
    Bug(
        name="a request may resume at its last token",
        file="specs/resume.py",
        right="return max(0, (num_tokens - 1) // granularity * granularity)",
        wrong="return max(0, num_tokens // granularity * granularity)",
        tests=WINDOW,
    ),
    Bug(
        name="the plan's own distance of checkpoints bounds the rule of promises",
        file="offload/loader.py",
        right="most_spacing=device.config.asked_interval_tokens,",
        wrong="most_spacing=device.config.checkpoint_interval_tokens,",
        tests=("tests/offload/test_promises.py", "-k", "little_room"),
    ),
    Bug(
        name="a simulated fleet runs ahead of who waits for an answer",
        file="sim/replay.py",
        right="    while arrivals.depends_on_ends and busy:\n",
        wrong="    while arrivals.depends_on_ends and len(busy) > 99:\n",
        tests=("tests/sim/test_replay.py", "-k", "follows"),
    ),
    Bug(
        name="another group's chunk is loaded",
        file="offload/request_state.py",
        right='make_offload_key(BlockHash(b""), group_idx)',
        wrong='make_offload_key(BlockHash(b""), 0)',
        tests=WINDOW,
    ),
    Bug(
        name="a resume point is promised without its window",
        file="offload/store_plan.py",
        right="blocks.device, blocks.offloaded.missing_in(run), run)",
        wrong="blocks.device, [] if state.group_idx else blocks.offloaded.missing_in(run), run)",
        tests=WINDOW,
    ),
    Bug(
        name="pages may be written while a store reads them",
        file="offload/storer.py",
        right="            self._device.hold(group_idx, own)\n",
        wrong=(
            "            self._device.hold(group_idx, own)\n"
            "            self._device.let_go(group_idx, own)\n"
            "        held = {}\n"
        ),
        tests=LATE,
    ),
    Bug(
        name="a chunk's blocks are one further",
        file="offload/offloaded_blocks.py",
        right="return [first_block + i for i in range(held_blocks.bit_length()) if held_blocks >> i & 1]",
        wrong="return [first_block + i + 1 for i in range(held_blocks.bit_length()) if held_blocks >> i & 1]",
        tests=OFFLOADING,
    ),
    Bug(
        name="the worker does not look at checksums",
        file="transfer/host_copier.py",
        right="wrong = [i for i, (a, b) in enumerate(zip(given, found, strict=True)) if a not in (None, b)]",
        wrong="wrong: list[int] = []",
        tests=BITS_IN_MEMORY,
    ),
    Bug(
        name="the worker of a GPU does not look at checksums",
        file="transfer/staged_worker.py",
        right="if one not in (None, other)}",
        wrong="if one is other is None}",
        tests=GPU_WORKER,
    ),
    Bug(
        name="blocks that a load leaves out shift those after them",
        file="transfer/staging.py",
        right="blocks.index_select(0, staged_rows)",
        wrong="blocks[: len(rows)]",
        tests=GPU_WORKER,
    ),
    Bug(
        name="the disk tier does not look at checksums",
        file="tiers/disk/layout.py",
        right="is_here and is_whole(record, length)",
        wrong="is_here",
        tests=BITS_ON_DISK,
    ),
    Bug(
        name="what has failed to load is published",
        file="offload/loader.py",
        right="            if index not in failed:\n",
        wrong="            if index >= 0:\n",
        tests=BITS_IN_MEMORY,
    ),
    Bug(
        name="a request waits for ever for its load",
        file="offload/loader.py",
        right="        if now < state.deadline:\n            return Readiness.WAIT if state.has_room",
        wrong="        if now < state.deadline + 1e9:\n            return Readiness.WAIT if state.has_room",
        tests=LATE,
    ),
    Bug(
        name="what was lent to waiting requests is not called in",
        file="engine/scheduler.py",
        right="            if self._offload.call_in(borrower.blocks):\n",
        wrong="            if borrower is None:\n",
        tests=LIVENESS,
    ),
    Bug(
        name="a tenant's waiting requests count as no seats of its",
        file="engine/turns.py",
        right="            num_seats += choice.num_seats\n",
        wrong="            num_seats += 0\n",
        tests=TURNS,
    ),
    Bug(
        name="a request is lent pages where it has no room to run",
        file="blocks/reservation.py",
        right="if not self._pool.can_take(whole):",
        wrong="if not self._pool.can_take(counts):",
        tests=LENDING,
    ),
    Bug(
        name="a load that was called in keeps its pages",
        file="offload/loader.py",
        right="        self._end_loan(state)\n        state.phase = LoadPhase.NEW\n",
        wrong="        state.phase = LoadPhase.NEW\n",
        tests=LENDING,
    ),
    Bug(
        name="chunks that come and go keep a request waiting",
        file="offload/loader.py",
        right="            state.renewals_left -= 1\n",
        wrong="            state.renewals_left -= 0\n",
        tests=LENDING,
    ),
    Bug(
        name="tokens computed again count as progress",
        file="engine/progress.py",
        right="if chunk.end > chunk.choice.most_computed:",
        wrong="if chunk.end > 0:",
        tests=STALLS,
    ),
    Bug(
        name="an idle engine with work does not stall",
        file="engine/progress.py",
        right="return now >= self._idle_since + _MOST_IDLE_S and self._stall()",
        wrong="return now >= self._idle_since + 1e9 and self._stall()",
        tests=STALLS,
    ),
    Bug(
        name="RoPE that depends on the other requests of a step is served",
        file="engine/models/compared.py",
        right="    if kind not in _STATIC_ROPE:\n",
        wrong="    if kind is None:\n",
        tests=COMPARED,
    ),
    Bug(
        name="a key that a family does not have is let pass",
        file="engine/models/compared.py",
        right="        return value is None\n",
        wrong="        return True\n",
        tests=COMPARED,
    ),
    Bug(
        name="a read from a tier has no deadline",
        file="offload/promotions.py",
        right="for job_id, read in self._reads.items() if read.deadline <= now]",
        wrong="for job_id, read in self._reads.items() if read.deadline + 1e9 <= now]",
        tests=HANGS,
    ),
    Bug(
        name="what was stored before a reset is found after it",
        file="offload/jobs.py",
        right="        return store.generation == self._generation\n",
        wrong="        return store.generation <= self._generation\n",
        tests=MANAGER,
    ),
    Bug(
        name="a chunk may be evicted while it is loaded",
        file="offload/manager.py",
        right="        self._resident.add_readers(keys, heads)\n        self._promotions.release(keys)\n",
        wrong="        self._promotions.release(keys)\n",
        tests=MANAGER,
    ),
    Bug(
        name="chunks stay held for a request that was aborted",
        file="offload/loader.py",
        right="        if state.awaited:\n",
        wrong="        if state.awaited and state.is_late:\n",
        tests=WAITS,
    ),
    Bug(
        name="a request from before a reset publishes its blocks",
        file="blocks/pool.py",
        right="if sequence.generation != self.generation or not hashes or not rows:",
        wrong="if not hashes or not rows:",
        tests=BLOCKS,
    ),
    Bug(
        name="forked requests write to the page that they share",
        file="blocks/managers.py",
        right="if block >= len(table.rows) or self.pages.is_writable(self.group_idx, table.rows[block]):",
        wrong="if block >= len(table.rows) or table.rows[block] >= 0:",
        tests=FORKS,
    ),
    Bug(
        name="points inside a prompt are taken for its end",
        file="policies/point_keeper.py",
        right="points.roles[below] == Role.NEW and points.num_tokens[below] <= promised_tokens:",
        wrong="points.roles[below] == Role.NEW and points.last_use[below] == points.now:",
        tests=DOCUMENTS,
    ),
    Bug(
        name="a use renews no point below",
        file="policies/resume_points.py",
        right="            if point and point != own and below != number:\n",
        wrong="            if point and point == own and below != number:\n",
        tests=POINTS,
    ),
    Bug(
        name="a point that requests went through is like any other inside a prompt",
        file="policies/resume_points.py",
        right="Role.PASSED if role is Role.BETWEEN else role",
        wrong="role",
        tests=POINTS,
    ),
    Bug(
        name="a point does not count what has gone before it",
        file="policies/held_stretches.py",
        right="self.changed.add(own or self.next_point(number))",
        wrong="self.changed.add(own or self.point_above(number))",
        tests=POINTS,
    ),
    Bug(
        name="what both sides of a fork keep costs neither",
        file="policies/point_keeper.py",
        right="shared = sum(map(stretches.shared_slots, held[:num_prefixes]))",
        wrong="shared = 0.0",
        tests=POINTS,
    ),
    Bug(
        name="points that free something only together never go",
        file="policies/point_keeper.py",
        right="shared = sum(map(stretches.slots_per_holder, held[num_prefixes:]))",
        wrong="shared = 0.0",
        tests=POINTS,
    ),
    Bug(
        name="the age of a point does not count when the least is sought",
        file="policies/point_table.py",
        right="hazards.index.take(rows * NUM_AGES + hazards.ages_of(self.now - last_use))",
        wrong="hazards.index.take(rows * NUM_AGES)",
        tests=LOOPS,
    ),
    Bug(
        name="what is asked of a lost end counts for the point before it",
        file="policies/hazards.py",
        right="is_own and (is_followed or class_ % _FOLLOWERS_COUNTED == 0)",
        wrong="is_own and (is_followed or class_ % _FOLLOWERS_COUNTED >= 0)",
        tests=DOCUMENTS,
    ),
    Bug(
        name="nobody looks again at who waits for its turn",
        file="offload/loader.py",
        right="return self._device_tokens(state) < state.tokens_there",
        wrong="return self._device_tokens(state) < 0",
        tests=LENDING,
    ),
    Bug(
        name="nobody sees that a window was given up too early",
        file="policies/resume_points.py",
        right="note_given_up([self._ghost_of(point)]",
        wrong="note_given_up([self._key_of(point)]",
        tests=POINTS,
    ),
    Bug(
        name="another model's chunks are found",
        file="engine/offloading.py",
        right="model_digest = digest_weights(engine.model, digests, loaded=stamps)",
        wrong='model_digest = b"any"',
        tests=RESTARTS,
    ),
    Bug(
        name="an engine that stands still gets ever more requests",
        file="router/engine_load.py",
        right="self.overdue_s = late_s",
        wrong="self.overdue_s = 0.0",
        tests=PLACEMENT,
    ),
    Bug(
        name="in a busy fleet computing costs nobody else",
        file="router/placement.py",
        right="toll = toll_per_s * (ahead_s + left * token_s / 2)",
        wrong="toll = 0.0 * (ahead_s + left * token_s / 2)",
        tests=PLACEMENT,
    ),
)
