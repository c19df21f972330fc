"""A model that answers every prompt with one text, however it is asked: for what no random model writes."""

import json

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from octavo.engine import save_tiny_model

_FIRST_FREE = 300
"""Tokens from here on stand for nothing yet."""


def save_scripted_model(folder, pieces, template):
    """Each piece is a token of its own, and each token is followed by the next one, greedily; the last by the end."""
    save_tiny_model("llama", folder)
    for number, piece in enumerate(pieces, _FIRST_FREE):
        rename_token(folder, f"<{number}>", piece, is_special=False)
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    user = [{"role": "user", "content": "Hi"}]
    prompt = tokenizer.apply_chat_template(user, add_generation_prompt=True, tokenize=False)
    tokens = [tokenizer.encode(prompt)[-1], *range(_FIRST_FREE, _FIRST_FREE + len(pieces)), tokenizer.eos_token_id]
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.zero_()  # so a token's state is its embedding
    embeddings = torch.nn.functional.normalize(weights["model.embed_tokens.weight"])
    weights["lm_head.weight"].zero_()
    weights["lm_head.weight"][tokens[1:]] = embeddings[tokens[:-1]]
    save_file(weights, folder / "model.safetensors")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_token_id}))


def rename_token(folder, old, new, *, is_special=True):
    """An unused token gets another text."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    number = content["model"]["vocab"].pop(old)
    content["model"]["vocab"][new] = number
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    content["added_tokens"].append({"id": number, "content": new, "special": is_special, **plain})
    file.write_text(json.dumps(content))
