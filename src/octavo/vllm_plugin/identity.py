"""The identity under which an engine's chunks may be found again, and whether they may be kept at all."""

import os
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from octavo.errors import InputError, WeightsChangedError
from octavo.namespace import FORMAT_VERSION, NAMESPACE_BYTES, brief, digest_weights, encode, stamp_weights
from octavo.vllm_plugin.groups import why_by_rank
from octavo.vllm_plugin.ranks import RankReport

_MAGIC = b"octavo-vllm-2"
_SEED = "PYTHONHASHSEED"
_DEFAULT_SEED = "vllm-none-hash"
_CLOCKS_DIFFER_NS = 20_000_000
"""The largest difference between a process's start and a file's change that means nothing, since the two are told by
different clocks."""


def make_namespace(
    reports: Sequence[RankReport], model_digests: Sequence[bytes], *, blocks_per_chunk: int, environ: Mapping[str, str]
) -> bytes:
    """The 16 bytes under which the engine's chunks are kept. It does not depend on the number of ranks where chunks do
    not; else it depends on all ranks and on their order."""
    fields = _fields(reports, model_digests, _identities(reports), blocks_per_chunk, environ)
    return sha256(_MAGIC + encode(fields)).digest()[:NAMESPACE_BYTES]


def describe_parts(
    reports: Sequence[RankReport], model_digests: Sequence[bytes], *, blocks_per_chunk: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """The parts of the identity by name, to be compared with another engine's. Parts that differ between ranks are told
    together."""
    by_rank = _identities(reports)
    ranks = len(reports) if _are_apart(reports) else "any"
    parts = _fields(reports, model_digests, ranks, blocks_per_chunk, environ)
    for name in by_rank[0]:
        values = [of_rank.get(name, "") for of_rank in by_rank]
        parts[name] = values[0] if all(value == values[0] for value in values) else values
    labels = {"model": ", ".join(reports[0].models), "plan": _plan_in_words(reports[0])}
    return _WHERE_NOT_TOLD | {name: brief(value) for name, value in parts.items()} | labels


def _fields(
    reports: Sequence[RankReport],
    model_digests: Sequence[bytes],
    ranks: object,
    blocks_per_chunk: int,
    environ: Mapping[str, str],
) -> dict[str, object]:
    """The parts of the identity, in the order of the digest."""
    return {
        "format_version": FORMAT_VERSION,
        "models": list(model_digests),
        "ranks": ranks,
        "blocks_per_chunk": blocks_per_chunk,
        "hash_algorithm": reports[0].hash_algorithm,
        "hash_seed": environ.get(_SEED, _DEFAULT_SEED),
    }


_WHERE_NOT_TOLD = {
    "load_format": "auto",
    "max_model_len": "any",
    "kernels": "auto",
    "environment": "none",
    "additional_config": "none",
}
"""Parts that a rank leaves out where nobody has said anything, or where they do not matter."""


def _plan_in_words(report: RankReport) -> str:
    reaches = [f" of {group.reach_tokens}" if group.reach_tokens else "" for group in report.groups]
    return ", ".join(group.rule.name.lower() + reach for group, reach in zip(report.groups, reaches, strict=True))


def why_apart(reports: Sequence[RankReport]) -> str:
    """Why engines with another number of ranks cannot resume what these ranks store. Empty if they can, or if there is
    only one rank."""
    if len(reports) == 1 or not _are_apart(reports):
        return ""
    reasons = {group.group_id: why_by_rank(reports, group.group_id) for group in reports[0].groups}
    told = [f"group {group_id}: {reason}" for group_id, reason in reasons.items() if reason]
    return (
        f"only engines with {len(reports)} ranks can resume what these store, as it is not known how they share a page "
        f"({'; '.join(told) or 'the ranks differ otherwise'})"
    )


def _are_apart(reports: Sequence[RankReport]) -> bool:
    return any(why_by_rank(reports, group.group_id) for group in reports[0].groups) or any(
        report.identity != reports[0].identity for report in reports
    )


def _identities(reports: Sequence[RankReport]) -> list[dict[str, object]]:
    """The identity of each rank, or the single identity of all ranks if their number does not matter."""
    if not _are_apart(reports):
        return [dict(sorted(reports[0].identity.items())) | {"groups": _describe_groups(reports[0])}]
    return [
        dict(sorted((report.identity | report.of_ranks).items())) | {"groups": _describe_groups(report)}
        for report in reports
    ]


def _describe_groups(report: RankReport) -> list[list[object]]:
    return [
        [
            group.group_id,
            group.rule,
            group.reach_tokens,
            group.tokens_per_block,
            group.whole_bytes or group.page_bytes,
            group.whole,
        ]
        for group in report.groups
    ]


def why_not_kept(reports: Sequence[RankReport], environ: Mapping[str, str]) -> str:
    """Why nothing may outlive this process, with the remedy; empty if everything may."""
    algorithm = reports[0].hash_algorithm
    if algorithm.startswith("xxhash") and _SEED not in environ:
        return (
            f"vLLM draws a new seed for {algorithm} block hashes in every process, so nobody could find them again: "
            f"set {_SEED} to the same value for every start, or choose --prefix-caching-hash-algo sha256"
        )
    return next((report.why_not_kept for report in reports if report.why_not_kept), "")


def digest_models(reports: Sequence[RankReport], digests: Path | None) -> list[bytes]:
    """The content of the models' weights. InputError for a model whose weights are in no folder here, and
    WeightsChangedError for one whose files changed after the first rank began, as vLLM may have loaded others."""
    started_ns = min(report.started_ns for report in reports)
    return [
        _digest_model(_folder_of(model, reports[0].download_dir), digests, started_ns) for model in reports[0].models
    ]


def _digest_model(folder: Path, digests: Path | None, started_ns: int) -> bytes:
    loaded = stamp_weights(folder)
    if loaded.changed_ns > time.time_ns() + _CLOCKS_DIFFER_NS:
        raise WeightsChangedError(
            f"{folder}: files have a date in the future, by a clock that was ahead, so nobody knows whether they were "
            "written after the engine began to start: set the clocks alike, touch them, and start it again"
        )
    if loaded.changed_ns > started_ns - _CLOCKS_DIFFER_NS:
        raise WeightsChangedError(
            f"{folder}: files were written after the engine began to start, so nobody knows which of them it has: "
            "start it again"
        )
    return digest_weights(folder, digests, loaded=loaded)


def _folder_of(model: str, download_dir: str | None) -> Path:
    name, _, revision = model.partition("@") if not os.path.isdir(model) else (model, "", "")  # noqa: PTH112 - any text
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download  # vLLM's, where it has downloaded the model
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:  # vLLM downloads weights alone into a folder of one's own, and the config into the hub's cache
        return Path(snapshot_download(name, cache_dir=download_dir, revision=revision or None, local_files_only=True))
    except (LocalEntryNotFoundError, ValueError):  # s3://..., file.gguf: no name that the hub could have
        raise InputError(
            f"the weights of {name} are in no folder on this machine, so what is kept on disk could not be told from "
            "another model's: give vLLM the model's folder, or leave the disk out"
        ) from None
