"""Weights that are loaded into an engine that runs, as `reload_weights` and trainers do: how a rank notices them
(`watch_weights`), and what the scheduler's side then forgets (`LoadedWeights`)."""

import logging
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from types import FrameType
from typing import Any

from vllm.lora.utils import get_adapter_absolute_path

from octavo.errors import OctavoError
from octavo.namespace import stamp_weights
from octavo.offload import OffloadingManager
from octavo.vllm_plugin.adapter.request import RequestState
from octavo.vllm_plugin.ranks import Loaded

logger = logging.getLogger(__name__)

_MOST_ADAPTERS = 10_000
"""The most adapters whose files are remembered. Then all are forgotten, and so is what memory has."""


_LOADS_OF_A_WORKER = ("update_weights", "finish_weight_update", "reset_weights")
"""Methods by which weights come from a trainer. Some ways of transfer write into the parameters, and some do so only
when the update is finished."""


class LoadedWeights:
    """The weights of the running engine. Of other ones than those with which it began nothing may be kept under the
    names of these, and nothing that was computed with former ones may be found."""

    def __init__(self, manager: OffloadingManager, take_loaded: Callable[[], Collection[Loaded]]) -> None:
        """`take_loaded`: what was loaded into the engine since the last call."""
        self._manager, self._take_loaded = manager, take_loaded
        self.are_others = False
        """Whether they are no longer those that name what lies below memory."""
        self._pool: Any = None
        """vLLM's own pool of device pages, if vLLM shows it."""
        self._cached: object = None
        """What the pool finds pages with, as of the last look."""
        self._loaded: set[Loaded] = set()
        """What was loaded since the device has forgotten all."""

    def may_go_on_with_former(self, state: RequestState) -> bool:
        """Whether the request may have begun with pages that former weights, or a former adapter, have computed: until
        somebody resets the device's cache, vLLM finds them there."""
        of_device = Loaded.WEIGHTS in self._loaded or (Loaded.ADAPTER in self._loaded and state.may_have_adapter)
        return of_device and state.tokens_at_start() > 0

    def look(self, alive: Iterable[RequestState], caller: FrameType | None) -> None:
        """Once something was loaded: forgets what memory has. Requests that are alive have pages of former weights; of
        a former adapter if it is one that was loaded, and they have one. `caller` is one that vLLM's scheduler has
        called, directly or not."""
        has_forgotten = self._has_device_forgotten(caller)
        if has_forgotten:
            self._loaded.clear()
        loaded = self._take_loaded()
        if not loaded:
            return
        if not has_forgotten:
            self._loaded.update(loaded)
        are_others = Loaded.WEIGHTS in loaded
        for state in alive:
            if are_others or state.may_have_adapter:
                state.may_store, state.is_confined = False, True
        self._manager.reset(tiers=False, tells_each=True)
        if not are_others:
            return
        if not self.are_others and len(self._manager.media.names) > 1:
            logger.warning(
                "Octavo keeps nothing below memory from now on: weights were loaded into the running engine, and what "
                "lies below is of the weights with which it began: start it again with the new ones"
            )
        self.are_others = True

    def _has_device_forgotten(self, caller: FrameType | None) -> bool:
        """Whether the device's cache was reset since the last look: then it finds pages with another object. Nothing
        is known of a vLLM that does not show its pool."""
        if self._pool is None:
            scheduler = _find_owner(caller, "kv_cache_manager")
            self._pool = getattr(getattr(scheduler, "kv_cache_manager", None), "block_pool", None)
        before, self._cached = self._cached, getattr(self._pool, "cached_block_hash_to_block", None)
        return self._cached is not before


def watch_weights(frame: FrameType | None, tell: Callable[[Loaded], None]) -> bool:
    """Calls `tell` before each load of the model's weights from now on, and after each load of an adapter that had
    others before. `frame` is one that vLLM's model runner has called, directly or not: vLLM shows it and its worker
    nowhere else. False if there is none."""
    runner = _find_runner(frame)
    if runner is None:
        return False
    loads = [(runner, "reload_weights"), (runner.get_model(), "load_weights")]
    loads += [(_find_owner(frame, "update_weights"), name) for name in _LOADS_OF_A_WORKER]
    for owner, name in loads:
        load = getattr(owner, name, None)
        if load is not None:
            setattr(owner, name, _told(load, tell))
    adapters = getattr(runner, "lora_manager", None)
    if adapters is not None:
        adapters.add_adapter = _told_of_others(adapters, tell)
    return True


def find_model(frame: FrameType | None) -> Any:
    """The model of the runner that has called `frame`, directly or not; None if there is none."""
    runner = _find_runner(frame)
    return None if runner is None else runner.get_model()


def _find_runner(frame: FrameType | None) -> Any:
    return _find_owner(frame, "reload_weights", "get_model")


def _find_owner(frame: FrameType | None, *methods: str) -> Any:
    """The nearest caller whose object has these methods; None if there is none."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if all(hasattr(owner, method) for method in methods):
            return owner
        frame = frame.f_back
    return None


def _told(load: Callable[..., Any], tell: Callable[[Loaded], None]) -> Callable[..., Any]:
    @wraps(load)
    def told(*arguments: Any, **named: Any) -> Any:
        tell(Loaded.WEIGHTS)
        return load(*arguments, **named)

    return told


def _told_of_others(adapters: Any, tell: Callable[[Loaded], None]) -> Callable[[Any], bool]:
    """`add_adapter` of vLLM's manager of adapters, which loads those that it has not. Block hashes have an adapter's
    name and path alone, so it is the stamps of its files that tell whether the same name and path now mean others.
    Where there are no files, each load counts as another one."""
    add = adapters.add_adapter
    stamps_of: dict[tuple[str, str], object] = {}

    @wraps(add)
    def told(request: Any) -> bool:
        if request.lora_int_id in adapters.list_adapters() and not request.load_inplace:
            return bool(add(request))
        stamps = _stamps_of(request)
        added: bool = add(request)
        name = (request.lora_name, request.lora_path)
        is_full = len(stamps_of) >= _MOST_ADAPTERS
        if is_full or (name in stamps_of and (stamps is None or stamps != stamps_of[name])):
            tell(Loaded.ADAPTER)
        if is_full:
            stamps_of.clear()
        stamps_of[name] = stamps
        return added

    return told


def _stamps_of(request: Any) -> object:
    """None if the adapter is in no folder."""
    try:
        return stamp_weights(get_adapter_absolute_path(request.lora_path)).files
    except (OctavoError, OSError):
        return None
