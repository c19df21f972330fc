"""What a client has not read yet: it gets all of it, and costs the engine's thread little however much there is."""

import asyncio
import random

import pytest

from octavo.engine.outputs import Alternatives, FinishReason, RequestOutput, TokenLogprobs
from octavo.engine.stream import RequestStream


def new_output(token_ids, *, index=0, is_last=False):
    return RequestOutput(
        request_id="r",
        index=index,
        token_ids=tuple(token_ids),
        text="".join(map(chr, token_ids)),
        logprobs=tuple(
            TokenLogprobs(token_id=token_id, logprob=-1.0, rank=1, top=Alternatives()) for token_id in token_ids
        ),
        finish_reason=FinishReason.LENGTH if is_last else None,
        num_prompt_tokens=1,
        num_output_tokens=1 + max(token_ids, default=0),
    )


def putting(outputs, *, num_choices=1):
    async def put_and_read():
        stream = RequestStream("r", num_choices, lambda _: None)
        for output in outputs:
            stream.put(output)
        return [output async for output in stream]

    return asyncio.run(put_and_read())


def test_a_late_reader_is_cheap(monkeypatch):
    copied, merge = [], RequestOutput.then

    def then(self, later):
        copied.append(len(self.token_ids) + len(later.token_ids))
        return merge(self, later)

    monkeypatch.setattr(RequestOutput, "then", then)
    length = 1 << 12
    (output,) = putting([*([new_output([i]) for i in range(length)]), new_output([], is_last=True)])
    assert output.token_ids == tuple(range(length))
    assert sum(copied) <= length * 15, "each token is copied once for each of 12 doublings, and at the end"


@pytest.mark.parametrize("seed", range(20))
def test_a_late_reader_gets_all_in_order(seed):
    """Also if steps bring several tokens, or none."""
    chance = random.Random(seed)
    outputs, tokens = [], [0, 0]
    for _ in range(chance.randrange(60)):
        index, count = chance.randrange(2), chance.randrange(4)
        outputs.append(new_output(range(tokens[index], tokens[index] + count), index=index))
        tokens[index] += count
    outputs += [new_output([], index=index, is_last=True) for index in range(2)]
    read = sorted(putting(outputs, num_choices=2), key=lambda output: output.index)
    assert [output.token_ids for output in read] == [tuple(range(count)) for count in tokens]
    assert all(output.text == "".join(map(chr, output.token_ids)) for output in read)
    assert all(tuple(token.token_id for token in output.logprobs) == output.token_ids for output in read)
    assert all(output.is_finished for output in read)
