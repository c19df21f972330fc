"""The threads of a disk tier, and the watchdog over them."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.tiers.disk.cipher import RecordCipher
from octavo.tiers.disk.config import DiskConfig
from octavo.tiers.disk.health import DiskHealth, Watchdog
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.opening import OpenedDirectory
from octavo.tiers.disk.operations import Reports
from octavo.tiers.disk.reader import Readers
from octavo.tiers.disk.writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """One writer, some readers, the prober of a sick disk, and the watchdog over all their calls."""

    writer: Writer
    readers: Readers
    health: DiskHealth
    watchdog: Watchdog


def start_workers(
    config: DiskConfig,
    opened: OpenedDirectory,
    *,
    io: DiskIO,
    namespace: bytes,
    family: bytes,
    cipher: RecordCipher | None,
    segment_bytes: int,
    buffer_bytes: int,
    reports: Reports,
    describe: Callable[[], None] | None,
) -> Workers:
    writer = Writer(
        io=io,
        lock=opened.lock,
        namespace=namespace,
        family=family,
        cipher=cipher,
        ledger=opened.ledger,
        buffer_bytes=buffer_bytes,
        reports=reports,
        describe=describe,
    )
    readers = Readers(
        io=io,
        namespace=namespace,
        cipher=cipher,
        num_threads=config.read_threads,
        buffer_bytes=buffer_bytes,
        reports=reports,
    )
    health = DiskHealth(
        directory=config.path,
        io=io,
        lock=opened.lock,
        ledger=opened.ledger,
        segment_bytes=segment_bytes,
        reports=reports,
    )
    tickets = [*writer.tickets, *readers.tickets, health.probe_ticket]
    return Workers(writer=writer, readers=readers, health=health, watchdog=Watchdog(tickets, config.hang_s))
