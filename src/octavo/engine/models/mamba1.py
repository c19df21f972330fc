"""Mamba-1 scans that continue from a state. Hugging Face's multi-token calls silently begin from zero."""

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn.functional import silu, softplus

from octavo.engine.models.step_cache import StepCache

_SCAN = "mamba_selective_scan"


class ResumableScan:
    """The scan of one mixer: h = exp(A dt) h + B dt x, y = C h + D x, beginning with the state in the cache."""

    def __init__(self) -> None:
        self._initial_state: torch.Tensor | None = None

    @classmethod
    def give_to(cls, mixer: Any) -> Callable[..., torch.Tensor]:
        """The mixer's forward with this scan in place of Hugging Face's; other mixers keep their own."""
        function = inspect.unwrap(type(mixer).forward)
        if _SCAN not in function.__code__.co_names:
            forward: Callable[..., torch.Tensor] = mixer.forward
            return forward
        scan = cls()
        # A copy of the function with another global, so that other models in this process keep theirs.
        seen = {**function.__globals__, _SCAN: scan.scan}
        resumable = FunctionType(function.__code__, seen, function.__name__, function.__defaults__)
        method = MethodType(resumable, mixer)

        def forward_from_state(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            scan._initial_state = StepCache.among((*args, *kwargs.values())).get_recurrent_state(mixer.layer_idx)
            return method(hidden_states, *args, **kwargs)

        return forward_from_state

    def scan(
        self,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,  # noqa: N803 - Hugging Face's names, which callers use
        B: torch.Tensor,  # noqa: N803
        C: torch.Tensor,  # noqa: N803
        *,
        D: torch.Tensor,  # noqa: N803
        z: torch.Tensor,
        delta_bias: torch.Tensor,
        **_kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs (batch, channels, tokens) and the final state (batch, channels, state size)."""
        dt = softplus(dt + delta_bias.to(dt.dtype)[..., None])
        decay = torch.exp(A[None, :, None] * dt[..., None])
        inputs = dt[..., None] * B.transpose(1, 2)[:, None].float() * hidden_states[..., None].float()
        readers = C.transpose(1, 2).float()
        assert self._initial_state is not None
        state = self._initial_state.float()
        outputs = []
        for token in range(hidden_states.shape[-1]):
            state = decay[:, :, token] * state + inputs[:, :, token]
            outputs.append((state @ readers[:, token, :, None])[..., 0])
        output = torch.stack(outputs, -1) + hidden_states * D[None, :, None]
        return output * silu(z), state
