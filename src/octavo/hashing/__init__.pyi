from .algorithms import (
    DEFAULT_ALGORITHM as DEFAULT_ALGORITHM,
    DEFAULT_SEED as DEFAULT_SEED,
    HASH_ALGORITHMS as HASH_ALGORITHMS,
)
from .hasher import BlockHasher as BlockHasher, hashes_for_block_size as hashes_for_block_size
from .identity import (
    PLAIN as PLAIN,
    ExtraKeys as ExtraKeys,
    MultiModalItem as MultiModalItem,
    PromptEmbeds as PromptEmbeds,
    RequestIdentity as RequestIdentity,
)
