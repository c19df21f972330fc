"""A model of hashes: its next token depends on every token that its layers read through the block tables.

Attention pages hold tokens, state pages a running hash. So a table, a copy or a preemption that is wrong anywhere in
what a layer reads gives other logits, and `HashModel.logits` says from the tokens alone what they ought to be.
"""

import zlib
from dataclasses import replace

import numpy as np
import torch

from octavo.blocks import NULL_BLOCK, KVCacheManager
from octavo.engine.batch import StepLogits
from octavo.engine.engine import Engine
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import SchedulerLimits
from octavo.specs import ChunkedLocalAttentionSpec, SlidingWindowSpec

VOCAB_SIZE = 61
_STATE_SLOT = -1


class HashModel:
    """What the layers of a plan would compute, were they hashes."""

    def __init__(self, config):
        self.specs = [group.spec.first for group in config.groups]

    def logits(self, tokens):
        """After the last of these tokens."""
        read = []
        for spec in self.specs:
            if spec.holds_checkpoints:
                read.append(self.next_state(0, tokens))
            else:
                read.append(tuple(tokens[self.first_read(spec, len(tokens) - 1) :]))
        return self.of_read(read)

    @staticmethod
    def first_read(spec, position):
        if isinstance(spec, SlidingWindowSpec):
            return max(0, position - spec.sliding_window + 1)
        if isinstance(spec, ChunkedLocalAttentionSpec):
            return position // spec.attention_chunk_size * spec.attention_chunk_size
        return 0

    @staticmethod
    def next_state(state, tokens):
        for token in tokens:
            state = zlib.crc32(b"%d" % token, state)
        return state

    @staticmethod
    def of_read(read):
        return np.random.default_rng(zlib.crc32(repr(read).encode())).standard_normal(VOCAB_SIZE).astype(np.float32)

    def greedy(self, prompt, num_tokens):
        tokens = list(prompt)
        for _ in range(num_tokens):
            tokens.append(int(self.logits(tokens).argmax()))
        return tokens[len(prompt) :]


class HashRunner:
    """Computes a `HashModel` over pages, as a runner does."""

    def __init__(self, config):
        self.config = config
        self.model = HashModel(config)
        self.pages = {}
        self.steps = []
        """(start, number of tokens) of every sequence, step by step."""
        self.fails_next = 0
        """Steps that are yet to fail, half way through their writes."""
        self.fails_copies = False
        self.num_moves = 0

    def execute(self, allocations):
        if self.fails_copies:
            raise RuntimeError("no copy today")
        for allocation in allocations:
            self.num_moves += len(allocation.moves)
            for move in allocation.moves:
                self._copy(move.page_class, move.source, move.destination)
            for copy in allocation.copies:
                self._copy(self.config.groups[copy.group_idx].page_class, copy.source, copy.destination)

    def run(self, batch):
        self.steps.append([(s.num_computed_tokens, len(s.token_ids)) for s in batch.sequences])
        logits = [self._compute(sequence) for sequence in batch.sequences]
        if self.fails_next:
            self.fails_next -= 1
            raise RuntimeError("out of luck")
        return StepLogits(
            last=torch.from_numpy(np.stack([rows[-1] for rows in logits])),
            all_positions={
                i: torch.from_numpy(np.stack(rows))
                for i, rows in enumerate(logits)
                if batch.sequences[i].wants_all_logits
            },
        )

    def _copy(self, page_class, source, destination):
        self.pages[page_class, destination] = dict(self.pages.get((page_class, source), {}))

    def _compute(self, sequence):
        start, tokens = sequence.num_computed_tokens, list(sequence.token_ids)
        assert tokens, "a sequence without tokens"
        rows = []
        for position, token in enumerate(tokens, start):
            is_wanted = sequence.wants_all_logits or position == start + len(tokens) - 1
            read = [self._step(group, sequence.block_tables[group], position, token, is_wanted) for group in self._all]
            if is_wanted:
                rows.append(self.model.of_read(read))
        return rows

    @property
    def _all(self):
        return range(len(self.config.groups))

    def _step(self, group, table, position, token, is_wanted):
        """Writes a token, and reads what the group's layers read at its position."""
        spec, page_class = self.model.specs[group], self.config.groups[group].page_class
        if spec.holds_checkpoints:
            page = self._page(page_class, table[0])
            page[_STATE_SLOT] = self.model.next_state(page[_STATE_SLOT] if position else 0, [token])
            return page[_STATE_SLOT]
        self._page(page_class, table[position // spec.block_size])[position % spec.block_size] = token
        if not is_wanted:
            return None
        first = self.model.first_read(spec, position)
        return tuple(
            self._page(page_class, table[p // spec.block_size]).get(p % spec.block_size)
            for p in range(first, position + 1)
        )

    def _page(self, page_class, row):
        assert row != NULL_BLOCK, "a layer reads a block that is not there"
        return self.pages.setdefault((page_class, row), {})


def greedy(max_tokens, **others):
    return SamplingParams(max_tokens=max_tokens, temperature=0, **others)


class HashEngine(Engine):
    """An engine over a `HashRunner`, and what a test does with it."""

    def __init__(
        self,
        small_model,
        *,
        spare=4.0,
        max_step_tokens=None,
        max_num_seqs=None,
        max_waiting=100,
        is_caching=True,
        enable_events=False,
        make_offload=None,
        make_feed=None,
        **others,
    ):
        """By default steps are as long as the model's plan has room for, and eight sequences run at once."""
        if max_step_tokens is not None:
            small_model = replace(small_model, limits=replace(small_model.limits, max_step_tokens=max_step_tokens))
        config = small_model.plan(spare)
        max_step_tokens = config.limits.max_step_tokens
        max_num_seqs = max_num_seqs or min(8, max_step_tokens)
        manager = KVCacheManager(config, enable_prefix_caching=is_caching, enable_events=enable_events)
        self.hash_runner = HashRunner(config)
        super().__init__(
            self.hash_runner,
            manager,
            SchedulerLimits(max_step_tokens=max_step_tokens, max_num_seqs=max_num_seqs, max_waiting=max_waiting),
            vocab_size=VOCAB_SIZE,
            offload=make_offload and make_offload(manager),
            event_feed=make_feed and make_feed(manager),
            **others,
        )
        self.model = self.hash_runner.model
        self.outputs = {}
        """(request, choice) -> its outputs."""

    def add(self, name, prompt, max_tokens=4, *, tenant=None, **params):
        self.add_request(name, prompt, greedy(max_tokens, **params), tenant=tenant)

    def take(self, outputs):
        for output in outputs:
            self.outputs.setdefault((output.request_id, output.index), []).append(output)

    def run_step(self):
        self.take(self.step())
        self.manager.check_invariants(self.held_by_transfers())

    def drop(self, name):
        self.take(self.abort(name))
        self.manager.check_invariants(self.held_by_transfers())

    def held_by_transfers(self):
        """(group, row) of every page that loads and stores hold."""
        return ()

    def run_all(self):
        """Until nothing is left; then nothing may be held."""
        while self.has_unfinished:
            self.run_step()
        assert not self.manager.requests
        assert all(usage.held_pages == self._num_reserved[i] for i, usage in enumerate(self.manager.usage()))

    @property
    def _num_reserved(self):
        reserved = [0] * len(self.manager.config.page_classes)
        for group in self.manager.config.groups:
            if group.page_class is not None:
                reserved[group.page_class] += group.reserved_blocks
        return reserved

    def tokens(self, name, index=0):
        return [token for output in self.outputs[name, index] for token in output.token_ids]

    def last(self, name, index=0):
        return self.outputs[name, index][-1]
