"""Whose a chunk is goes with it: from the request's salt to memory, to the disk, and back."""

from collections import Counter

from workloads import families, forget_device, greedy, settle

from octavo.chunks import NO_TENANT, name_tenant
from octavo.tiers.disk import layout

PROMPTS = {"team-a": 96, "team-b": 64, None: 32}
SALTS = list(PROMPTS)


family = families("llama")


def ask(engine, salt, start=3):
    prompt = [start + token % 200 for token in range(PROMPTS[salt] + 1)]
    engine.add_request(f"{salt}", prompt, greedy(2), cache_salt=salt)
    while engine.has_unfinished:
        for output in engine.step():
            cached = output.cached_tokens
    return sum((cached or {}).values())


def on_disk(folder):
    """How many records of each tenant the segments hold."""
    tenants = Counter()
    for file in folder.glob("segment-*"):
        data = file.read_bytes()
        headers = (layout.parse_record_header(data[at:]) for at in range(0, len(data), layout.ALIGNMENT))
        tenants.update(header.tenant for header in headers if header is not None)
    return tenants


def test_records_on_disk_say_whose_they_are(family, tmp_path):
    """Also those that were read from it, given up by it, and written again from memory."""
    tiers = {"memory": "4MiB", "tiers": [{"type": "disk", "path": str(tmp_path / "disk"), "size": "64MiB"}]}
    engine = family.engine(offload=tiers)
    for salt in SALTS:
        assert ask(engine, salt) == 0
    forget_device(engine)
    for salt in SALTS:
        assert ask(engine, salt) == PROMPTS[salt]
    settle(engine)
    engine.close()
    blocks = {salt: count // engine.manager.config.groups[0].block_size for salt, count in PROMPTS.items()}
    assert on_disk(tmp_path / "disk") == {
        name_tenant("team-a"): blocks["team-a"],
        name_tenant("team-b"): blocks["team-b"],
        NO_TENANT: blocks[None],
    }
    engine = family.engine(offload=tiers)
    for salt in SALTS:
        assert ask(engine, salt) == PROMPTS[salt]
    (lower,) = engine._offload._manager._below.lowers
    keys = list(engine._offload._manager._resident.index)
    lower._tier.remove(keys)  # as if the log had turned
    forget_device(engine)
    for salt in SALTS:
        assert ask(engine, salt) == PROMPTS[salt]
    settle(engine)
    engine.close()
    again = on_disk(tmp_path / "disk")
    assert {tenant: count // 2 for tenant, count in again.items()} == {
        name_tenant(salt): count for salt, count in blocks.items()
    }
