"""Many clients, one engine thread: streams end, cancel, fall behind and survive, whoever else does what."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from hash_runner import HashEngine, greedy

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.outputs import FinishReason
from octavo.engine.sampling_params import SamplingParams
from octavo.errors import EngineBusyError, EngineClosedError, InputError, RequestTooLargeError
from octavo.testing import full, small_model

MODEL = small_model(full())
PROMPT = [(i * i) % 61 for i in range(30)]


@asynccontextmanager
async def running(engine=None, **options):
    engine = engine or HashEngine(MODEL, spare=20.0, **options)
    serving = AsyncEngine(engine)
    try:
        yield serving
    finally:
        assert await serving.close(timeout_s=0)
        assert not engine.manager.requests
        engine.manager.check_invariants()


class Gate:
    """Holds up the engine's steps, until it is told how many may go on."""

    def __init__(self, engine):
        self._permits = threading.Semaphore(0)
        self._run = engine.hash_runner.run
        self.arrived = threading.Semaphore(0)
        engine.hash_runner.run = self.run

    def run(self, batch):
        self.arrived.release()
        self._permits.acquire()
        return self._run(batch)

    def open(self, steps=1_000_000):
        self._permits.release(steps)

    async def wait_for_step(self):
        await asyncio.to_thread(self.arrived.acquire)


async def submit_three(serving, gate):
    """Three requests that are all in the engine, which is held up in a step."""
    first = await serving.submit(PROMPT, greedy(60))
    await gate.wait_for_step()
    others = [asyncio.create_task(serving.submit([seed, *PROMPT], greedy(60))) for seed in range(2)]
    await asyncio.sleep(0)  # they run up to where they wait for the engine
    assert len(serving._commands) == 2
    gate.open(1)
    await gate.wait_for_step()
    return [first, *[await task for task in others]]


async def collect(stream):
    tokens, outputs = {}, []
    async for output in stream:
        outputs.append(output)
        tokens.setdefault(output.index, []).extend(output.token_ids)
    return tokens, outputs


def test_many_clients_get_their_own_tokens():
    async def client(serving, seed):
        prompt = [(seed + i * 3) % 61 for i in range(5 + seed)]
        tokens, outputs = await collect(serving.generate(prompt, greedy(8)))
        assert tokens == {0: serving.engine.model.greedy(prompt, 8)}
        assert outputs[-1].finish_reason is FinishReason.LENGTH
        assert outputs[-1].num_output_tokens == 8

    async def main():
        async with running() as serving:
            await asyncio.gather(*(client(serving, seed) for seed in range(20)))

    asyncio.run(main())


def test_all_choices_come_through_one_stream():
    async def main():
        async with running() as serving:
            tokens, outputs = await collect(serving.generate(PROMPT, greedy(6, n=3)))
            expected = serving.engine.model.greedy(PROMPT, 6)
            assert tokens == {0: expected, 1: expected, 2: expected}
            assert sum(output.is_finished for output in outputs) == 3

    asyncio.run(main())


def test_what_is_wrong_is_raised_before_there_is_a_stream():
    async def main():
        engine = HashEngine(MODEL, spare=20.0)
        gate = Gate(engine)
        async with running(engine) as serving:
            with pytest.raises(RequestTooLargeError):
                await serving.submit([1] * 200, greedy(1))
            with pytest.raises(InputError, match="0 to 60"):
                await serving.submit([99], greedy(1))
            stream = await serving.submit(PROMPT, greedy(60), request_id="x")
            await gate.wait_for_step()
            again = asyncio.create_task(serving.submit(PROMPT, greedy(1), request_id="x"))
            await asyncio.sleep(0)  # it runs up to where it waits for the engine
            gate.open()
            with pytest.raises(InputError, match="there already"):
                await again
            tokens, _ = await collect(stream)
            assert len(tokens[0]) == 60, "the first of the name goes on"

    asyncio.run(main())


def test_a_slow_client_holds_up_nobody_and_loses_nothing():
    async def main():
        async with running() as serving:
            slow = await serving.submit(PROMPT, greedy(40, logprobs=0))
            await collect(serving.generate(PROMPT[::-1], greedy(50)))
            tokens, outputs = await collect(slow)
            assert tokens == {0: serving.engine.model.greedy(PROMPT, 40)}
            assert len(outputs) == 1, "what was not read came as one"
            assert [found.token_id for found in outputs[0].logprobs] == tokens[0]
            assert outputs[0].num_output_tokens == 40

    asyncio.run(main())


@pytest.mark.parametrize("way", ["break", "cancel", "aclose", "leave"])
def test_who_leaves_aborts(way):
    async def read_for_ever(serving, seen):
        async for _ in serving.generate(PROMPT, greedy(60)):
            seen.set()

    async def main():
        engine = HashEngine(MODEL, spare=20.0)
        gate = Gate(engine)
        async with running(engine) as serving:
            gate.open(3)
            if way == "break":
                stream = serving.generate(PROMPT, greedy(60))
                async for _ in stream:
                    break
                await stream.aclose()
            elif way == "cancel":
                seen = asyncio.Event()
                task = asyncio.create_task(read_for_ever(serving, seen))
                await seen.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            elif way == "aclose":
                stream = await serving.submit(PROMPT, greedy(60))
                await anext(stream)
                stream.close()
            else:
                async with await serving.submit(PROMPT, greedy(60)):
                    pass
            gate.open()
            snapshot = await serving.snapshot()
            assert snapshot.num_running == snapshot.num_waiting == 0
            assert snapshot.counters.choices_finished == {"abort": 1}

    asyncio.run(main())


def test_cancelling_while_it_is_being_submitted_leaves_nothing():
    async def main():
        engine = HashEngine(MODEL, spare=20.0)
        gate = Gate(engine)
        async with running(engine) as serving:
            first = await serving.submit(PROMPT, greedy(3))
            await gate.wait_for_step()
            task = asyncio.create_task(serving.submit(PROMPT, greedy(60)))
            await asyncio.sleep(0)  # it runs up to where it waits for the engine
            assert len(serving._commands) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.open()
            await collect(first)
            assert (await serving.snapshot()).counters.choices_finished == {"length": 1, "abort": 1}
            assert not serving._streams

    asyncio.run(main())


def test_a_request_beyond_the_bounds_is_told_that_it_is_busy():
    async def main():
        engine = HashEngine(MODEL, spare=20.0, max_num_seqs=1, max_waiting=2)
        gate = Gate(engine)
        async with running(engine) as serving:
            streams = [await serving.submit(PROMPT, greedy(2))]
            await gate.wait_for_step()
            submitted = [asyncio.create_task(serving.submit(PROMPT, greedy(2))) for _ in range(2)]
            await asyncio.sleep(0)  # they run up to where they wait for the engine
            assert len(serving._commands) == 2
            with pytest.raises(EngineBusyError):
                await serving.submit(PROMPT, greedy(2))
            gate.open()
            streams += [await task for task in submitted]
            for stream in streams:
                await collect(stream)
            await collect(serving.generate(PROMPT, greedy(2)))

    asyncio.run(main())


def test_calls_beyond_their_bound_are_told_that_it_is_busy():
    async def main():
        engine = HashEngine(MODEL, spare=20.0, max_num_seqs=1, max_waiting=2)
        gate = Gate(engine)
        async with running(engine) as serving:
            stream = await serving.submit(PROMPT, greedy(2))
            await gate.wait_for_step()
            calls = [asyncio.create_task(serving.call(lambda _: "done")) for _ in range(2000)]
            await asyncio.sleep(0)  # they run up to where they wait for the engine
            gate.open()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            await collect(stream)
        assert answers.count("done") == 1024 + 3
        assert all(isinstance(answer, EngineBusyError) for answer in answers if answer != "done")

    asyncio.run(main())


def test_closing_lets_requests_finish():
    async def main():
        engine = HashEngine(MODEL, spare=20.0)
        gate = Gate(engine)
        serving = AsyncEngine(engine)
        stream = await serving.submit(PROMPT, greedy(20))
        await gate.wait_for_step()
        closing = asyncio.create_task(serving.close(timeout_s=60))
        await asyncio.sleep(0)  # it runs up to where it waits for the thread
        assert not serving.is_open
        with pytest.raises(EngineClosedError, match="shutting down"):
            await serving.submit(PROMPT, greedy(1))
        gate.open()
        tokens, outputs = await collect(stream)
        assert len(tokens[0]) == 20
        assert outputs[-1].finish_reason is FinishReason.LENGTH
        assert await closing
        with pytest.raises(EngineClosedError):
            await serving.snapshot()
        assert await serving.close(), "closing twice is fine"

    asyncio.run(main())


def test_closing_aborts_what_does_not_finish_in_time():
    async def main():
        engine = HashEngine(MODEL, spare=20.0)
        gate = Gate(engine)
        serving = AsyncEngine(engine)
        streams = await submit_three(serving, gate)
        closing = asyncio.create_task(serving.close(timeout_s=0))
        await asyncio.sleep(0)  # it runs up to where it waits for the thread
        assert not serving.is_open
        gate.open(1)
        for stream in streams:
            _, outputs = await collect(stream)
            assert outputs[-1].finish_reason is FinishReason.ABORT
        assert await closing
        assert not engine.manager.requests

    asyncio.run(main())


def test_a_dying_engine_tells_every_stream(monkeypatch):
    async def main():
        engine = HashEngine(MODEL, spare=20.0)
        gate = Gate(engine)
        serving = AsyncEngine(engine)
        streams = await submit_three(serving, gate)

        def die(_):
            raise RuntimeError("a broken invariant")

        monkeypatch.setattr(engine.scheduler, "schedule", die)
        gate.open()
        for stream in streams:
            with pytest.raises(EngineClosedError, match="a broken invariant"):
                await collect(stream)
        with pytest.raises(EngineClosedError, match="has died"):
            await serving.submit(PROMPT, greedy(1))
        assert isinstance(serving.error, RuntimeError)
        assert not serving.is_open
        assert await serving.close()

    asyncio.run(main())


def test_a_failed_step_reaches_its_streams_and_the_engine_lives():
    async def main():
        async with running() as serving:
            serving.engine.hash_runner.fails_next = 1
            _, outputs = await collect(serving.generate(PROMPT, greedy(5)))
            assert outputs[-1].finish_reason is FinishReason.ERROR
            tokens, _ = await collect(serving.generate(PROMPT, greedy(5)))
            assert tokens == {0: serving.engine.model.greedy(PROMPT, 5)}

    asyncio.run(main())


def test_calls_run_between_steps_and_their_errors_are_the_callers():
    async def main():
        async with running() as serving:
            await collect(serving.generate(PROMPT, greedy(2)))
            assert (await serving.snapshot()).groups[0].indexed_blocks > 0
            await serving.reset_prefix_cache()
            assert (await serving.snapshot()).groups[0].indexed_blocks == 0
            with pytest.raises(ZeroDivisionError):
                await serving.call(lambda _: 1 // 0)
            assert await serving.call(lambda _: threading.current_thread().name) == "octavo-engine"

    asyncio.run(main())


def test_a_call_that_ends_the_engine_leaves_nobody_waiting():
    class Fatal(BaseException):
        pass

    def end(_):
        raise Fatal("out of luck")

    async def main():
        serving = AsyncEngine(HashEngine(MODEL, spare=20.0))
        with pytest.raises(EngineClosedError, match="out of luck"):
            await serving.call(end)
        assert await serving.close()
        with pytest.raises(EngineClosedError, match="has died"):
            await serving.snapshot()

    asyncio.run(main())


def test_a_loop_that_has_ended_takes_its_requests_along():
    engine = HashEngine(MODEL, spare=20.0)
    gate = Gate(engine)

    async def leave(serving):
        stream = await serving.submit(PROMPT, greedy(60))
        await gate.wait_for_step()
        return stream

    async def main(serving):
        gate.open()
        while (snapshot := await serving.snapshot()).num_running:
            pass
        return snapshot

    async def start():
        return AsyncEngine(engine)

    serving = asyncio.run(start())
    asyncio.run(leave(serving))
    assert asyncio.run(main(serving)).counters.choices_finished == {"abort": 1}
    assert asyncio.run(serving.close(timeout_s=0))


def test_a_seed_gives_the_same_tokens_in_a_crowd():
    async def main():
        params = SamplingParams(max_tokens=12, seed=11, top_p=0.9)
        async with running() as serving:
            alone, _ = await collect(serving.generate(PROMPT, params))
            await serving.reset_prefix_cache()
            others = [collect(serving.generate([i, *PROMPT], SamplingParams(max_tokens=15))) for i in range(6)]
            crowd = await asyncio.gather(collect(serving.generate(PROMPT, params)), *others)
            assert crowd[0][0] == alone

    asyncio.run(main())
