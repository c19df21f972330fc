"""Mamba 1 on a CPU, for which this vLLM has no kernels: its scan in torch, token by token."""

from typing import Any

import torch
import vllm._custom_ops as ops
from torch import Tensor
from torch.nn.functional import silu, softplus


def take_scans_of_mamba1() -> None:
    """vLLM's own one for a single token knows Mamba 2 alone, whose states have one dimension more. And Mamba 1
    multiplies matrices that are transposed, which not all of vLLM's kernels take."""
    update, linear = ops.selective_state_update_cpu, ops.weight_packed_linear_cpu
    ops.selective_scan_fwd = _scan

    def step(states: Tensor, x: Tensor, *rest: Any) -> None:
        (_update if states.dim() == 3 else update)(states, x, *rest)

    ops.selective_state_update_cpu = step
    ops.weight_packed_linear_cpu = lambda x, *rest: linear(x.contiguous(), *rest)


def _scan(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    gate: Tensor,
    dt_bias: Tensor,
    _is_softplus: bool,
    starts: Tensor,
    slots: Tensor,
    has_state: Tensor,
    states: Tensor,
    null_slot: int,
    *_: Any,
) -> None:
    """Of prompts that lie one after the other. The output takes the gate's place."""
    for first, end, slot, goes_on in zip(starts, starts[1:], slots, has_state, strict=False):
        if int(slot) == null_slot:
            continue
        state = states[slot].float() * bool(goes_on)
        for token in range(int(first), int(end)):
            of_token = x[:, token], dt[:, token], a, b[0, :, token], c[0, :, token], d, gate[:, token], dt_bias
            state, gate[:, token] = _next(state, *map(Tensor.float, of_token))
        states[slot] = state


def _update(
    states: Tensor,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    gate: Tensor,
    dt_bias: Tensor,
    _is_softplus: bool,
    slots: Tensor,
    _slots_after: Tensor,
    _null_slot: int,
    out: Tensor,
    *_: Any,
) -> None:
    """One token of each request."""
    for row, slot in enumerate(slots.flatten()):
        of_token = states[slot], x[row], dt[row], a, b[row], c[row], d, gate[row], dt_bias
        states[slot], out[row] = _next(*map(Tensor.float, of_token))


def _next(
    state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, gate: Tensor, dt_bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The state after a token, and the token's output."""
    dt = softplus(dt + dt_bias)
    state = state * torch.exp(dt[:, None] * a) + (dt * x)[:, None] * b
    return state, (state @ c + d * x) * silu(gate)
