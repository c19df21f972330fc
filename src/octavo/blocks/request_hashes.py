"""The hashes of a request's blocks, for every group: of the prompt at once, and of what is generated as blocks fill."""

from collections.abc import Sequence

import numpy as np

from octavo.blocks.request import RequestBlocks
from octavo.errors import InputError
from octavo.hashing import BlockHasher, hashes_for_block_size
from octavo.ids import BlockHash, enumerate_groups
from octavo.planning import KVCacheConfig
from octavo.specs import ceil_div


class RequestHasher:
    """Names the blocks of requests for the groups of a plan. A request without names is not cached."""

    def __init__(self, config: KVCacheConfig, hasher: BlockHasher, *, is_caching: bool) -> None:
        if hasher.hash_block_size != config.hash_block_size:
            raise InputError(
                f"the hasher's blocks have {hasher.hash_block_size} tokens, the plan's {config.hash_block_size}"
            )
        self._hasher = hasher
        self._is_caching = is_caching
        self._hash_block_size = config.hash_block_size
        self._groups = config.groups
        self._wider_groups = [
            (index, group.block_size)
            for index, group in enumerate_groups(config.groups)
            if group.spec.indexes_decoder_tokens and group.block_size != config.hash_block_size
        ]

    def hash_prompt(self, request: RequestBlocks, tokens: Sequence[int] | np.ndarray) -> None:
        """Names the full blocks of a new request, whose tokens these are."""
        if not self._has_names(request):
            return
        request.hashed = self._hasher.hash_tokens(tokens, request.identity)
        for index, group in enumerate_groups(self._groups):
            if not group.spec.indexes_decoder_tokens:
                request.group_hashes[index] = self._encoder_hashes(request, group.block_size)
            elif group.block_size == self._hash_block_size:
                request.group_hashes[index] = request.hashed
            else:
                request.group_hashes[index] = list(self._widened(request.hashed, group.block_size))

    def take_over(self, request: RequestBlocks, twin: RequestBlocks) -> None:
        """Gives a request with the same prompt and identity the names that another has."""
        num_tokens = twin.num_tokens
        twin.hashed = request.hashed[: num_tokens // self._hash_block_size]
        for index, group in enumerate_groups(self._groups):
            hashes = request.group_hashes[index]
            if hashes is request.hashed:
                twin.group_hashes[index] = twin.hashed
            else:
                is_decoder = group.spec.indexes_decoder_tokens
                twin.group_hashes[index] = hashes[: num_tokens // group.block_size] if is_decoder else hashes[:]

    def hash_new_tokens(self, request: RequestBlocks) -> None:
        """Names the blocks that have become full since the last time."""
        if len(request.tokens) // self._hash_block_size == len(request.hashed) or not self._has_names(request):
            return
        self._hasher.extend(request.hashed, request.tokens, request.identity)
        for index, block_size in self._wider_groups:
            known = request.group_hashes[index]
            known.extend(self._widened(request.hashed, block_size)[len(known) :])

    def _has_names(self, request: RequestBlocks) -> bool:
        """Whether the request is cached: what attends to an encoder's input is not unless that has a digest."""
        return self._is_caching and (request.num_encoder_tokens == 0 or request.identity.encoder_digest is not None)

    def _widened(self, hashes: Sequence[BlockHash], block_size: int) -> Sequence[BlockHash]:
        return hashes_for_block_size(hashes, self._hash_block_size, block_size)

    def _encoder_hashes(self, request: RequestBlocks, block_size: int) -> list[BlockHash]:
        """Names for an encoder's blocks: its input's digest and the block's index, in the request's identity."""
        num_blocks = ceil_div(request.num_encoder_tokens, block_size)
        indices = np.arange(num_blocks * self._hash_block_size, dtype=np.int32)
        return self._hasher.hash_tokens(indices, request.identity)
