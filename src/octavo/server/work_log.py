"""The server's report of its work: a line every ten seconds while there is any."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from octavo.engine import EngineSnapshot
from octavo.server.offload_view import Seen, TierView, view_tiers

_EVERY_S = 10.0
_logger = logging.getLogger(__name__)


async def tell_work(
    look: Callable[[], Awaitable[Seen | None]], clock: Callable[[], float], *, every_s: float = _EVERY_S
) -> None:
    """Logs a line at each interval in which something was done. Ends when there is no engine any more."""
    before, began = await look(), clock()
    while before is not None:
        await asyncio.sleep(every_s)
        now, told = await look(), clock()
        if now is None:
            return
        if line := describe_work(before, now, told - began):
            _logger.info("%s", line)
        before, began = now, told


def describe_work(before: Seen, now: Seen, seconds: float) -> str:
    """The work between two looks, and the present load. Empty if nothing was done and nothing is to do."""
    engine, offload = now
    old, new = before[0].counters, engine.counters
    if new.steps == old.steps and not engine.num_running and not engine.num_waiting:
        return ""
    resumed = {medium: tokens - old.tokens_resumed.get(medium, 0) for medium, tokens in new.tokens_resumed.items()}
    computed = new.prefill_tokens_computed - old.prefill_tokens_computed
    prompt = sum(resumed.values()) + computed
    by_medium = ", ".join(f"{tokens / prompt:.0%} from {medium}" for medium, tokens in resumed.items() if tokens)
    parts = [
        f"{prompt / seconds:,.0f} prompt tokens/s ({by_medium or 'none resumed'})",
        f"{(new.output_tokens - old.output_tokens) / seconds:,.0f} output tokens/s",
        f"{engine.num_running} running, {engine.num_waiting} waiting",
        _describe_pool(engine),
    ]
    if preempted := new.preemptions - old.preemptions:
        parts.append(f"{preempted} preempted")
    if offload is not None:
        parts += [f"{tier.medium} {tier.usage}{_trouble(tier)}" for tier in view_tiers(offload)]
    return "; ".join(parts)


def _trouble(tier: TierView) -> str:
    if tier.is_ok and not tier.reason:
        return ""
    return f" ({'takes nothing' if tier.is_ok else 'off'}: {tier.reason})"


def _describe_pool(engine: EngineSnapshot) -> str:
    size = engine.num_sheets * engine.sheet_bytes
    held = sum(pages.held_pages * pages.page_bytes for pages in engine.classes)
    cached = sum(pages.cached_pages * pages.page_bytes for pages in engine.classes)
    return f"pool {held / size:.0%} in use, {cached / size:.0%} cached"
