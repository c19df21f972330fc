from .async_engine import AsyncEngine as AsyncEngine
from .batch import ScheduledSequence as ScheduledSequence, StepBatch as StepBatch, StepLogits as StepLogits
from .building import plan_for as plan_for
from .checks import check_before_loading as check_before_loading
from .compatibility import check_together as check_together
from .config import EngineConfig as EngineConfig
from .detokenizer import Detokenizer as Detokenizer
from .engine import Engine as Engine
from .event_feed import published_plan as published_plan
from .grammars import (
    Grammar as Grammar,
    GrammarCompiler as GrammarCompiler,
    json_grammar as json_grammar,
    json_rule as json_rule,
    regex_grammar as regex_grammar,
)
from .models import CacheGeometry as CacheGeometry, CausalModel as CausalModel, load_model as load_model
from .offloading import offload_maker as offload_maker
from .outputs import (
    Alternatives as Alternatives,
    FinishReason as FinishReason,
    RequestOutput as RequestOutput,
    TokenLogprobs as TokenLogprobs,
)
from .request import Choice as Choice, Request as Request, find_text_before as find_text_before
from .runner import ModelRunner as ModelRunner
from .sampling_params import MAX_LOGPROBS as MAX_LOGPROBS, SamplingParams as SamplingParams
from .scheduler import Chunk as Chunk, Scheduler as Scheduler, SchedulerLimits as SchedulerLimits
from .statistics import (
    ClassOccupancy as ClassOccupancy,
    EngineCounters as EngineCounters,
    EngineSnapshot as EngineSnapshot,
    GroupOccupancy as GroupOccupancy,
)
from .stream import RequestStream as RequestStream
from .tiny_families import TINY_MODELS as TINY_MODELS
from .tiny_models import save_tiny_model as save_tiny_model
from .tokenizer import AddedToken as AddedToken, FastTokenizer as FastTokenizer, find_added_token as find_added_token
