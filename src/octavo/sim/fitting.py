"""Fits speeds to the requests that `octavo bench serve --json` measured.

    first token     a step, the new prompt tokens at a rate, and the pairs of a new token and a token before it
    other tokens    a step, and something for each request that decodes with it

The first is fitted to requests that were alone on the server, since others wait for each other. The second also needs a
file of many requests at once: without one, the time per request stays as given.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.errors import MALFORMED, InputError
from octavo.sim.speeds import Speeds

_LEAST_ALONE = 8
_LEAST_SPREAD = 2.0
"""The least ratio of the longest new prompt to the shortest: prompts of one length tell no rate."""
_LEAST_GROWTH = 0.01
"""The least part of the longest time that must come from the prompt's length."""
_LEAST_STEP_S = 1e-6
_HOW = "octavo bench serve URL --trace TRACE --limit 50 --concurrency 1 --json > FILE"

Numbers = npt.NDArray[np.float64]


class _Sample(msgspec.Struct, frozen=True):
    prompt_tokens: int
    cached_tokens: int
    first_token_s: float
    between_tokens_s: float
    open_requests: float


class _Measured(msgspec.Struct, frozen=True):
    samples: list[_Sample]


def read_speeds(paths: Sequence[Path], otherwise: Speeds) -> Speeds:
    """`otherwise`, with its speeds of computing replaced by those that all the files together tell."""
    samples = [sample for path in paths for sample in _read(path)]
    step_s, per_token, per_pair = _fit_first_token(samples)
    step_s, per_request = _fit_decode(samples, step_s, otherwise.decode_s_per_request)
    return replace(
        otherwise,
        prefill_tokens_per_s=1 / per_token if per_token else inf,
        context_s_per_token_pair=per_pair,
        step_s=max(step_s, _LEAST_STEP_S),
        decode_s_per_request=per_request,
    )


def _read(path: Path) -> Sequence[_Sample]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Measured).samples
    except OSError as error:
        raise InputError(f"--speeds: {str(path)!r} cannot be read: {error.strerror}") from None
    except MALFORMED as error:
        raise InputError(f"--speeds: {str(path)!r} is not from octavo bench serve --json: {error}") from None


def _fit_first_token(samples: Sequence[_Sample]) -> list[float]:
    """Seconds of a step, per new token, and per pair of tokens."""
    alone = [s for s in samples if s.open_requests <= 1 and s.first_token_s > 0 and s.prompt_tokens > s.cached_tokens]
    new = np.array([s.prompt_tokens - s.cached_tokens for s in alone], dtype=float)
    if len(alone) < _LEAST_ALONE:
        raise InputError(
            f"--speeds: {_LEAST_ALONE} requests that had the server to themselves are needed, and {len(alone)} had: "
            f"{_HOW}"
        )
    if new.max() < _LEAST_SPREAD * new.min():
        raise InputError(f"--speeds: prompts of one length tell no rate: {_HOW}")
    cached = np.array([s.cached_tokens for s in alone], dtype=float)
    first = np.array([s.first_token_s for s in alone])
    pairs = new * (2 * cached + new) / 2
    found = _fit_from_zero([np.ones_like(new), new, pairs], first)
    if (found[1] * new + found[2] * pairs).max() < _LEAST_GROWTH * first.max():
        raise InputError(f"--speeds: longer prompts did not take longer, so there is no rate to be fitted: {_HOW}")
    return found


def _fit_decode(samples: Sequence[_Sample], step_s: float, per_request: float) -> tuple[float, float]:
    """Seconds of a step, and per request in it. What the samples do not tell stays as given."""
    decoding = [s for s in samples if s.between_tokens_s > 0]
    if not decoding:
        return step_s, per_request
    among = np.array([s.open_requests for s in decoding])
    between = np.array([s.between_tokens_s for s in decoding])
    if among.max() < _LEAST_SPREAD * among.min():
        return max(float(np.median(between - per_request * among)), 0.0), per_request
    step_s, per_request = _fit_from_zero([np.ones_like(among), among], between)
    return step_s, per_request


def _fit_from_zero(causes: Sequence[Numbers], seconds: Numbers) -> list[float]:
    """The seconds per unit of each cause, none negative, that fit best. Relative errors count alike."""
    kept = list(range(len(causes)))
    while kept:
        weighted = np.stack([causes[index] / seconds for index in kept], axis=1)
        scale = np.abs(weighted).max(axis=0)
        found = np.linalg.lstsq(weighted / scale, np.ones_like(seconds), rcond=1e-9)[0] / scale
        if (found >= 0).all():
            return [float(found[kept.index(index)]) if index in kept else 0.0 for index in range(len(causes))]
        del kept[int(found.argmin())]
    return [0.0] * len(causes)
