"""What `/metrics` tells of memory, tiers, and the traffic with the device."""

from collections.abc import Callable, Mapping

from octavo.http import ByLabels, Metric, Values, counter, gauge
from octavo.server.offload_view import OffloadReport, TierView, view_tiers
from octavo.tiers import CHUNK_EVENTS


def _of_each(read: Callable[[TierView], float]) -> Callable[[OffloadReport], Values]:
    return lambda seen: {tier.medium: read(tier) for tier in view_tiers(seen)}


def _named(amounts: Callable[[TierView], Mapping[str, float]], name: str) -> Callable[[OffloadReport], Values]:
    """One of the amounts, for the tiers that have it."""
    return lambda seen: {tier.medium: amounts(tier)[name] for tier in view_tiers(seen) if name in amounts(tier)}


def _counts(*, of_chunks: bool) -> Callable[[OffloadReport], Values]:
    def read(seen: OffloadReport) -> ByLabels:
        for tier in view_tiers(seen):
            for name, number in tier.counters.items():
                if (name in CHUNK_EVENTS) is of_chunks:
                    yield (tier.medium, name), number

    return read


def _blocks_loaded(seen: OffloadReport) -> ByLabels:
    for (group_idx, medium), blocks in seen.stats.loaded_blocks.items():
        yield (str(group_idx), medium), blocks


def _level(name: str, about: str) -> Metric[OffloadReport]:
    return gauge(f"octavo_tier_{name}", about, _named(lambda tier: tier.levels, name), "medium")


def _work(name: str, about: str) -> Metric[OffloadReport]:
    return counter(f"octavo_tier_{name}_total", about, _named(lambda tier: tier.work, name), "medium")


OFFLOAD_METRICS: tuple[Metric[OffloadReport], ...] = (
    gauge("octavo_tier_bytes", "Bytes in use.", _of_each(lambda tier: tier.bytes_used), "medium"),
    gauge("octavo_tier_budget_bytes", "Bytes allowed.", _of_each(lambda tier: tier.bytes_budget), "medium"),
    gauge("octavo_tier_chunks", "Chunks held.", _of_each(lambda tier: tier.num_chunks), "medium"),
    gauge("octavo_tier_up", "0 while the tier is degraded, and off.", _of_each(lambda tier: tier.is_ok), "medium"),
    counter(
        "octavo_tier_events_total", "Chunks, by what happened to them.", _counts(of_chunks=True), "medium", "event"
    ),
    counter(
        "octavo_tier_incidents_total",
        "Times that something happened to the tier itself, such as a pause.",
        _counts(of_chunks=False),
        "medium",
        "event",
    ),
    _level("segments", "Files of a disk tier."),
    _level("foreign_segments", "Files of other namespaces in the folder."),
    _level("direct_io", "1 where the disk is written past the system's page cache."),
    _work("raw_bytes", "Bytes of chunks before they were compressed."),
    _work("encoded_bytes", "The same chunks compressed."),
    _work("encode_seconds", "Processor time spent compressing."),
    _work("decode_seconds", "Processor time spent decompressing."),
    counter("octavo_device_loaded_tokens_total", "Tokens loaded to the device.", lambda seen: seen.stats.loaded_tokens),
    counter("octavo_device_loaded_bytes_total", "Bytes loaded to the device.", lambda seen: seen.stats.loaded_bytes),
    counter("octavo_device_stored_bytes_total", "Bytes stored from the device.", lambda seen: seen.stats.stored_bytes),
    counter(
        "octavo_device_events_total",
        "Chunks between the device and memory, by what happened to them.",
        lambda seen: {
            "stored": seen.stats.stored_chunks,
            "store_failed": seen.stats.failed_store_chunks,
            "store_dropped": seen.stats.dropped_stores,
            "load_failed": seen.stats.failed_load_chunks,
        },
        "event",
    ),
    counter(
        "octavo_loads_given_up_total",
        "Loads of requests that were not waited for: too slow to be worth it, in whole or in part, or late.",
        lambda seen: {
            "too_slow": seen.stats.loads_too_slow,
            "cut_short": seen.stats.loads_cut_short,
            "late": seen.stats.loads_late,
        },
        "reason",
    ),
    counter(
        "octavo_hints_total",
        "Hints on resume points, by kind and by what became of them.",
        lambda seen: seen.stats.hints.items(),
        "kind",
        "outcome",
    ),
    counter(
        "octavo_blocks_loaded_total",
        "Blocks brought to the device, by group and by the medium where they lay.",
        _blocks_loaded,
        "group",
        "medium",
    ),
)
