"""What engines say of themselves when they are asked: `octavo serve` everything that a router needs, vLLM its
models."""

import httpx
import msgspec

from octavo.events import SHARED_MEDIA
from octavo.http import EngineFacts
from octavo.router.address import EngineAddress

_VLLM_ALGORITHM = "sha256_cbor"


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    root: str | None = None
    parent: str | None = None
    """The model that a LoRA adapter belongs to."""


class _Models(msgspec.Struct):
    data: list[_Model]


_FACTS = msgspec.json.Decoder(EngineFacts)
_MODELS = msgspec.json.Decoder(_Models)


def read_facts(answer: httpx.Response) -> EngineFacts:
    """The facts in the answer to `GET /engine`. HTTPError or MsgspecError if the answer has none."""
    return _FACTS.decode(answer.raise_for_status().content)


def read_models(answer: httpx.Response, address: EngineAddress) -> EngineFacts:
    """The models in the answer to `GET /v1/models`, of a server that says no more of itself. Its plan is learned from
    its events, and an empty seed is tried out."""
    told = _MODELS.decode(answer.raise_for_status().content).data
    models = [model for model in told if model.parent is None]
    if not models:
        raise msgspec.ValidationError("it serves no model")
    return EngineFacts(
        model=models[0].id,
        aliases=tuple(model.id for model in models[1:]),
        max_model_len=models[0].max_model_len or 0,
        hash_algorithm=address.options.get("hash", _VLLM_ALGORITHM),
        hash_seed=address.options.get("seed", ""),
        adapters={model.id: model.root or "" for model in told if model.parent is not None},
        stores=dict.fromkeys(SHARED_MEDIA, address.options["store"]) if "store" in address.options else {},
    )
