"""`OctavoOffloadingSpec`: the objects that vLLM makes in the scheduler's process and in each worker's."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from inspect import signature
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    OffloadingManager,
    OffloadingMetricMetadata,
    OffloadingSpec,
    OffloadingWorker,
)
from vllm.v1.kv_offload.config import OffloadingConfig

from octavo.chunks import Departures
from octavo.errors import InputError, WeightsChangedError
from octavo.namespace import make_family
from octavo.offload import OffloadingManager as OctavoOffloadingManager
from octavo.planning import why_nothing_resumes
from octavo.policies import make_policy
from octavo.tiers import opened_tiers
from octavo.vllm_plugin.adapter.connector import OctavoConnector
from octavo.vllm_plugin.adapter.describe import describe_rank
from octavo.vllm_plugin.adapter.known_pages import KnownPage, know_pages
from octavo.vllm_plugin.adapter.manager import OctavoManager, shown_logger
from octavo.vllm_plugin.adapter.metrics import DEFINITIONS, sum_up, unregister_metrics
from octavo.vllm_plugin.adapter.recording import RecorderOfRequests
from octavo.vllm_plugin.adapter.weights import find_model, watch_weights
from octavo.vllm_plugin.adapter.worker import OctavoWorker, as_canonical
from octavo.vllm_plugin.config import PluginConfig, find_replica, left_behind
from octavo.vllm_plugin.groups import groups_of_engine, has_state
from octavo.vllm_plugin.identity import describe_parts, digest_models, make_namespace, why_apart, why_not_kept
from octavo.vllm_plugin.ranks import (
    RankReport,
    check_alike,
    leave_report,
    shared_name,
    sweep,
    take_reports,
)
from octavo.vllm_plugin.shared_arena import RankArena, SharedArena, plan_shared
from octavo.why import MissLog

logger = logging.getLogger(__name__)

_LOADS_WITHIN_A_STEP = "expedited" in signature(OffloadingWorker.submit_load).parameters


class OctavoOffloadingSpec(OffloadingSpec):
    """Octavo's memory and tiers behind vLLM's `OffloadingConnector`."""

    def __init__(self, config: OffloadingConfig) -> None:
        super().__init__(config)
        if "sync_load_budget_bytes" in config.extra_config and not _LOADS_WITHIN_A_STEP:
            raise InputError("sync_load_budget_bytes needs vLLM 0.33 or later: leave it out")
        parallel = config.parallel
        self._replica = find_replica(config.engine_id, parallel.data_parallel_index, parallel.data_parallel_size)
        self._plugin = PluginConfig.from_extra_config(config.extra_config, replica=self._replica)
        self._name = shared_name(config.engine_id)

    @classmethod
    def build_metric_definitions(
        cls,
        extra_config: Mapping[str, Any],  # noqa: ARG003 - vLLM's signature
    ) -> dict[str, OffloadingMetricMetadata]:
        """vLLM calls this before it makes the metrics."""
        unregister_metrics()
        return dict(DEFINITIONS)

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        """Called in a worker's process, before the scheduler asks for the manager."""
        connector = self._connector()
        caches = as_canonical(kv_caches)
        vllm_config, kv_cache_config = connector._vllm_config, connector._kv_cache_config  # noqa: SLF001 - else unknown
        pages = know_pages(self.config, vllm_config, kv_cache_config, caches)
        frame = sys._getframe(1)  # noqa: SLF001 - vLLM shows its model nowhere else
        report = describe_rank(self.config, vllm_config, kv_cache_config, caches, pages, model=find_model(frame))
        self._left = leave_report(self._name, report)  # it is locked as long as the rank lives
        if not watch_weights(frame, self._left.tell_loaded):
            logger.warning(
                "Octavo cannot see in this vLLM whether weights are loaded into the running engine: do not load any, "
                "or leave disk, tiers and shared out, and reset the caches after each load"
            )
        return OctavoWorker(
            caches,
            report.groups,
            self.blocks_per_chunk,
            [page.page if isinstance(page, KnownPage) else None for page in pages],
            open_arena=self._open_arena,
            reports_failed_loads=isinstance(connector, OctavoConnector),
        )

    def _connector(self) -> Any:
        """The worker's connector that has this spec: vLLM's only one, or one of those that its `MultiConnector` has,
        each with a role of its own."""
        outermost = get_kv_transfer_group()
        parts = list(_connectors_of(outermost))
        own = [connector for connector in parts if _is_octavo(connector)]
        if not own:
            raise InputError(
                f"{type(outermost).__name__} has Octavo somewhere inside, where it cannot be found: name "
                "OffloadingConnector or OctavoConnector as the kv_connector, or among the connectors of MultiConnector"
            )
        if len(own) > 1:
            raise InputError(
                f"MultiConnector has Octavo {len(own)} times, and each would keep the same chunks: leave "
                "one of them in connectors, with the memory and the tiers of all"
            )
        (connector,) = own
        if sum(type(part) is type(connector) for part in parts) > 1:
            raise InputError(
                "MultiConnector has another OffloadingConnector beside Octavo's, and vLLM would end at the first "
                'metrics, as it knows those of one: take "kv_connector": "OctavoConnector" for Octavo, with '
                '"kv_connector_module_path": "octavo.vllm_plugin"'
            )
        return connector

    def _open_arena(self, num_slots: int) -> RankArena:
        return RankArena(self._name, num_slots, self.config.parallel.world_size, self.config.parallel.rank)

    def get_manager(self) -> OffloadingManager:
        """Makes the manager, in the scheduler's process."""
        sweep()
        num_ranks = self.config.parallel.world_size
        taken = take_reports(self._name, num_ranks)
        reports = taken.reports
        self._check(reports)
        self._warn_if_nothing_resumes(reports[0])
        self._tell_of_what_is_left()
        offload = self._plugin.offload
        groups = groups_of_engine(reports, self.blocks_per_chunk)
        plan = plan_shared(groups, offload.memory_bytes, num_ranks)
        digests = self._digests(reports)
        if digests and (reason := why_apart(reports)):
            logger.warning("Octavo: %s", reason)
        decides = {"blocks_per_chunk": self.blocks_per_chunk, "environ": os.environ}
        namespace, family = make_namespace(reports, digests, **decides), make_family(digests)
        identity = describe_parts(reports, digests, **decides)
        offload_tiers = offload.tiers if digests else ()
        with (
            opened_tiers(offload_tiers, groups, namespace, family=family, identity=identity) as tiers,
            ExitStack() as to_close,
        ):
            shared = SharedArena(self._name, plan, num_ranks)
            to_close.callback(shared.close)
            departures = Departures() if self._plugin.says_why else None
            manager = OctavoOffloadingManager(
                shared.slots,
                groups,
                make_policy(offload.policy, groups, plan.num_slots),
                tiers,
                limits=offload.limits,
                logs_changes=self.kv_events_config.enable_kv_cache_events,
                departures=departures,
            )
            recorder = self._make_recorder()
            if recorder is not None:
                to_close.callback(recorder.close)
            if tiers:
                self._warn_of_adapters(reports[0])
            octavo = OctavoManager(
                manager,
                shared,
                groups,
                reports[0],
                offload,
                tokens_per_hash=self.config.cache.tokens_per_hash,
                keeps_media=self._keeps_media(reports[0], has_tiers=bool(tiers)),
                recorder=recorder,
                misses=None if departures is None else MissLog(departures, groups, manager.media.cold_starts),
                take_loaded=taken.take_loaded,
            )
            shown_logger.info("Octavo is on: %s", sum_up(manager.status()))
            to_close.pop_all()
            return octavo

    def _check(self, reports: Sequence[RankReport]) -> None:
        """Refuses models and settings with which a resume would be impossible, or wrong."""
        check_alike(reports)
        if reason := reports[0].why_not_resumed:
            raise InputError(f"no prompt of this model can be resumed, as {reason}: serve it without Octavo")
        if (reason := reports[0].why_prompts_only) and not self.offload_prompt_only:
            raise InputError(f"offload_prompt_only must be true with this model, as {reason}")
        if self.extra_config.get("sync_load_budget_bytes") and has_state(reports):
            raise InputError(
                "sync_load_budget_bytes is for models without recurrent state, as vLLM takes the state that a step "
                "begins with before the loads of the step have ended: leave it out"
            )

    def _make_recorder(self) -> RecorderOfRequests | None:
        asked, block_tokens = self._plugin, self.config.cache.tokens_per_hash
        if asked.record is None:
            return None
        return RecorderOfRequests(asked.record, block_tokens=block_tokens, most_bytes=asked.record_bytes)

    def _warn_if_nothing_resumes(self, report: RankReport) -> None:
        """vLLM looks up whole chunks, so none of a chunk's tokens is found before the whole chunk is there."""
        tokens_per_chunk = self.blocks_per_chunk * max(group.tokens_per_block for group in report.groups)
        if reason := why_nothing_resumes(tokens_per_chunk, report.max_model_len):
            logger.warning("Octavo: %s", reason)

    def _tell_of_what_is_left(self) -> None:
        """The first of several engines tells it for all."""
        for path in left_behind(self._plugin.folders, self._replica) if not self._replica else ():
            logger.warning(
                "Octavo: %s has chunks of engines in another number (--data-parallel-size), which nobody reads or "
                "counts now: remove its files, unless such engines come back",
                path,
            )

    def _keeps_media(self, report: RankReport, *, has_tiers: bool) -> bool:
        if not (has_tiers and report.takes_media):
            return True
        if reason := report.why_media_not_kept:
            logger.warning("Octavo keeps prompts with images, audio or video in memory only: %s", reason)
            return False
        if self._plugin.keeps_media:
            return True
        logger.warning(
            "Octavo keeps prompts with images, audio or video in memory only: clients may name these, and another one "
            'may have the name tomorrow. If no client does, "keep_media": true lets them go below memory'
        )
        return False

    def _warn_of_adapters(self, report: RankReport) -> None:
        if report.takes_adapters:
            logger.warning(
                "Octavo keeps prompts with an adapter (LoRA) in memory only: adapters are known by name and path, and "
                "other files may lie there tomorrow. Prompts without one go below memory"
            )

    def _digests(self, reports: Sequence[RankReport]) -> list[bytes]:
        """Digests of the weights. None if there are no tiers or they may not keep anything: then nothing outlives the
        process, and reading the weights, which takes a while, has no use."""
        if not self._plugin.offload.tiers:
            return []
        reason = why_not_kept(reports, os.environ)
        if not reason:
            try:
                return digest_models(reports, self._plugin.digests)
            except WeightsChangedError as error:
                reason = str(error)
        logger.warning("Octavo keeps nothing below memory: %s", reason)
        return []


def _connectors_of(connector: Any) -> Iterator[Any]:
    """A connector, or those that it puts together."""
    parts = getattr(connector, "_connectors", None)
    if parts is None:
        yield connector
    for part in parts or ():
        yield from _connectors_of(part)


def _is_octavo(connector: Any) -> bool:
    return isinstance(connector, OffloadingConnector) and isinstance(
        connector.connector_worker.spec, OctavoOffloadingSpec
    )
