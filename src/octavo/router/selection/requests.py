"""What callers of a `SelectionService` ask. The fields bear the names that other selection services and indexers use.

Unknown fields are skipped, as callers send those of several services.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from octavo.errors import InputError
from octavo.hashing import RequestIdentity
from octavo.offload import LoadSpeed
from octavo.settings import explain, shown

WorkerId: TypeAlias = int | str
_Length: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Positive: TypeAlias = Annotated[int, Meta(ge=1)]
_Token: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 16)]
_Name: TypeAlias = Annotated[str, Meta(min_length=1, description="a name")]
_Stores: TypeAlias = Annotated[dict[str, _Name], Meta(max_length=64, description="names by medium, 64 at most")]
_Speed: TypeAlias = Annotated[LoadSpeed, Meta(description="[seconds, seconds for each token], both 0 or more")]
_Speeds: TypeAlias = Annotated[dict[str, _Speed], Meta(max_length=64, description="speeds by medium, 64 at most")]
_Request = TypeVar("_Request", bound="_OfModel")
_LOW_64_BITS = (1 << 64) - 1


class _OfModel(msgspec.Struct, frozen=True, kw_only=True):
    """What concerns the workers of one model and routing group."""

    model_name: str = "default"
    routing_group: str | None = None
    tenant_id: str | None = None
    """An older name of the routing group."""

    @property
    def partition(self) -> tuple[str, str]:
        return self.model_name, self.routing_group or self.tenant_id or "default"


class Worker(_OfModel, frozen=True, kw_only=True):
    """An engine with one or several data-parallel ranks, each with events of its own."""

    worker_id: WorkerId
    endpoint: str | None = None
    """Where requests go; the service hands it back and does not use it."""
    block_size: _Positive | None = None
    """As its owner believes; the real sizes are told by the plan or the events."""
    data_parallel_start_rank: _Rank = 0
    data_parallel_size: Annotated[int, Meta(ge=1, le=1 << 10)] | None = None
    kv_events_endpoints: dict[_Rank, str] = {}
    """By rank. A rank without one takes part by its load alone."""
    replay_endpoint: str | None = None
    """Of a worker with one rank."""
    replay_endpoints: dict[_Rank, str] = {}
    hash_algorithm: str = "sha256_cbor"
    hash_seed: str = ""
    """Empty: it is tried out."""
    stores: _Stores = {}
    """By medium: the name of a store. Workers that name the same one find each other's chunks there."""
    load_speeds: _Speeds = {}
    """By medium: how long its loads take."""

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that are told, or those that have an endpoint: registered one by one, they have no number."""
        if self.data_parallel_size is None:
            return sorted(self.kv_events_endpoints) or [self.data_parallel_start_rank]
        return range(self.data_parallel_start_rank, self.data_parallel_start_rank + self.data_parallel_size)

    def replay_of(self, rank: int) -> str | None:
        return self.replay_endpoints.get(rank, self.replay_endpoint)

    def check(self) -> None:
        """InputError for what contradicts itself."""
        if strangers := sorted({*self.kv_events_endpoints, *self.replay_endpoints} - set(self.ranks)):
            raise InputError(
                f"worker {shown(self.worker_id)} has the ranks {self.ranks[0]} to {self.ranks[-1]}, and an endpoint "
                f"for rank {strangers[0]}: correct data_parallel_start_rank and data_parallel_size"
            )
        if self.replay_endpoint is not None and len(self.ranks) > 1:
            raise InputError(
                f"worker {shown(self.worker_id)}: replay_endpoint is of one rank; write replay_endpoints, by rank"
            )


class Registration(_OfModel, frozen=True, kw_only=True):
    """One rank of an instance: the body of `/register`. Without `endpoint`: of `/unregister`."""

    instance_id: WorkerId
    endpoint: str | None = None
    """Where it publishes its events."""
    replay_endpoint: str | None = None
    block_size: _Positive | None = None
    dp_rank: _Rank | None = None
    additional_salt: str | None = None
    hash_algorithm: str = "sha256_cbor"
    hash_seed: str = ""
    stores: _Stores = {}
    """They and the speeds are added to those that other ranks of the instance told."""
    load_speeds: _Speeds = {}


class Question(_OfModel, frozen=True, kw_only=True):
    """A prompt: its tokens, or the hashes of its hash blocks as engines tell them."""

    token_ids: list[_Token] | None = None
    sequence_hashes: list[int] | None = None
    block_hashes: list[int] | None = None
    """The same in the body of `/query_by_hash`."""
    isl_tokens: _Length | None = None
    """The length of a prompt that is given by its hashes."""
    lora_name: str | None = None
    lora_path: str | None = None
    """Where the adapter lies, which takes part in an engine's hashes."""
    cache_salt: str | None = None
    selection_id: str | None = None
    session_id: str | None = None
    """Among equal ranks, the one that got the session's last reservation is chosen."""
    allowed_worker_ids: list[WorkerId] | None = None
    worker_id: WorkerId | None = None
    dp_rank: _Rank = 0
    effective_prefill_tokens: _Length | None = None

    @property
    def hashes(self) -> list[int] | None:
        """As events carry them: without a sign."""
        given = self.block_hashes if self.sequence_hashes is None else self.sequence_hashes
        return None if given is None else [one & _LOW_64_BITS for one in given]

    @property
    def identity(self) -> RequestIdentity:
        path = (self.lora_path or "") if self.lora_name else ""
        return RequestIdentity(lora_name=self.lora_name or None, lora_path=path, cache_salt=self.cache_salt or None)

    def check(self) -> None:
        """InputError if there is no prompt."""
        if self.token_ids is None and self.hashes is None:
            raise InputError("token_ids is missing: give the prompt's tokens, or sequence_hashes with isl_tokens")


def read(request: Mapping[str, Any], kind: type[_Request]) -> _Request:
    """A caller's request. InputError names the field that is wrong."""
    try:
        return msgspec.convert(request, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise InputError(explain(error, request, kind).sentence) from None
