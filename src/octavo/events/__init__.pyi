from . import messages as messages
from .changes import CacheChanges as CacheChanges, StepEvents as StepEvents, StoredRun as StoredRun
from .endpoints import (
    check_endpoint as check_endpoint,
    endpoint_of_rank as endpoint_of_rank,
    is_local as is_local,
    is_loopback as is_loopback,
)
from .group_view import GroupView as GroupView
from .held_blocks import (
    NO_STORES as NO_STORES,
    Expectation as Expectation,
    HeldBlocks as HeldBlocks,
    Holder as Holder,
    Media as Media,
    Sharing as Sharing,
)
from .keys import check_subscriber as check_subscriber, make_keys as make_keys
from .messages import (
    MEDIUM_CPU as MEDIUM_CPU,
    MEDIUM_GPU as MEDIUM_GPU,
    MEDIUM_STORAGE as MEDIUM_STORAGE,
    SHARED_MEDIA as SHARED_MEDIA,
    AllBlocksCleared as AllBlocksCleared,
    AnyEvent as AnyEvent,
    BlockRemoved as BlockRemoved,
    BlockStored as BlockStored,
    ExternalHash as ExternalHash,
    KVEventBatch as KVEventBatch,
)
from .published_plan import PublishedGroup as PublishedGroup, PublishedPlan as PublishedPlan
from .publisher import EventPublisher as EventPublisher, Volume as Volume, ZmqPublisher as ZmqPublisher
from .publisher_config import PublisherConfig as PublisherConfig
from .reach import Reach as Reach, reach_of as reach_of
from .session import (
    Delivered as Delivered,
    Heard as Heard,
    Resync as Resync,
    ResyncReason as ResyncReason,
    Silence as Silence,
    SubscriberItem as SubscriberItem,
)
from .shared_context import SharedContext as SharedContext
from .skim import skim_batch as skim_batch
from .sockets import Context as Context, new_context as new_context, open_endpoint as open_endpoint
from .sources import EventSource as EventSource, external_hashes as external_hashes
from .subscriber import Subscriber as Subscriber
from .subscriber_config import SourceConfig as SourceConfig, SubscriberConfig as SubscriberConfig
from .wire import (
    DEFAULT_LIMITS as DEFAULT_LIMITS,
    decode_batch as decode_batch,
    encode_batch as encode_batch,
    encode_sequence as encode_sequence,
)
