"""Many holders at once resume where each of them would resume alone."""

from hypothesis import given, settings, strategies as st

from octavo.specs import GroupAvailability, GroupHolders, ResumePoint, longest_resume, longest_resumes
from octavo.testing import strategies

BLOCK_SIZES = st.sampled_from([1, 2, 3, 4, 6, 8, 16])
NUM_HOLDERS = 5


@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_each_holder_resumes_where_it_would_alone(data):
    specs = list(data.draw(strategies.layer_sets(block_sizes=BLOCK_SIZES)).values())
    is_draft = data.draw(st.lists(st.booleans(), min_size=len(specs), max_size=len(specs)))
    num_tokens = data.draw(st.integers(0, 200))
    num_encoder_tokens = data.draw(st.sampled_from([0, 20]))
    request = ResumePoint(num_tokens, data.draw(st.integers(0, num_tokens)), num_encoder_tokens)
    num_blocks = [
        (num_tokens if spec.indexes_decoder_tokens else num_encoder_tokens) // spec.block_size for spec in specs
    ]
    held = [[data.draw(strategies.block_sets(n + 1)) for n in num_blocks] for _ in range(NUM_HOLDERS)]

    alone = {}
    for holder, sets in enumerate(held):
        groups = [
            GroupAvailability(spec=spec, blocks=blocks, is_draft=draft)
            for spec, blocks, draft in zip(specs, sets, is_draft, strict=True)
        ]
        alone[holder] = longest_resume(groups, request).num_tokens

    groups = [
        GroupHolders(
            spec=spec,
            holders=[
                sum(1 << h for h in range(NUM_HOLDERS) if k in held[h][g].present) for k in range(num_blocks[g] + 1)
            ],
            is_draft=is_draft[g],
        )
        for g, spec in enumerate(specs)
    ]
    asked = data.draw(st.integers(0, (1 << NUM_HOLDERS) - 1))
    answers = list(longest_resumes(groups, request, asked))
    assert [tokens for tokens, _ in answers] == sorted({tokens for tokens, _ in answers}, reverse=True)
    together = {h: tokens for tokens, holders in answers for h in range(NUM_HOLDERS) if holders >> h & 1}
    assert together == {h: tokens for h, tokens in alone.items() if asked >> h & 1}
