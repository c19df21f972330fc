"""Conversations with calls, as the templates of the families write them."""

import msgspec
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from octavo.http import ApiError
from octavo.server.prompts import PromptReader
from octavo.server.requests import ChatRequest, CompletionRequest
from rigs.chat_templates import TEMPLATES

CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"text": "<é>", "most": 2}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "none"}


@pytest.fixture
def write(model_folder):
    def write(form, **message):
        tokenizer = AutoTokenizer.from_pretrained(model_folder)
        tokenizer.chat_template = TEMPLATES[form]
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [CALL], **message}, RESULT]
        request = msgspec.convert({"messages": messages}, ChatRequest)
        return PromptReader(tokenizer, max_model_len=1000, most_prompts=1).chat(request).text

    return write


def test_glm(write):
    pairs = (
        "<arg_key>text</arg_key>",
        "<arg_value><é></arg_value>",
        "<arg_key>most</arg_key>",
        "<arg_value>2</arg_value>",
    )
    lines = "\n".join(["assistant: <tool_call>find", *pairs, "</tool_call>"])
    assert write("glm") == f"user: Hi\n{lines}\ntool: none\n"


@pytest.mark.parametrize("content", [None, "", "Well."])
def test_deepseek(write, content):
    call = CALL["function"]["arguments"]
    calls = (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>{call}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )
    assert write("deepseek", content=content) == f"user: Hi\nassistant: {content or ''}{calls}\ntool: none\n"
    assert f"function<｜tool▁sep｜>find\n```json\n{call}\n```<" in write("deepseek_v3", content=content)


def test_arguments_as_an_object(write):
    call = {**CALL, "function": {"name": "find", "arguments": {"text": "é"}}}
    assert '<｜tool▁sep｜>{"text": "é"}<' in write("deepseek", tool_calls=[call])


def test_harmony(write):
    text = write("harmony", reasoning_content="Hm")
    assert "<|start|>assistant<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.find" in text
    assert '<|channel|>commentary json<|message|>{"text": "<é>", "most": 2}<|call|>' in text.replace(
        "\\u003c", "<"
    ).replace("\\u003e", ">")


def test_a_text_that_the_tokenizer_cannot_encode_is_a_bad_request():
    """Token ids are still taken."""
    letters = Tokenizer(WordLevel({"A": 0, "C": 1, "G": 2, "T": 3}))
    letters.pre_tokenizer = Split("", "isolated")
    reader = PromptReader(PreTrainedTokenizerFast(tokenizer_object=letters), max_model_len=100, most_prompts=1)

    def read(prompt):
        (only,) = reader.completion(msgspec.convert({"prompt": prompt}, CompletionRequest))
        return list(only.token_ids)

    assert read("GATC") == read([2, 0, 3, 1]) == [2, 0, 3, 1]
    with pytest.raises(ApiError, match=r"cannot encode this text \(.*\): write it in the tokenizer's own alphabet"):
        read("GATC N")
