"""Sets the real vLLM up for tests. To be imported before vLLM is."""

import os

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",  # tiny operations end sooner than two threads meet, the more so on a busy machine
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
}
