"""`EngineFacts`: all that a router needs to know of an engine to find it, read its events and hash its prompts."""

import msgspec

from octavo.events import PublishedPlan


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of `GET /engine`."""

    model: str
    max_model_len: int
    plan: PublishedPlan | None = None
    """None if a group has a resume rule that no plan can tell."""
    events: str | None = None
    """Where the engine publishes its events; None if it publishes none."""
    replay: str | None = None
    hash_algorithm: str
    hash_seed: str
    stores: dict[str, str] = {}
    """By medium, as events own it: the name of a store. Engines that tell the same name find each other's chunks."""
    life: str = ""
    """It is new at each start: where it has changed, the engine has forgotten what it held on its device."""
    aliases: tuple[str, ...] = ()
    """Other names of the model."""
    adapters: dict[str, str] = {}
    """LoRA adapters by the name that requests use as their model; where each lies takes part in its hashes."""

    @property
    def names(self) -> frozenset[str]:
        """All names that requests may use as their model."""
        return frozenset({self.model, *self.aliases, *self.adapters})
