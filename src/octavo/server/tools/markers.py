"""Markers in a text: found in the text of a format, and in an answer that comes in pieces."""

import re

_MARKER = re.compile(r"(<[|｜][^|｜]+[|｜]>|｜[A-Z]+｜|\[[A-Z_]+\]|</?[a-z_]+>)")
"""A text that many models have as one token."""


def split_markers(text: str) -> list[str]:
    """Markers, and what stands between them, in order."""
    return [piece for piece in _MARKER.split(text) if piece]


def is_marker(text: str) -> bool:
    """Whether a text is a marker and nothing else."""
    return _MARKER.fullmatch(text) is not None


def held_back(text: str, *markers: str) -> int:
    """How many of the last characters may be the beginning of a marker."""
    most = min(max(map(len, markers)) - 1, len(text))
    return next((n for n in range(most, 0, -1) if any(marker.startswith(text[-n:]) for marker in markers)), 0)
