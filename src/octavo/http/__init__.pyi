from .admission import Admission as Admission, Ticket as Ticket
from .body_parts import check_parts as check_parts
from .body_route import BodyRoute as BodyRoute
from .config import HttpConfig as HttpConfig, check_api_keys as check_api_keys
from .engine_facts import EngineFacts as EngineFacts
from .errors import (
    ApiError as ApiError,
    as_api_error as as_api_error,
    bad_request as bad_request,
    not_durable as not_durable,
    not_found as not_found,
    overloaded as overloaded,
    shutting_down as shutting_down,
)
from .exchange import (
    IGNORED_FIELDS as IGNORED_FIELDS,
    RETAIN as RETAIN,
    ClientGoneError as ClientGoneError,
    Exchange as Exchange,
    Headers as Headers,
    event as event,
)
from .gate import TENANT as TENANT, Access as Access, Gate as Gate
from .gated_app import gated_app as gated_app
from .load_book import (
    LOAD_HEARTBEAT_S as LOAD_HEARTBEAT_S,
    PREFILL as PREFILL,
    ROUTER as ROUTER,
    Load as Load,
    LoadBook as LoadBook,
    OpenLoad as OpenLoad,
)
from .logs import set_up_logs as set_up_logs
from .metric import (
    CONTENT_TYPE as CONTENT_TYPE,
    ByLabels as ByLabels,
    Described as Described,
    Metric as Metric,
    MetricKind as MetricKind,
    Values as Values,
    counter as counter,
    gauge as gauge,
)
from .metrics import ANSWERS as ANSWERS, FIRST_TOKEN_S as FIRST_TOKEN_S, GONE as GONE, HttpMetrics as HttpMetrics
from .page import read_page as read_page
from .refusals import as_json as as_json
from .server import HttpServer as HttpServer
from .signalled import SignalledServer as SignalledServer
from .signals import EndingSignals as EndingSignals, ending_well as ending_well, taking_signals as taking_signals
from .sockets import http_settings as http_settings, open_socket as open_socket, url_of as url_of
from .tenants import (
    Tenant as Tenant,
    quotas_of as quotas_of,
    read_tenants as read_tenants,
    tenant_of as tenant_of,
    tenants_of as tenants_of,
)
from .threads import PatientCalls as PatientCalls, run_apart as run_apart, take_error as take_error
from .whole_events import is_event_stream as is_event_stream
