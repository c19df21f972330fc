"""Tests of the engine share modules that lie beside them."""

import sys
from pathlib import Path

import pytest
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))
transformers.utils.logging.disable_progress_bar()


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tiny tensors are slower on many threads, and the same sums in another order are other sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
