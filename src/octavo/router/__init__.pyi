from .address import EngineAddress as EngineAddress
from .app import RouterServer as RouterServer
from .config import RouterConfig as RouterConfig
from .decisions import Decision as Decision, Decisions as Decisions
from .engine_client import open_engine_client as open_engine_client
from .engine_connections import EngineConnections as EngineConnections
from .engine_load import EngineLoad as EngineLoad, SentRequest as SentRequest
from .feed import LearningFeed as LearningFeed
from .fleet import Fleet as Fleet
from .fleet_routes import FleetRoutes as FleetRoutes
from .index import FleetIndex as FleetIndex
from .indexes import Indexes as Indexes, ReadPrompt as ReadPrompt
from .member import Member as Member
from .metrics import ROUTER_METRICS as ROUTER_METRICS, RouterMetrics as RouterMetrics
from .names import LookUp as LookUp, look_up as look_up
from .placement import EngineChoice as EngineChoice, Placement as Placement, Prompt as Prompt
from .plan_learner import PlanLearner as PlanLearner
from .prompt_reader import (
    SESSION as SESSION,
    UNREAD as UNREAD,
    NoTokensError as NoTokensError,
    PromptReader as PromptReader,
    hints_in as hints_in,
    read_tokens as read_tokens,
    short_text as short_text,
)
from .selection.app import SelectionServer as SelectionServer
from .selection.config import SelectionConfig as SelectionConfig
from .selection.metrics import SELECTION_METRICS as SELECTION_METRICS
from .selection.service import SelectionService as SelectionService
