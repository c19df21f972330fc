"""What each rank tells the scheduler before the first step: how its caches are cut, and all that decides their bytes.

vLLM makes the workers first and tells the scheduler little about them. So each rank leaves a report in /dev/shm beside
the arena's segment, under the engine's name, and the scheduler takes all of them.

    0     for each kind of `Loaded`: 8 bytes, how often the rank has loaded it into the running engine
    16    the report

Both map the file, so that nothing has to be written while the engine runs, when /dev/shm may be full. A rank holds the
file's lock while it lives: what nobody locks is what dead processes left, and is removed. The number of a process would
not tell that, as processes in other containers have numbers of their own.
"""

import fcntl
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, IntEnum
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

from octavo.errors import MALFORMED, InputError, OffloadError
from octavo.host import YOUNGEST_S, find_old, is_unlocked, segment_path
from octavo.replacing import replacing

_PREFIX = "vllm-"
_WAIT_S = 5.0
_LOOK_EVERY_S = 0.05
SAME_NAME = (
    "another engine on this machine has the same engine_id, by which the processes of an engine find each other: leave "
    "engine_id out of --kv-transfer-config, or give each engine its own"
)


class Loaded(IntEnum):
    """What is loaded into a running engine, by its place in a rank's file."""

    WEIGHTS = 0
    """The model's own, or its draft model's."""
    ADAPTER = 1
    """A LoRA, by a name and path that others had before."""


_COUNTS_BYTES = 8 * len(Loaded)


class GroupRule(Enum):
    """Which blocks of a group a resume needs."""

    WHOLE = "whole"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a rank's caches."""

    group_id: int
    """The group's number in vLLM, as in its keys."""
    rule: GroupRule
    reach_tokens: int
    """How far back a window or an attention chunk reaches; else 0."""
    tokens_per_block: int
    page_bytes: int
    """The bytes of one block in this rank, without padding."""
    whole_bytes: int = 0
    """The bytes of one block in a rank that is alone, if it is known how ranks share the block; else 0."""
    whole: str = ""
    """A digest of the layout of those bytes: equal for any number of ranks. Empty if the layout is not known."""
    why_by_rank: str = ""
    """Why the layout is not known."""
    is_draft: bool = False
    """Whether vLLM resumes a chunk of this group before the end of what is there, as the last one holds drafts."""


class DeviceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The pages that one request holds of one group."""

    tokens_per_page: int
    most_pages: int
    """Of the longest request, at any time."""


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of a device, which all groups share, whether they are offloaded or not."""

    num_pages: int
    groups: tuple[DeviceGroup, ...]
    tokens_ahead: int = 0
    """A request has pages for so many tokens more than it has, as these are guessed ahead."""


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank tells."""

    rank: int
    process: int
    groups: tuple[GroupReport, ...]
    identity: dict[str, str]
    """Everything that decides what bytes mean, apart from the content of weights and from the number of ranks."""
    models: tuple[str, ...]
    """The names or folders of the loaded models: the model itself, and the one that drafts for it."""
    download_dir: str | None = None
    """Where vLLM downloads models that have a name, if not into the hub's cache."""
    max_model_len: int = 0
    """The longest context."""
    of_ranks: dict[str, str] = {}
    """What decides the bytes if it is not known how ranks share them: the number of ranks, and this rank's layout."""
    started_ns: int
    """When the process began, in ns since the epoch. The weights were loaded after that."""
    hash_algorithm: str
    takes_media: bool = False
    """Whether prompts may have images, audio or video."""
    why_media_not_kept: str = ""
    """Why no such prompt may outlive the process, whatever clients do; empty if it may."""
    takes_adapters: bool = False
    """Whether requests may come with an adapter (LoRA)."""
    stores: bool = True
    """Whether the engine stores what it computes. An engine that only decodes what others have prefilled does not."""
    why_not_kept: str = ""
    """Why nothing may outlive the process; empty if everything may."""
    why_not_resumed: str = ""
    """Why no prompt may be resumed from its beginning; empty if every prompt may."""
    why_prompts_only: str = ""
    """Why nothing of an answer may be stored; empty if everything may."""
    device: DeviceReport | None = None


def process_started_ns() -> int:
    """When this process began, in ns since the epoch."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    after_boot_ns = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")  # the fields begin with the third
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + after_boot_ns


def shared_name(engine_id: str) -> str:
    """The name of the shared files of one engine's processes. Unless somebody says otherwise, vLLM gives each engine an
    id of its own. Users may have engines of one id: nobody can write to another's files."""
    return _PREFIX + sha256(f"{os.geteuid()} {engine_id}".encode()).hexdigest()[:24]


class LeftReport:
    """A rank's report in shared memory, locked as long as this object lives."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._counts = np.frombuffer(memory, np.uint64, len(Loaded))

    def tell_loaded(self, what: Loaded) -> None:
        """Tells the engine's scheduler that something is loaded into the running engine."""
        self._counts[what] += 1


class TakenReports:
    """The reports of all ranks of an engine, in order."""

    def __init__(self, files: Sequence[mmap.mmap], reports: Sequence[RankReport]) -> None:
        self.reports = reports
        self._counts = [np.frombuffer(memory, np.uint64, len(Loaded)) for memory in files]
        self._known = self._read_counts()

    def take_loaded(self) -> list[Loaded]:
        """What the ranks have loaded since the last call. All ranks of an engine load the same."""
        known, self._known = self._known, self._read_counts()
        return [what for what in Loaded if self._known[what] != known[what]]

    def _read_counts(self) -> list[list[int]]:
        return [[int(counts[what]) for counts in self._counts] for what in Loaded]


def leave_report(name: str, report: RankReport) -> LeftReport:
    """Leaves a report for the engine's scheduler. It replaces the report of an earlier engine. InputError if there is
    one of another engine that has not started yet."""
    path = _report_path(name, report.rank)
    if path.exists() and not is_unlocked(path) and _open(path)[1].process != report.process:
        raise InputError(SAME_NAME)
    content = bytes(_COUNTS_BYTES) + msgspec.json.encode(report)
    with _usable(path), replacing(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(content)
        file.flush()
        return LeftReport(mmap.mmap(file.fileno(), len(content)))  # the mapping keeps the lock


def take_reports(name: str, num_ranks: int, wait_s: float = _WAIT_S) -> TakenReports:
    """The reports of all ranks. vLLM starts the ranks first, so their reports are there; the wait is for versions that
    do not. InputError if another engine holds the segment of this name."""
    deadline = time.monotonic() + wait_s
    paths = [_report_path(name, rank) for rank in range(num_ranks)]
    while missing := [path for path in paths if not path.exists()]:
        if time.monotonic() >= deadline:
            raise OffloadError(
                f"{len(missing)} of {num_ranks} ranks have not said how their caches are cut ({missing[0]} is not "
                "there): all ranks of an engine must run on one machine, and see the same /dev/shm; and after an "
                "engine that did not start, vLLM needs a new process"
            )
        time.sleep(_LOOK_EVERY_S)
    files, reports = zip(*map(_open, paths), strict=True)
    for path in paths:
        with _usable(path):
            path.unlink()
    segment = segment_path(name)
    if segment.exists() and not is_unlocked(segment):
        raise InputError(SAME_NAME)
    return TakenReports(files, reports)


def sweep() -> None:
    """Removes files that dead engines left."""
    for path in abandoned():
        with suppress(OSError):
            path.unlink()


def abandoned(older_than_s: float = YOUNGEST_S) -> set[Path]:
    """Segments and reports that nobody locks."""
    named = segment_path(_PREFIX)
    return set(filter(is_unlocked, find_old(named.parent, named.name, older_than_s)))


def _report_path(name: str, rank: int) -> Path:
    path = segment_path(name)
    return path.with_name(f"{path.name}.rank{rank}")


def _open(path: Path) -> tuple[mmap.mmap, RankReport]:
    """A rank's file, mapped, and the report in it."""
    with _usable(path):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise OffloadError(f"{path} belongs to somebody else: remove it")
        memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        return memory, msgspec.json.decode(memory[_COUNTS_BYTES:], type=RankReport)
    except MALFORMED as error:
        raise OffloadError(f"{path} is not a rank's report ({error}): remove it, and start again") from error
    finally:
        os.close(file)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}, by which the ranks of an engine tell its scheduler how their caches are cut, cannot be used "
            f"({error.strerror}): remove it if it is there, and give this user a {path.parent} with room that it may "
            "write to"
        ) from error


def check_alike(reports: Sequence[RankReport]) -> None:
    """All ranks must have the same groups; only their bytes may differ."""
    shapes = [
        tuple((group.group_id, group.rule, group.reach_tokens, group.tokens_per_block) for group in report.groups)
        for report in reports
    ]
    if len(set(shapes)) > 1:
        raise OffloadError(f"the ranks of one engine have different groups of caches: {shapes}")
