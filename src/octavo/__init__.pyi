from .blocks import KVCacheManager as KVCacheManager
from .engine import Engine as Engine, EngineConfig as EngineConfig, SamplingParams as SamplingParams
from .events import GroupView as GroupView
from .offload import OffloadConfig as OffloadConfig, OffloadScheduler as OffloadScheduler
from .planning import plan_kv_cache as plan_kv_cache, read_model as read_model
from .specs import KVCacheSpecRegistry as KVCacheSpecRegistry
from .version import __version__ as __version__
