"""Ray Serve LLM with two real vLLM replicas: `OctavoRouter` by its class path, and requests that resume."""

import random
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytest.importorskip("ray.serve.llm", reason="needs Ray Serve LLM beside vLLM: docs/ray.md#ray-serve-llm")
pytest.importorskip("vllm", reason="needs vLLM beside Ray Serve LLM: docs/ray.md#ray-serve-llm")

from ray import serve
from ray.serve.llm import LLMConfig, build_openai_app

from rigs.ports import free_port
from rigs.ray_llm import TellingServer
from rigs.running_ray import running_ray, wait_until

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(900),  # Ray starts, and two vLLMs
    pytest.mark.filterwarnings("ignore"),
]
NUM_STEMS, ALL = 8, 384
VLLM_TESTS = Path(__file__).parents[1] / "vllm"
ENVIRON = {
    "PYTHONHASHSEED": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "gemma3"
    make = f"from pathlib import Path; import vllm_models; vllm_models.make_model('gemma3', Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", make], check=True, cwd=VLLM_TESTS, capture_output=True)
    return str(folder)


def config_of(model):
    return LLMConfig(
        model_loading_config={"model_id": "tiny", "model_source": model},
        runtime_env={"env_vars": ENVIRON},
        accelerator_config={"kind": "cpu"},
        server_cls=TellingServer,
        engine_kwargs={
            "enforce_eager": True,
            "dtype": "bfloat16",
            "max_model_len": 1024,
            "max_num_seqs": 4,
            "kv_cache_memory_bytes": 64 << 20,
            "enable_prompt_tokens_details": True,
        },
        deployment_config={
            "num_replicas": 2,
            "request_router_config": {
                "request_router_class": "octavo.ray.OctavoRouter",
                "request_router_kwargs": {"read_call": "rigs.ray_llm:read_call"},
                "request_routing_stats_period_s": 0.5,
            },
        },
        experimental_configs={"num_ingress_replicas": 1},
    )


def test_a_prompt_goes_where_its_beginning_was_computed(model):
    rng = random.Random(0)
    port = free_port()
    with running_ray(num_cpus=8, http_options={"host": "127.0.0.1", "port": port}):
        serve.run(build_openai_app({"llm_configs": [config_of(model)]}), name="llm")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            wait_until(lambda: resumed_again(client, rng) == [ALL] * NUM_STEMS)  # Ray hands the endpoints on later
            assert resumed_again(client, rng) == [ALL] * NUM_STEMS


def resumed_again(client, rng):
    """The tokens that are resumed when prompts come that begin like earlier ones."""
    stems = [[rng.randrange(4, 512) for _ in range(400)] for _ in range(NUM_STEMS)]
    assert [cached_tokens(client, stem) for stem in stems] == [0] * NUM_STEMS
    return [cached_tokens(client, [*stem, 5, 6, 7]) for stem in stems]


def cached_tokens(client, prompt):
    answer = client.post("/v1/completions", json={"model": "tiny", "prompt": prompt, "max_tokens": 2})
    details = answer.raise_for_status().json()["usage"]["prompt_tokens_details"]
    return details["cached_tokens"] if details else 0
