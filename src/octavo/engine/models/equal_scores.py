"""What is chosen of equal scores: what a query that is alone would choose, as in Hugging Face.

Scores can be equal, such as zero in all heads of an indexer. Which of these `topk` takes depends on how many scores
there are, and here a query has some behind its own that it does not see: those of later tokens, and padding.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class ChoosingAlone(TorchFunctionMode):
    """While it is open, `topk` of a model chooses for each query as if it were alone."""

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.Tensor.topk:
            return function(*args, **(kwargs or {}))
        number = args[1] if len(args) > 1 else kwargs["k"]
        return torch.return_types.topk(best_of_seen(args[0], number))


def best_of_seen(scores: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best scores (..., number) of each query, and their places. Scores (..., places) that it does not see come
    last, and are the least of all numbers or minus infinity."""
    if not 0 < number < scores.shape[-1]:
        return scores.topk(number)
    values, places = scores.topk(number + 1)
    least = torch.finfo(scores.dtype).min
    last, next_one = values[..., number - 1 :].unbind(-1)
    is_tied = (last == next_one) & (next_one > least)
    values, places = values[..., :number], places[..., :number]
    num_seen = (~(scores <= least)).sum(-1) * is_tied  # what is no number is the greatest, as it is for `topk`
    for seen in set(num_seen.flatten().tolist()) - {0}:
        are_alike = num_seen == seen
        places[are_alike] = scores[are_alike][:, :seen].topk(number).indices
    return values, places
