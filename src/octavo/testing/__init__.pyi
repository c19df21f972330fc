from . import policy_suite as policy_suite, strategies as strategies, tier_driver as tier_driver
from .block_machine import (
    ENCODER_INPUTS as ENCODER_INPUTS,
    IDENTITIES as IDENTITIES,
    PROMPTS as PROMPTS,
    WHICH as WHICH,
    BlockMachine as BlockMachine,
    check_block_manager as check_block_manager,
)
from .manager_suite import (
    KVCacheManagerSuite as KVCacheManagerSuite,
    SingleTypeKVCacheManagerSuite as SingleTypeKVCacheManagerSuite,
)
from .naive_blocks import NaiveEngine as NaiveEngine
from .naive_device import NaiveDevice as NaiveDevice, Slot as Slot
from .naive_request import NaiveRequest as NaiveRequest, StepPlan as StepPlan
from .policy_suite import EvictionPolicySuite as EvictionPolicySuite
from .small_models import (
    MODEL_EXAMPLES as MODEL_EXAMPLES,
    SmallModel as SmallModel,
    chunked as chunked,
    circular as circular,
    cross as cross,
    full as full,
    sinks as sinks,
    small_model as small_model,
    state as state,
    window as window,
)
from .spec_suite import KVCacheSpecSuite as KVCacheSpecSuite
from .tier_driver import NAMESPACE as NAMESPACE, OTHER_NAMESPACE as OTHER_NAMESPACE
from .tier_suite import TierSuite as TierSuite
from .traffic import TRAFFIC as TRAFFIC, make_traffic as make_traffic
from .worker_suite import OffloadingWorkerSuite as OffloadingWorkerSuite
