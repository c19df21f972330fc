"""A server of Ray Serve LLM whose vLLM tells its events, and the tokens of its requests."""

from ray.serve.llm import LLMServer

from rigs.ports import free_port

HASHES = "sha256_cbor"


class TellingServer(LLMServer):
    """Its vLLM publishes events on free ports, and `OctavoRouter` hears where."""

    async def __init__(self, llm_config, **options):
        events, replay = free_port(), free_port()
        llm_config.update_engine_kwargs(
            prefix_caching_hash_algo=HASHES,
            kv_events_config={
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"tcp://*:{events}",
                "replay_endpoint": f"tcp://*:{replay}",
            },
        )
        self._told = {
            "kv_events_endpoints": {"0": f"tcp://127.0.0.1:{events}"},
            "replay_endpoint": f"tcp://127.0.0.1:{replay}",
            "hash_algorithm": HASHES,
            "hash_seed": "0",
        }
        await super().__init__(llm_config, **options)

    async def record_routing_stats(self):
        return await super().record_routing_stats() | {"octavo": self._told}


def read_call(args, _):
    """A prompt of tokens, as completions may have it."""
    prompt = getattr(args[0], "prompt", None) if args else None
    return {"token_ids": prompt} if isinstance(prompt, list) and all(isinstance(one, int) for one in prompt) else {}
