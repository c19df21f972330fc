"""Checks of a request: its prompt has tokens of the model's own, and the model can follow its parameters."""

from collections.abc import Sequence

import numpy as np

from octavo.engine.sampling_params import SamplingParams
from octavo.errors import InputError, ParameterError


def check_prompt(token_ids: Sequence[int], vocab_size: int) -> np.ndarray:
    """The prompt as int32, or InputError."""
    if len(token_ids) < 1:
        raise InputError("a prompt needs at least one token")
    try:
        prompt = np.asarray(token_ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"a prompt must be a list of token ids: {error}") from None
    if prompt.ndim != 1 or prompt.dtype.kind not in "iu":
        raise InputError("a prompt must be a list of token ids, which are whole numbers")
    if prompt.min() < 0 or prompt.max() >= vocab_size:
        raise InputError(f"token ids must be whole numbers from 0 to {vocab_size - 1:,}")
    return prompt.astype(np.int32)


def check_params(params: SamplingParams, vocab_size: int, *, has_tokenizer: bool) -> None:
    """Raises InputError for parameters that this model cannot follow."""
    if params.stop and not has_tokenizer:
        raise ParameterError("stop strings need a tokenizer, and the model's folder has none")
    if params.stop_token_ids and max(params.stop_token_ids) >= vocab_size:
        raise ParameterError(f"stop_token_ids must be below the vocabulary's {vocab_size:,}")
    if params.grammar is not None and params.grammar.vocab_size != vocab_size:
        raise InputError("the grammar was compiled for another model; compile it with this engine's `grammars`")
