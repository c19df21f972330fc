"""What each rank tells the scheduler before the first step: how its caches are cut, and all that decides their bytes.

vLLM makes the workers first and tells the scheduler little about them. So each rank leaves a report in /dev/shm beside
the arena's segment, under the engine's name, and the scheduler takes all of them. What dead processes left is removed.
A person may give several engines one id, and so one name: none takes what another's ranks leave.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from hashlib import sha256
from pathlib import Path

import msgspec

from octavo.errors import MALFORMED, InputError, OffloadError
from octavo.host import YOUNGEST_S, find_old, is_unlocked, segment_path

_PREFIX = "vllm-"
_WAIT_S = 5.0
_LOOK_EVERY_S = 0.05
SAME_NAME = (
    "another engine on this machine has the same engine_id, by which the processes of an engine find each other: leave "
    "engine_id out of --kv-transfer-config, or give each engine its own"
)


class Loaded(Enum):
    """What is loaded into a running engine."""

    WEIGHTS = "weights"
    """The model's own, or its draft model's."""
    ADAPTER = "adapter"
    """A LoRA, by a name and path that others had before."""


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
    id of its own."""
    return _PREFIX + sha256(engine_id.encode()).hexdigest()[:24]


def leave_report(name: str, report: RankReport) -> None:
    """Leaves a report for the engine's scheduler. It replaces the report of an earlier engine. InputError if there is
    one of another engine that has not started yet."""
    path = _report_path(name, report.rank)
    if path.exists() and not _is_abandoned(path) and _read(path).process != report.process:
        raise InputError(SAME_NAME)
    _write(path, report)


def tell_loaded(name: str, report: RankReport, what: Loaded) -> None:
    """Leaves word for the engine's scheduler that something is loaded into the running engine. It is a rank's report
    once more, so that it is removed like one."""
    path = _loaded_path(name, report.process, what)
    if not path.exists():
        _write(path, report)


def take_loaded(name: str, processes: Iterable[int]) -> list[Loaded]:
    """Of what the ranks in these processes have left such word since the last call. All ranks of an engine leave the
    same."""
    left = [(what, path) for pid in processes for what in Loaded if (path := _loaded_path(name, pid, what)).exists()]
    for _, path in left:
        path.unlink(missing_ok=True)
    return list(dict.fromkeys(what for what, _ in left))


def _write(path: Path, report: RankReport) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, msgspec.json.encode(report))
    finally:
        os.close(file)
    draft.rename(path)


def take_reports(name: str, num_ranks: int, wait_s: float = _WAIT_S) -> list[RankReport]:
    """The reports of all ranks, in order. vLLM starts the ranks first, so their reports are there; the wait is for
    versions that do not. InputError if another engine holds the segment of this name."""
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
    reports = [_read(path) for path in paths]
    for path in paths:
        path.unlink()
    take_loaded(name, [report.process for report in reports])  # of an earlier engine in these processes
    segment = segment_path(name)
    if segment.exists() and not is_unlocked(segment):
        raise InputError(SAME_NAME)
    return reports


def sweep() -> None:
    """Removes files that dead engines left."""
    for path in abandoned():
        with suppress(OSError):
            path.unlink()


def abandoned(older_than_s: float = YOUNGEST_S) -> set[Path]:
    """Segments that nobody locks, and reports of processes that have ended."""
    named = segment_path(_PREFIX)
    found = set()
    for path in find_old(named.parent, named.name, older_than_s):
        with suppress(OSError):
            if _is_abandoned(path):
                found.add(path)
    return found


def _is_abandoned(path: Path) -> bool:
    if ".rank" not in path.name:
        return is_unlocked(path)
    try:
        return not Path(f"/proc/{_read(path).process}").exists()
    except OffloadError:
        return True


def _report_path(name: str, rank: int) -> Path:
    path = segment_path(name)
    return path.with_name(f"{path.name}.rank{rank}")


def _loaded_path(name: str, process: int, what: Loaded) -> Path:
    path = segment_path(name)
    return path.with_name(f"{path.name}.ranks-{what.value}-{process}")


def _read(path: Path) -> RankReport:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise OffloadError(f"{path} belongs to somebody else: remove it")
        return msgspec.json.decode(os.read(file, os.fstat(file).st_size), type=RankReport)
    except MALFORMED as error:
        raise OffloadError(f"{path} is not a rank's report ({error}): remove it, and start again") from error
    finally:
        os.close(file)


def check_alike(reports: Sequence[RankReport]) -> None:
    """All ranks must have the same groups; only their bytes may differ."""
    shapes = [
        tuple((group.group_id, group.rule, group.reach_tokens, group.tokens_per_block) for group in report.groups)
        for report in reports
    ]
    if len(set(shapes)) > 1:
        raise OffloadError(f"the ranks of one engine have different groups of caches: {shapes}")
