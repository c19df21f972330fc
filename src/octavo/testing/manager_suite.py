"""The contract of a manager of a kind of cache, as a suite that its test subclasses:

class TestReferenceWindowManager(SingleTypeKVCacheManagerSuite):
    def specs(self):
        return [ReferenceWindowSpec(block_size=4, num_kv_heads=1, head_size=4, window=9)]

Give specs with small blocks: pools and requests are small, so that blocks are freed, evicted, moved and shared.
"""

from collections.abc import Iterator, Sequence

from octavo.blocks import KVCacheManager
from octavo.hashing import PLAIN, RequestIdentity
from octavo.specs import KVCacheSpec
from octavo.testing.block_machine import check_block_manager
from octavo.testing.naive_blocks import NaiveEngine
from octavo.testing.small_models import SmallModel, full, small_model


class KVCacheManagerSuite:
    """The contract of a device cache, for the models that a subclass names."""

    max_examples = 25
    """The number of random runs for each model."""

    def models(self) -> Sequence[SmallModel]:
        """The models to check."""
        raise TypeError(f"{type(self).__name__} must override models()")

    def test_no_sequence_of_calls_goes_wrong(self) -> None:
        for model in self.models():
            check_block_manager(model, max_examples=self.max_examples)

    def test_a_prompt_is_computed_once(self) -> None:
        """If nothing is evicted in between, a second request resumes at the last boundary."""
        for engine in self._engines():
            config = engine.config
            identity, num_encoder_tokens = self._encoder_input(engine)
            prompt = [token % 5 for token in range(config.limits.max_model_len // 2)]
            assert engine.serve(prompt, identity, num_encoder_tokens=num_encoder_tokens) == 0
            again = engine.serve(prompt, identity, num_encoder_tokens=num_encoder_tokens)
            assert again == config.last_boundary(len(prompt))

    def test_two_that_part_do_not_disturb_each_other(self) -> None:
        for engine in self._engines():
            identity, num_encoder_tokens = self._encoder_input(engine)
            first = engine.begin([1] * 21, identity, num_encoder_tokens=num_encoder_tokens)
            engine.prefill(first)
            second = engine.fork(first)
            engine.decode(first, [1, 0] * 8)
            engine.decode(second, [0, 1] * 8)
            engine.free(first)
            engine.decode(second, [2] * 4)
            engine.free(second)
            engine.check_nothing_leaks()

    def test_all_pages_come_back(self) -> None:
        for engine in self._engines():
            identity, num_encoder_tokens = self._encoder_input(engine)
            for num_outputs in (0, 1, 13):
                request = engine.begin([num_outputs] * 37, identity, num_encoder_tokens=num_encoder_tokens)
                engine.prefill(request)
                engine.decode(request, [0] * num_outputs)
                engine.preempt(request)
                engine.prefill(request)
                engine.free(request)
                engine.check_nothing_leaks()

    def _engines(self) -> Iterator[NaiveEngine]:
        for model in self.models():
            manager = KVCacheManager(model.plan(1.0), enable_events=True)
            engine = NaiveEngine(manager, watches_events=True)
            yield engine
            engine.take_changes()

    @staticmethod
    def _encoder_input(engine: NaiveEngine) -> tuple[RequestIdentity, int]:
        if all(group.spec.indexes_decoder_tokens for group in engine.config.groups):
            return PLAIN, 0
        num_encoder_tokens = engine.config.limits.max_encoder_tokens
        return RequestIdentity(encoder_digest=b"an input"), num_encoder_tokens


class SingleTypeKVCacheManagerSuite(KVCacheManagerSuite):
    """The contract of the manager that is registered for the specs that a subclass names."""

    def specs(self) -> Sequence[KVCacheSpec]:
        """The specs to check: one for each way in which the manager can behave."""
        raise TypeError(f"{type(self).__name__} must override specs()")

    def models(self) -> Sequence[SmallModel]:
        """Each spec beside full attention, with smaller pages and with larger ones."""
        return [small_model(spec, full(spec.block_size, heads=heads)) for spec in self.specs() for heads in (1, 3)]
