"""Questions to the resume rule, and specs to ask them of."""

from hypothesis import assume, settings, strategies as st

from octavo.specs import CacheDType, GroupAvailability, MambaSpec, ResumePoint, resume_granularity
from octavo.testing import strategies

SMALL_BLOCKS = st.sampled_from([1, 2, 3, 4, 6, 8, 11, 16])


thorough = settings(max_examples=5 * settings().max_examples)


@st.composite
def questions(draw, block_sizes, max_boundaries):
    """Groups of any model with some of their blocks, a request, and a granularity."""
    layers = draw(strategies.layer_sets(block_sizes=block_sizes))
    specs = list(dict.fromkeys(layers.values()))
    step = resume_granularity(specs) * draw(st.sampled_from([1, 1, 1, 2]))
    assume(step <= 4096)
    num_tokens = draw(st.integers(0, max_boundaries)) * step + draw(st.integers(0, step))
    num_encoder_tokens = draw(st.integers(0, 100))
    has_draft = draw(st.booleans())
    groups = [
        GroupAvailability(
            spec=spec,
            blocks=draw(
                strategies.block_sets(
                    (num_tokens if spec.indexes_decoder_tokens else num_encoder_tokens) // spec.block_size + 1
                )
            ),
            is_draft=has_draft and draw(st.booleans()),
        )
        for spec in specs
    ]
    request = ResumePoint(
        num_tokens=num_tokens,
        num_prompt_tokens=draw(st.integers(0, num_tokens)),
        num_encoder_tokens=num_encoder_tokens,
    )
    return groups, request, step


def attention(kind, block_size, **values):
    return kind(block_size=block_size, num_kv_heads=2, head_size=64, **values)


def mamba(block_size):
    return MambaSpec(block_size=block_size, shapes=((4,),), dtypes=(CacheDType.FLOAT32,))
