"""The engine over real models: tokens are those of plain Hugging Face, whatever happens around them."""

import json
import math
from pathlib import Path

import pytest
import torch
from hash_runner import greedy

from octavo.blocks import KVCacheManager
from octavo.engine import ModelRunner, load_model
from octavo.engine.building import plan_for
from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.outputs import FinishReason
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import SchedulerLimits
from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model, save_tiny_model
from octavo.errors import InputError, NotEnoughMemoryError, OctavoError
from octavo.events import PublisherConfig

NEW_TOKENS = 16
FAMILIES = ["llama", "gemma3", "qwen3_next", "deepseek_v3"]


def prompts():
    generator = torch.Generator().manual_seed(3)

    def tokens(number):
        return torch.randint(3, VOCAB_SIZE, (number,), generator=generator).tolist()

    shared = tokens(80)
    lengths = [5, 1, 150, 33, 64]
    return [*map(tokens, lengths), shared + tokens(17), shared + tokens(40), shared]


class Family:
    """A tiny model, in our engine and in plain Hugging Face."""

    def __init__(self, name, folder):
        save_tiny_model(name, folder)
        self.model = load_model(folder)
        self.plain = build_tiny_model(name)
        self.expected = [self.plain_tokens(prompt) for prompt in prompts()]

    def plain_tokens(self, prompt, num_tokens=NEW_TOKENS):
        with torch.inference_mode():
            tokens = torch.tensor([prompt])
            mask = torch.ones_like(tokens)  # else token 0, the padding, is hidden
            output = self.plain.generate(tokens, attention_mask=mask, max_new_tokens=num_tokens, do_sample=False)
        return output[0, len(prompt) :].tolist()

    def plain_logits(self, tokens):
        with torch.inference_mode():
            return self.plain(torch.tensor([tokens])).logits[0]

    def engine(self, memory=32 << 20, context=256, **options):
        config = EngineConfig(
            model=Path(),
            device_memory_bytes=memory,
            max_model_len=context,
            attention_block_size=8,
            state_block_size=16,
            **{"max_step_tokens": 96, "max_num_seqs": 32} | options,
        )
        plan = plan_for(self.model, config)
        return Engine(
            ModelRunner(self.model, plan),
            KVCacheManager(plan),
            SchedulerLimits(max_step_tokens=config.max_step_tokens, max_num_seqs=config.max_num_seqs, max_waiting=100),
            vocab_size=self.model.vocab_size,
        )


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    return Family(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    save_tiny_model("llama", folder)
    return folder


def finish(engine):
    """Runs to the end; returns tokens by request and choice, and the outputs."""
    tokens, outputs = {}, []
    while engine.has_unfinished:
        for output in engine.step():
            tokens.setdefault((output.request_id, output.index), []).extend(output.token_ids)
            outputs.append(output)
    engine.manager.check_invariants()
    assert not engine.manager.requests
    return tokens, outputs


def generate(engine, some_prompts, num_tokens=NEW_TOKENS, **params):
    for number, prompt in enumerate(some_prompts):
        engine.add_request(str(number), prompt, greedy(num_tokens, **params))
    tokens, outputs = finish(engine)
    return [tokens[str(number), 0] for number in range(len(some_prompts))], outputs


def test_cold_and_from_the_cache(family):
    engine = family.engine()
    assert generate(engine, prompts())[0] == family.expected
    tokens, outputs = generate(engine, prompts())
    assert tokens == family.expected
    for output in outputs:
        assert output.cached_tokens.get("device", 0) >= (output.num_prompt_tokens - 1) // 16 * 16
    for prompt, expected in zip(prompts(), family.expected, strict=True):  # one by one, and further
        assert generate(engine, [prompt + expected[:5]])[0][0][: NEW_TOKENS - 5] == expected[5:]


def test_the_default_device_of_the_program_around_changes_no_token(family):
    some_prompts = prompts()
    with torch.device("meta"):
        assert generate(family.engine(), some_prompts)[0] == family.expected


@pytest.mark.parametrize("budget", [32, 48, 512])
def test_the_budget_of_a_step_changes_no_token(family, budget):
    engine = family.engine(max_step_tokens=budget)
    assert generate(engine, prompts())[0] == family.expected


def test_a_tight_pool_changes_no_token(family):
    engine = family.engine(memory=smallest_memory(family), context=200)
    for _ in range(2):
        assert generate(engine, prompts())[0] == family.expected
    assert engine.counters.preemptions > 0


def smallest_memory(family):
    """For one longest request of 200 tokens."""
    memory = 64 << 10
    while True:
        try:
            family.engine(memory=memory, context=200)
        except NotEnoughMemoryError:
            memory += 16 << 10
        else:
            return memory


def test_thirty_two_sequences_at_once(family):
    engine = family.engine()
    many = [prompt[: 1 + (7 * i) % len(prompt)] for i, prompt in enumerate(prompts() * 4)]
    tokens, _ = generate(engine, many, 6)
    for prompt, of_prompt in zip(many[::5], tokens[::5], strict=True):
        assert of_prompt == family.plain_tokens(prompt, 6)


def test_forks_and_aborts_change_no_token(family):
    engine = family.engine()
    for number, prompt in enumerate(prompts()):
        engine.add_request(str(number), prompt, greedy(NEW_TOKENS, n=1 + number % 3))
        engine.add_request(f"{number} gone", [*prompt, 9], greedy(NEW_TOKENS, n=2))
    tokens = {}
    for step in range(200):
        if not engine.has_unfinished:
            break
        for output in engine.step():
            tokens.setdefault((output.request_id, output.index), []).extend(output.token_ids)
        engine.abort(f"{step // 2} gone")
        engine.manager.check_invariants()
    assert not engine.manager.requests
    for number, expected in enumerate(family.expected):
        for index in range(1 + number % 3):
            assert tokens[str(number), index] == expected


def test_logprobs_are_those_of_the_model(family):
    engine = family.engine(max_step_tokens=64)
    prompt = prompts()[2]
    generate(engine, [prompt])
    _, outputs = generate(engine, [prompt], 4, logprobs=3, prompt_logprobs=2)
    found = [*outputs[0].prompt_logprobs[1:], *(of_token for output in outputs for of_token in output.logprobs)]
    tokens = prompt + [of_token for output in outputs for of_token in output.token_ids]
    expected = family.plain_logits(tokens).log_softmax(-1)
    assert len(found) == len(tokens) - 1
    for position, of_token in enumerate(found):
        assert of_token.token_id == tokens[position + 1]
        assert of_token.logprob == pytest.approx(expected[position, of_token.token_id].item(), abs=1e-3)
    top = expected.topk(3)
    assert [token for token, _ in found[-1].top] == top.indices[len(tokens) - 2].tolist()
    assert outputs[0].cached_tokens == {}


def test_a_seeded_request_gives_the_same_in_any_company(family):
    params = SamplingParams(max_tokens=NEW_TOKENS, seed=4, temperature=0.7, top_p=0.9)
    engine = family.engine()
    engine.add_request("x", prompts()[3], params)
    alone = finish(engine)[0]["x", 0]
    for number, prompt in enumerate(prompts()):
        engine.add_request(str(number), prompt, SamplingParams(max_tokens=9, top_k=5))
    engine.add_request("x", prompts()[3], params)
    assert finish(engine)[0]["x", 0] == alone


def test_from_a_folder_to_text(llama_folder):
    engine = Engine.from_config(EngineConfig(model=llama_folder, device_memory_bytes=16 << 20))
    prompt = engine.tokenizer.encode("Hello, world")
    engine.add_request("a", prompt, greedy(30))
    tokens, outputs = finish(engine)
    text = "".join(output.text for output in outputs)
    assert text == engine.tokenizer.decode(tokens["a", 0], skip_special_tokens=True)
    assert engine.max_model_len <= 4096

    stop = text[10:13]
    engine.add_request("a", prompt, greedy(30, stop=(stop,)))
    tokens, outputs = finish(engine)
    assert "".join(output.text for output in outputs) == text[: text.index(stop)]
    assert outputs[-1].finish_reason is FinishReason.STOP
    assert outputs[-1].stop_reason == stop
    engine.close()


@pytest.mark.parametrize("ends_by", ["length", "a stop token"])
def test_a_stop_string_that_only_half_a_character_shows_ends_the_choice(llama_folder, ends_by):
    """It comes to light when the text ends: until then more bytes could make another character."""
    engine = Engine.from_config(EngineConfig(model=llama_folder, device_memory_bytes=16 << 20))
    engine.add_request("free", [5, 6, 7], greedy(60, ignore_eos=True))
    tokens = finish(engine)[0]["free", 0]
    replacement = "\N{REPLACEMENT CHARACTER}"
    at = next(i for i in range(59) if engine.tokenizer.decode([tokens[i]]) == replacement)
    stop_ids = () if ends_by == "length" else (tokens[at + 1],)
    params = greedy(1 + len(stop_ids), stop=(replacement,), stop_token_ids=stop_ids, ignore_eos=True)
    engine.add_request("stopped", [5, 6, 7, *tokens[:at]], params)
    _, outputs = finish(engine)
    assert [output.token_ids for output in outputs] == [(token,) for token in tokens[at : at + 1 + len(stop_ids)]]
    assert "".join(output.text for output in outputs) == ""
    assert outputs[-1].finish_reason is FinishReason.STOP
    assert outputs[-1].stop_reason == replacement
    engine.close()


def test_the_models_own_end_and_stop_tokens(llama_folder, tmp_path):
    for path in llama_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    first = Engine.from_config(EngineConfig(model=tmp_path, device_memory_bytes=16 << 20))
    first.add_request("a", [5, 6, 7], greedy(20))
    tokens = finish(first)[0]["a", 0]
    end = tokens[6]
    expected = tokens[: tokens.index(end) + 1]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))

    engine = Engine.from_config(EngineConfig(model=tmp_path, device_memory_bytes=16 << 20))
    engine.add_request("stops", [5, 6, 7], greedy(20))
    engine.add_request("ignores", [5, 6, 7], greedy(20, ignore_eos=True))
    engine.add_request("named", [5, 6, 7], greedy(20, ignore_eos=True, stop_token_ids=(tokens[3],)))
    engine.add_request("waits", [5, 6, 7], greedy(20, min_tokens=15))
    found, outputs = finish(engine)
    last = {output.request_id: output for output in outputs if output.is_finished}
    assert found["stops", 0] == expected
    assert last["stops"].finish_reason is FinishReason.STOP
    assert last["stops"].stop_reason is None
    assert found["ignores", 0] == tokens
    assert found["named", 0] == tokens[: tokens.index(tokens[3]) + 1]
    assert last["named"].stop_reason == tokens[3]
    assert len(found["waits", 0]) >= 15
    assert end not in found["waits", 0][:15]


def test_a_folder_without_tokenizer_serves_tokens(llama_folder, tmp_path):
    for path in llama_folder.iterdir():
        if "token" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    engine = Engine.from_config(EngineConfig(model=tmp_path, device_memory_bytes=16 << 20))
    assert engine.tokenizer is None
    engine.add_request("a", [5, 6, 7], greedy(3))
    tokens, outputs = finish(engine)
    assert len(tokens["a", 0]) == 3
    assert all(output.text == "" for output in outputs)


def test_wrong_configs_are_refused_by_name(llama_folder):
    for wrong in ({"max_step_tokens": 0}, {"max_model_len": 0}, {"max_num_seqs": 5000}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            EngineConfig(model=llama_folder, **wrong)
    with pytest.raises(OctavoError, match="float7"):
        Engine.from_config(EngineConfig(model=llama_folder, dtype="float7"))


def test_the_last_token_of_a_resumed_prompt_counts_as_computed(llama_folder):
    engine = Engine.from_config(EngineConfig(model=llama_folder, device_memory_bytes=16 << 20))
    for name in ("first", "again"):
        engine.add_request(name, list(range(3, 3 + 33)), greedy(4))
        finish(engine)
    counters = engine.snapshot().counters
    assert sum(counters.tokens_resumed.values()) == 32
    assert counters.prefill_tokens_computed == 33 + 1
    engine.close()


def test_a_snapshot_adds_up(llama_folder):
    engine = Engine.from_config(
        EngineConfig(
            model=llama_folder, device_memory_bytes=16 << 20, kv_events=PublisherConfig(endpoint="tcp://127.0.0.1:*")
        )
    )
    engine.add_request("a", list(range(3, 103)), greedy(9, n=2))
    for _ in range(4):
        engine.step()
    snapshot = engine.snapshot()
    group, of_class = snapshot.groups[0], snapshot.classes[0]
    assert snapshot.num_running == 2
    assert group.held_blocks == of_class.held_pages == math.ceil(100 / 16) + 1
    assert group.indexed_blocks == 100 // 16
    finish(engine)
    assert snapshot.num_running == 2, "a snapshot stays as it was"
    after = engine.snapshot()
    assert after.counters.output_tokens == 18
    assert after.counters.prefill_tokens_computed == 100
    assert after.counters.choices_finished == {"length": 2}
    assert 0 < after.counters.forward_s <= after.counters.step_s
    engine.close()
