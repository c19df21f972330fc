"""Pins on the chunks that a promise has stored so far, until its last part: a prompt that is larger than memory must
not evict its own first chunks. Of windows and states only the chunks of the last whole boundary stay pinned."""

from collections.abc import Iterable, Sequence

from octavo.chunks import OffloadKey, get_offload_group_idx
from octavo.ids import Slot
from octavo.offload.manager import OffloadingManager
from octavo.offload.store_plan import Stage


class StorePins:
    """The pins of the promise that is being kept."""

    def __init__(self, manager: OffloadingManager, is_prefix: Sequence[bool]) -> None:
        self._manager = manager
        self._is_prefix = is_prefix
        """Per group: whether a resume needs its blocks from the first one on."""
        self._of_prefix: list[tuple[OffloadKey, Slot]] = []
        self._of_runs: list[tuple[OffloadKey, Slot]] = []
        self._awaited: dict[OffloadKey, Stage] = {}
        """Chunks to pin as soon as they are in memory -> the stage that needs them."""
        self._whole: Stage | None = None
        """The stage of the last boundary that is whole."""

    def add(self, keys: Sequence[OffloadKey], stage: Stage) -> None:
        """A stage needs these chunks: they are in memory, or another request's store brings them."""
        self.expect(keys, stage)
        self.arrived(keys)

    def expect(self, keys: Iterable[OffloadKey], stage: Stage) -> None:
        """A store brings these chunks for a stage. Memory may have them with fewer blocks until then."""
        self._awaited.update(dict.fromkeys(keys, stage))

    def arrived(self, keys: Sequence[OffloadKey]) -> None:
        """These chunks are in memory now, unless their store failed."""
        wanted = [
            key for key in dict.fromkeys(keys) if key in self._awaited and self._is_of_use(key, self._awaited[key])
        ]
        for pin in self._manager.pin(wanted):
            del self._awaited[pin[0]]
            is_prefix = self._is_prefix[get_offload_group_idx(pin[0])]
            (self._of_prefix if is_prefix else self._of_runs).append(pin)

    def keep_runs_of(self, stage: Stage) -> None:
        """A boundary is whole, so windows and states of earlier boundaries may go."""
        self._whole = stage
        self._manager.unpin([pin for pin in self._of_runs if pin[0] not in stage.keys_of_runs])
        self._of_runs = [pin for pin in self._of_runs if pin[0] in stage.keys_of_runs]

    def release(self) -> None:
        self._manager.unpin([*self._of_prefix, *self._of_runs])
        self._of_prefix, self._of_runs, self._awaited, self._whole = [], [], {}, None

    def _is_of_use(self, key: OffloadKey, stage: Stage) -> bool:
        whole = self._whole
        return (
            self._is_prefix[get_offload_group_idx(key)]
            or whole is None
            or stage.num_tokens > whole.num_tokens
            or key in whole.keys_of_runs
        )
