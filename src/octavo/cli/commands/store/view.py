"""The words for what a shared store holds."""

import time
from collections.abc import Iterable, Mapping

from octavo.stores import Share, StoredItem, StoreKeeper
from octavo.units import counted, format_age, format_bytes


def owner_of(told: Mapping[str, str]) -> str:
    """What tells namespaces apart, in the words of an engine that stored there."""
    if not told.get("model"):
        return "model unknown"
    vllm = f"vLLM {told['vllm']}" if told.get("vllm") else None
    codec = told["codec"] if told.get("codec", "none") != "none" else None
    parts = (f"model {told['model']}", told.get("dtype") or told.get("cache_dtype"), codec, vllm, told.get("plan"))
    return ", ".join(filter(None, parts))


def total_of(items: Iterable[StoredItem]) -> Share:
    total = Share()
    for item in items:
        total.add(item)
    return total


def amount_of(share: Share, keeper: StoreKeeper) -> str:
    return f"{counted(share.count, keeper.item)}, {format_bytes(share.num_bytes)}"


def aged_amount_of(share: Share, keeper: StoreKeeper) -> str:
    age = "" if share.oldest_s is None else f", oldest {format_age(int(time.time()) - share.oldest_s)}"
    return amount_of(share, keeper) + age
