"""What is known to be wrong before weights are read."""

import pytest

from octavo.engine import EngineConfig, check_before_loading, save_tiny_model
from octavo.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny_model("qwen3_next", folder)
    return folder


@pytest.mark.parametrize("name", ["attention_block_size", "state_block_size"])
@pytest.mark.parametrize(("size", "longest"), [(4097, None), (10**26, None), (513, 512)])
def test_a_block_that_no_context_fills_is_refused(folder, name, size, longest):
    config = EngineConfig(model=folder, max_model_len=longest, **{name: size})
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(InputError, match=rf"{name} = {size:,} is more than .* {longest or 4096:,} tokens.*\({flag}\)"):
        check_before_loading(config, None)


@pytest.mark.parametrize("wishes", [{"max_model_len": 8}, {"max_model_len": 512, "state_block_size": 512}, {}])
def test_other_blocks_are_taken(folder, wishes):
    check_before_loading(EngineConfig(model=folder, **wishes), None)
