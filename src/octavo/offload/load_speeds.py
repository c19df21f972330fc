"""`LoadSpeed`: how long loads from one medium take, in tokens, for those who know neither pages nor bytes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta

from octavo.chunks import GroupOffloadConfig
from octavo.offload.load_choice import MovingLine
from octavo.specs import ResumePoint

_LONG_TOKENS = 1 << 20
"""Far beyond any window: what a group needs there grows by its tokens alone, or not at all."""


_Seconds = Annotated[float, Meta(ge=0)]


class LoadSpeed(NamedTuple):
    """Seconds until a prefix is on the device: what windows and states take whatever its length, and each token."""

    fixed_s: _Seconds
    per_token_s: _Seconds

    def seconds_for(self, num_tokens: int) -> float:
        """Zero for no tokens."""
        return self.fixed_s + self.per_token_s * num_tokens if num_tokens else 0.0


def load_speeds(
    groups: Sequence[GroupOffloadConfig], to_device: MovingLine, reads: Sequence[tuple[str, MovingLine]], memory: str
) -> Mapping[str, LoadSpeed]:
    """By medium, without those that were not measured. A tier's time is that of its read, and of the copy from memory
    to the device. Of several tiers of one medium the slowest counts."""
    short, long = _resume_bytes(groups, _LONG_TOKENS), _resume_bytes(groups, 2 * _LONG_TOKENS)
    per_token = (long - short) / _LONG_TOKENS
    fixed = short - per_token * _LONG_TOKENS
    speeds: dict[str, LoadSpeed] = {}
    for medium, lines in [(memory, [to_device]), *((medium, [line, to_device]) for medium, line in reads)]:
        if lines[0].is_known:
            per_byte = sum(line.per_unit for line in lines)
            speed = LoadSpeed(sum(line.fixed for line in lines) + per_byte * fixed, per_byte * per_token)
            speeds[medium] = max(speeds.get(medium, speed), speed, key=lambda told: told.per_token_s)
    return speeds


def _resume_bytes(groups: Sequence[GroupOffloadConfig], num_tokens: int) -> int:
    """What a resume after this many tokens of a prompt needs."""
    point = ResumePoint(num_tokens, num_tokens)
    return sum(
        len(run) * group.page_size_bytes
        for group in groups
        if group.spec.indexes_decoder_tokens
        for run in group.spec.needed_blocks(point)
    )
