"""An engine in a process of its own, over a store that others share:

python -m rigs.shared_engine MODEL CONFIG PROMPTS

CONFIG and PROMPTS are JSON, the prompts as tokens. Prints JSON: answers, and how many tokens were resumed, by medium.
"""

import json
import sys
import time
from pathlib import Path

from octavo.engine import Engine, EngineConfig, SamplingParams, offload_maker
from rigs.offload_always import offload_always


def main():
    folder, offload, prompts = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    config = EngineConfig(
        model=folder, device_memory_bytes=8 << 20, max_model_len=512, attention_block_size=8, state_block_size=16
    )
    make_offload = offload_maker(config, offload_always(offload)) if offload else None
    engine = Engine.from_config(config, make_offload=make_offload)
    answers = {str(number): [] for number in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, SamplingParams(max_tokens=6, temperature=0, ignore_eos=True))
    while engine.has_unfinished:
        for output in engine.step():
            answers[output.request_id] += output.token_ids
    if offload:
        assert engine._offload.flush(60, time.monotonic)
    print(json.dumps([answers, dict(engine.counters.tokens_resumed)]))
    engine.close()


if __name__ == "__main__":
    main()
