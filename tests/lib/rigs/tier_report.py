"""What an engine with a sick disk reports of its tiers."""

from octavo.chunks import HintKind, HintOutcome
from octavo.offload import OffloadStats, OffloadStatus
from octavo.server import OffloadReport
from octavo.tiers import TierState, TierStatus

DISK = TierStatus(
    state=TierState.DEGRADED,
    reason="no space left",
    bytes_used=30,
    bytes_budget=100,
    num_chunks=3,
    counters={"store_failed": 7},
)
REPORT = OffloadReport(
    status=OffloadStatus(
        num_slots=10,
        slot_bytes=64,
        free_slots=4,
        num_chunks=5,
        chunks_being_stored=0,
        chunks_being_promoted=0,
        counters={"loaded": 2},
        tiers=(("disk", DISK),),
    ),
    stats=OffloadStats(
        loaded_tokens=96,
        loaded_bytes=6144,
        loaded_blocks={(0, "memory"): 4, (0, "disk"): 2, (1, "disk"): 1},
        stored_bytes=320,
        loads_too_slow=0,
        loads_cut_short=0,
        loads_late=0,
        failed_load_chunks=1,
        stored_chunks=5,
        failed_store_chunks=0,
        dropped_stores=0,
        hints={(HintKind.RETAIN, HintOutcome.TAKEN): 3, (HintKind.RETAIN, HintOutcome.QUOTA): 1},
    ),
)
