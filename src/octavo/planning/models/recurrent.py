"""The recurrent state of one layer on one rank: shapes and types, as vLLM lays them out (time before channels)."""

from octavo.planning.models.model import Model
from octavo.specs import CacheDType, MambaSpec

STATE_DTYPES = (CacheDType.FLOAT32, CacheDType.FLOAT16, CacheDType.BFLOAT16)


def mamba1_state(model: Model, *, intermediate_size: int, state_size: int, conv_kernel: int) -> MambaSpec:
    channels = model.per_rank(intermediate_size, "the SSM's intermediate size")
    return _spec(model, (conv_kernel - 1, channels), (channels, state_size), ssm_dtype(model))


def jamba_state(model: Model) -> MambaSpec:
    """Mamba 1 with the keys of Jamba."""
    view = model.view
    return mamba1_state(
        model,
        intermediate_size=view.count("mamba_expand") * view.count("hidden_size"),
        state_size=view.count("mamba_d_state"),
        conv_kernel=view.count("mamba_d_conv", minimum=2),
    )


def mamba2_state(
    model: Model,
    *,
    intermediate_size: int,
    num_heads: int,
    head_size: int,
    num_groups: int,
    state_size: int,
    conv_kernel: int,
    default_dtype: CacheDType | None = None,
    convolves_groups: bool = True,
) -> MambaSpec:
    """Heads are split over ranks, and so are groups; a single group is replicated. `convolves_groups`: the shared part
    of groups goes through the convolution too."""
    ranks = model.target.tensor_parallel_size
    heads = model.per_rank(num_heads, "the number of SSM heads")
    if num_groups % ranks and num_groups != 1:
        raise model.unsplittable("the number of SSM groups", num_groups, otherwise="replicated, as a single one is")
    groups = num_groups // ranks if num_groups % ranks == 0 else 1
    channels = model.per_rank(intermediate_size, "the SSM's intermediate size")
    channels += 2 * groups * state_size if convolves_groups else 0
    conv, ssm = (conv_kernel - 1, channels), (heads, head_size, state_size)
    return _spec(model, conv, ssm, ssm_dtype(model, default_dtype))


def gated_delta_state(
    model: Model, *, num_k_heads: int, num_v_heads: int, k_head_size: int, v_head_size: int, conv_kernel: int
) -> MambaSpec:
    """A gated delta net. Its matrix is kept in float32 unless the config says otherwise."""
    k_heads = model.per_rank(num_k_heads, "linear_num_key_heads")
    v_heads = model.per_rank(num_v_heads, "linear_num_value_heads")
    channels = 2 * k_heads * k_head_size + v_heads * v_head_size
    conv, ssm = (conv_kernel - 1, channels), (v_heads, v_head_size, k_head_size)
    return _spec(model, conv, ssm, ssm_dtype(model, CacheDType.FLOAT32))


def lightning_state(model: Model, head_size: int) -> MambaSpec:
    """A matrix for each attention head."""
    heads = model.per_rank(model.view.count("num_attention_heads"), "num_attention_heads")
    shape = (heads, head_size, head_size)
    return MambaSpec(block_size=model.target.block_size, shapes=(shape,), dtypes=(ssm_dtype(model),))


def short_conv_state(model: Model, *, channels: int, conv_kernel: int) -> MambaSpec:
    shape = (conv_kernel - 1, model.per_rank(channels, "the convolution's width"))
    return MambaSpec(block_size=model.target.block_size, shapes=(shape,), dtypes=(model.target.model_dtype,))


def ssm_dtype(model: Model, default: CacheDType | None = None) -> CacheDType:
    """The type of the state itself: the person's or the config's, else the family's, else the model's."""
    if model.target.state_dtype is not None:
        return model.target.state_dtype
    for key in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        word = model.view.find_word(key)
        if word is not None and word != "auto":
            return checked_state_dtype(model, key, word)
    return default or model.target.model_dtype


def checked_state_dtype(model: Model, key: str, word: str) -> CacheDType:
    name = word.removeprefix("torch.")
    if name not in STATE_DTYPES:
        raise model.view.problem(key, f"= {word!r} is none of {', '.join(STATE_DTYPES)}")
    return CacheDType(name)


def _spec(model: Model, conv: tuple[int, ...], ssm: tuple[int, ...], dtype: CacheDType) -> MambaSpec:
    dtypes = (model.target.model_dtype, dtype)
    return MambaSpec(block_size=model.target.block_size, shapes=(conv, ssm), dtypes=dtypes)
