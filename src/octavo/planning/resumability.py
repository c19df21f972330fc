"""Configurations under which no request can ever be resumed: they work, but compute every prompt anew."""

from octavo.specs import last_boundary


def why_nothing_resumes(granularity: int, max_model_len: int, *, has_draft: bool = False) -> str | None:
    """A sentence with the numbers and the remedy, or None where some request can be resumed.

    Resume points lie at multiples of `granularity`, and a request has to compute at least one token beyond the point.
    The longest prompt leaves room for one token of the answer. With a granularity of 512, a context of 513 tokens is
    too short: its longest prompt has 512 tokens, and all of them would have to be computed.
    """
    if last_boundary(max_model_len - 1, granularity, has_draft=has_draft):
        return None
    shortest = 2 * granularity + 1 if has_draft else granularity + 2
    return (
        f"no request can ever be resumed, and every prompt is computed anew: resume points lie {granularity:,} tokens "
        f"apart, which is too far for a context of {max_model_len:,}. Give a context of at least {shortest:,} tokens, "
        "or smaller blocks"
    )
