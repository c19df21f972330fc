"""Engines of vLLM in processes of their own, which benchmarks ask in turn: lines of JSON to them, and from them."""

import json
import os
import subprocess
import sys
import time
from typing import Any

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    # huge pages, and large buffers that stay in the process: else engines differ by how their memory happens to lie
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}
_MARK = "ANSWER "


class Engine:
    """The script is started as `SCRIPT --engine ARGUMENTS...`, and calls `reply` for each line that it reads."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, script, "--engine", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT,
        )

    def ask(self, *question: Any) -> Any:
        to = self._process.stdin
        assert to is not None
        to.write(json.dumps(question) + "\n")
        to.flush()
        return self.read()

    def read(self) -> Any:
        """The next answer."""
        for line in self._process.stdout or ():
            if line.startswith(_MARK):
                return json.loads(line.removeprefix(_MARK))
        raise SystemExit("the engine has ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def kill(self) -> None:
        """As a crash ends it."""
        self._process.kill()
        self._process.wait()


def kv_transfer(**settings: Any) -> dict[str, Any]:
    """Gives an engine the plug-in with these settings. It loads whatever is there, unless `loads` says otherwise."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "OctavoOffloadingSpec",
            "spec_module_path": "octavo.vllm_plugin",
            "loads": "always",
            **settings,
        },
    }


def reply(message: Any) -> None:
    """In the engine's process."""
    print(_MARK + json.dumps(message), flush=True)


def make_model(folder: str) -> None:
    """A Llama of 30M parameters: small, but so large that a prompt is worth computing once."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=2048,
    )
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    time.sleep(0.1)  # an engine keeps nothing of weights that may be younger than itself
