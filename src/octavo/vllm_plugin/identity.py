"""Under which identity an engine's chunks may be found again, and whether they may be kept at all."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from octavo.errors import InputError
from octavo.namespace import FORMAT_VERSION, NAMESPACE_BYTES, digest_weights, encode
from octavo.vllm_plugin.ranks import RankReport

_MAGIC = b"octavo-vllm-1"
_SEED = "PYTHONHASHSEED"
_DEFAULT_SEED = "vllm-none-hash"


def make_namespace(
    reports: Sequence[RankReport], model_digests: Sequence[bytes], *, blocks_per_chunk: int, environ: Mapping[str, str]
) -> bytes:
    """The 16 bytes under which the engine's chunks are kept. A chunk holds the parts of all ranks, so all of them and
    their order decide."""
    fields = {
        "format_version": FORMAT_VERSION,
        "models": list(model_digests),
        "ranks": [
            {
                "identity": dict(sorted(report.identity.items())),
                "groups": [_describe(report, place) for place in range(len(report.groups))],
            }
            for report in reports
        ],
        "blocks_per_chunk": blocks_per_chunk,
        "hash_algorithm": reports[0].hash_algorithm,
        "hash_seed": environ.get(_SEED, _DEFAULT_SEED),
    }
    return sha256(_MAGIC + encode(fields)).digest()[:NAMESPACE_BYTES]


def _describe(report: RankReport, place: int) -> list[object]:
    group = report.groups[place]
    return [group.group_id, group.rule, group.reach_tokens, group.tokens_per_block, group.page_bytes]


def why_not_kept(reports: Sequence[RankReport], environ: Mapping[str, str]) -> str:
    """Why nothing may outlive this process, with the remedy; empty if it may."""
    algorithm = reports[0].hash_algorithm
    if algorithm.startswith("xxhash") and _SEED not in environ:
        return (
            f"vLLM draws a new seed for {algorithm} block hashes in every process, so nobody could find them again: "
            f"set {_SEED} to the same value for every start, or choose --prefix-caching-hash-algo sha256"
        )
    return next((report.why_not_kept for report in reports if report.why_not_kept), "")


def digest_models(models: Sequence[str], digests: Path) -> list[bytes]:
    """Of the content of their weights. InputError for a model whose weights are in no folder here."""
    return [digest_weights(_folder_of(model), digests) for model in models]


def _folder_of(model: str) -> Path:
    name, _, revision = model.partition("@") if not os.path.isdir(model) else (model, "", "")  # noqa: PTH112 - any text
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import try_to_load_from_cache  # vLLM's, where it has downloaded the model

    config = try_to_load_from_cache(name, "config.json", revision=revision or None)
    if not isinstance(config, str):
        raise InputError(
            f"the weights of {name} are in no folder on this machine, so what is kept on disk could not be told from "
            "another model's: give vLLM the model's folder, or leave the disk out"
        )
    return Path(config).parent
