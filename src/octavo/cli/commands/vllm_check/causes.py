"""Why vLLM did not serve a model: the cause in what it said, and the remedy where it is known."""

import re
from collections.abc import Sequence

_OF_VLLM_LOG = re.compile(r"^(\([^)]*\) )?(ERROR|CRITICAL) \S+ \S+ \[[^\]]*\] ")
_CAUSE = re.compile(
    r"(?P<module>[\w.]+\.)?(?P<said>\w*(Error|Exception|Interrupt)\b.*|Worker proc .* died unexpectedly.*)"
)
_LEADS_TO = "The above exception was the direct cause of the following exception:"
_CONSEQUENCES = ("EngineDeadError", "RuntimeError: cancelled", "RuntimeError: Engine core initialization failed")
_REMEDIES = (
    (
        r"less than desired [GC]PU memory utilization|KV cache memory",
        "other processes use the device: give vLLM a smaller share, --vllm-args '{\"gpu_memory_utilization\": 0.5}'",
    ),
    (
        r"No available memory for the cache blocks|larger than the (maximum|available)|KV cache is needed",
        (
            "the device has no room for the context: give vLLM a larger share or a shorter context, --vllm-args "
            '\'{"gpu_memory_utilization": 0.95, "max_model_len": 4096}\'; --memory is host memory and does not help'
        ),
    ),
    (
        r"maximum context length",
        "ask for less, --shared-tokens, --own-tokens and --output-tokens, or give vLLM a longer context",
    ),
    (
        r"LocalEntryNotFoundError|RepositoryNotFoundError|OfflineModeIsEnabled|not a local folder",
        "give the path of the model's folder, or a name that the hub has",
    ),
    (
        r"^(ConnectError|ConnectionError|ConnectTimeout)\b",
        "the model is in no folder here, and the hub cannot be reached: give the path of the model's folder",
    ),
)
"""Causes in vLLM's words, with the remedy in this command's."""


def explain_cause(log: str) -> str:
    """The cause, and the remedy where it is known."""
    cause = find_cause(log)
    remedies = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, cause))
    return "; ".join([cause, *remedies])


def find_cause(log: str) -> str:
    """The first error that is not a mere consequence of another; else the last line."""
    lines = [_OF_VLLM_LOG.sub("", line) for line in log.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        found = _CAUSE.fullmatch(line)
        if found and not found["said"].startswith(_CONSEQUENCES):
            more = lines[index + 1 : index + 2]
            if more == [_LEADS_TO] and (ours := _next_of_octavo(lines[index + 1 :])):
                return ours
            return " ".join([found["said"], *(text.strip() for text in more if text.startswith("  Value error"))])
    return lines[-1] if lines else "it said nothing"


def _next_of_octavo(lines: Sequence[str]) -> str:
    """The next error, if it is one of Octavo's: it says what the one before means. Else nothing."""
    found = next(filter(None, map(_CAUSE.fullmatch, lines)), None)
    return found["said"] if found and (found["module"] or "").startswith("octavo.") else ""
