"""`FleetState`: a fleet at one moment, for `/fleet`, `/metrics` and the page."""

import time
from dataclasses import dataclass

from octavo.router.decisions import Decision, Decisions
from octavo.router.fleet import Fleet
from octavo.router.member import Member
from octavo.router.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One engine, as the router sees it."""

    name: str
    url: str
    is_reachable: bool
    is_draining: bool
    problem: str
    model: str | None
    knows_all_blocks: bool
    is_at_most: bool
    """Whether the engine's plan is learned: it may have groups that no event has named yet."""
    num_blocks: int
    """Blocks of all groups and media that the router knows of."""
    blocks_on: dict[str, int]
    """The same by medium."""
    event_batches: int
    dropped_events: int
    open_requests: int
    """The requests that this router sent there."""
    prefill_tokens: int
    others_open_requests: int
    """The requests that others sent there, as far as the engine tells."""
    others_prefill_tokens: int
    prefill_tokens_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """All engines, and where requests went lately."""

    engines: list[EngineState]
    now: float
    """In seconds since 1970, as the decisions' times."""
    requests: int
    retries: int
    prompt_tokens: int
    """Prompt tokens of requests that were sent to engines and whose tokens the router knew."""
    expected_tokens: int
    """The part of these tokens that the router expected to be resumed."""
    index_blocks: int
    decisions: list[Decision]
    names: dict[str, str]
    """Per name that engines are found by: why it could not be looked up lately; empty if it could."""


def state_of(fleet: Fleet, decisions: Decisions) -> FleetState:
    """The present state."""
    return FleetState(
        engines=[engine_state(member, fleet.placement) for member in fleet.members.values()],
        now=time.time(),
        requests=decisions.num_requests,
        retries=decisions.num_retries,
        prompt_tokens=decisions.num_prompt_tokens,
        expected_tokens=decisions.num_expected_tokens,
        index_blocks=fleet.num_blocks,
        decisions=list(decisions.last),
        names=fleet.names.problems,
    )


def engine_state(member: Member, placement: Placement) -> EngineState:
    """One engine's part."""
    load, index = placement.loads[member.name], member.index
    return EngineState(
        name=member.name,
        url=member.address.shown_url,
        is_reachable=member.is_reachable,
        is_draining=member.is_draining or not member.is_listed,
        problem=member.problem,
        model=None if member.facts is None else member.facts.model,
        knows_all_blocks=index is not None and index.is_complete(member.name),
        is_at_most=member.learns_plan,
        num_blocks=0 if index is None else index.num_blocks_of(member.name),
        blocks_on={} if index is None else index.num_blocks_on(member.name),
        event_batches=member.num_batches,
        dropped_events=0 if index is None else index.num_dropped_events(member.name),
        open_requests=load.num_requests - load.others.requests,
        prefill_tokens=load.prefill_tokens - load.others.prefill_tokens,
        others_open_requests=load.others.requests,
        others_prefill_tokens=load.others.prefill_tokens,
        prefill_tokens_per_s=round(load.rate),
    )
