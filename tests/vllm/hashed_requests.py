"""Requests of the real vLLM, whose blocks it hashes itself."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own
    from vllm.lora.request import LoRARequest
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request


def vllm_request(tokens, identity, block_size, *ahead, prompt_embeds=None):
    """`ahead`: how many tokens after a block its hash covers, for a vLLM that knows such hashes."""
    features = [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=item.identifier,
            mm_position=PlaceholderRange(offset=item.offset, length=item.length),
        )
        for item in identity.multimodal
    ]
    return Request(
        request_id="r",
        prompt_token_ids=None if prompt_embeds is not None else tokens,
        sampling_params=SamplingParams(max_tokens=64),
        pooling_params=None,
        prompt_embeds=prompt_embeds,
        mm_features=features,
        lora_request=identity.lora_name and LoRARequest(identity.lora_name, 1, identity.lora_path),
        cache_salt=identity.cache_salt,
        block_hasher=kv_cache_utils.get_request_block_hasher(block_size, sha256_cbor, *ahead),
    )
