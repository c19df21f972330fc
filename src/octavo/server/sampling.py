"""From a request's body to the engine's `SamplingParams`."""

from typing import Any

from octavo.engine import MAX_LOGPROBS, SamplingParams
from octavo.http import bad_request
from octavo.server.requests import ChatRequest, CompletionRequest
from octavo.server.structure import Structure

_COMPLETION_TOKENS = 16
"""OpenAI's default where a completion names no length."""
_AS_THEY_ARE = (
    "n", "seed", "temperature", "top_p", "presence_penalty", "frequency_penalty", "top_k", "min_p",
    "repetition_penalty", "min_tokens", "ignore_eos", "skip_special_tokens", "prompt_logprobs",
)  # fmt: skip


def completion_params(request: CompletionRequest, structure: Structure) -> SamplingParams:
    """Echoed prompts have log-probabilities too, if the output has."""
    wishes = _common_wishes(request, structure)
    if request.echo and request.logprobs is not None:
        wishes["prompt_logprobs"] = max(request.logprobs, request.prompt_logprobs or 0)
    max_tokens = _COMPLETION_TOKENS if request.max_tokens is None else request.max_tokens
    if max_tokens == 0 and not request.echo:
        raise bad_request("max_tokens must be 1 or more, or 0 with echo", param="max_tokens")
    return SamplingParams(max_tokens=max_tokens, logprobs=request.logprobs, continues_prompt=True, **wishes)


def chat_params(request: ChatRequest, structure: Structure) -> SamplingParams:
    """`max_completion_tokens` counts where both names of the length are given."""
    max_tokens = getattr(request, name := request.length_name)
    if max_tokens is not None and max_tokens < 1:
        raise bad_request(f"{name} must be 1 or more, not {max_tokens}", param=name)
    if request.top_logprobs is not None and not 0 <= request.top_logprobs <= MAX_LOGPROBS:
        raise bad_request(f"top_logprobs must be from 0 to {MAX_LOGPROBS}", param="top_logprobs")
    return SamplingParams(
        max_tokens=max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        continues_prompt=bool(request.continue_final_message),
        **_common_wishes(request, structure),
    )


def _common_wishes(request: CompletionRequest | ChatRequest, structure: Structure) -> dict[str, Any]:
    wishes = {name: value for name in _AS_THEY_ARE if (value := getattr(request, name)) is not None}
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    wishes["stop"] = tuple(text for text in stop if text)
    wishes["stop_token_ids"] = tuple(request.stop_token_ids or ())
    wishes["grammar"] = structure.grammar
    if structure.shows_special_tokens:
        wishes["skip_special_tokens"] = False
    return wishes
