"""`octavo store` tells namespaces by the models that they belong to, and believes nothing that it reads there."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from octavo.offload import SharedConfig
from octavo.testing import tier_driver
from octavo.tiers import TierContext
from rigs.objects_suite import PATIENT

FAMILY = b"f" * 16
KIEL = {"model": "org/kiel", "dtype": "bfloat16", "plan": "2 full_attention", "hash_seed": "a secret"}
BERN = {"model": "/home/alice/models/bern/", "cache_dtype": "auto", "vllm": "0.32.0", "codec": "none"}
KIELS, BERNS = tier_driver.NAMESPACE, tier_driver.OTHER_NAMESPACE
KEY = "5a" * 32


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two models in one store: three objects, and one."""
    for number in range(3):
        fill(tmp_path / "store", KIEL, KIELS, [number * 100])
    fill(tmp_path / "store", BERN, BERNS, [0])
    return tmp_path / "store"


def fill(store, identity, namespace, numbers, **settings):
    spec = SharedConfig.from_mapping({"url": f"file://{store}", **PATIENT, **settings}).spec
    context = TierContext(
        namespace=namespace, family=FAMILY, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES, identity=identity
    )
    with closing(spec.build(context)) as tier:
        driver = tier_driver.TierDriver(tier, lambda tier: tier.flush(0.001))
        assert driver.store(tier_driver.chunks(numbers)) == frozenset()


def described(store, namespace):
    return store / FAMILY.hex() / "names" / namespace.hex()


def listed(octavo, store, *options):
    return json.loads(octavo("store", "ls", f"file://{store}", "--json", *options).out)


def models(octavo, store, *options):
    return {line["namespace"]: line["description"].get("model") for line in listed(octavo, store, *options)}


def test_ls_names_the_model_of_a_namespace(octavo, store):
    (kiel, bern) = octavo("store", "ls", f"file://{store}").out.splitlines()
    assert kiel.startswith(f"{KIELS.hex()}  3 objects, ")
    assert f"; model org/kiel, bfloat16, 2 full_attention; family {FAMILY.hex()[:16]}, epoch 0" in kiel
    assert "; model bern, auto, vLLM 0.32.0; family" in bern
    assert "0 other objects" in octavo("store", "stat", f"file://{store}").out


def test_a_description_has_no_seed_and_no_folder(store):
    for namespace, secret in ((KIELS, b"secret"), (BERNS, b"alice")):
        assert secret not in described(store, namespace).read_bytes()


def test_the_first_description_stays(octavo, store):
    fill(store, KIEL | {"model": "other"}, KIELS, [1])
    assert models(octavo, store)[KIELS.hex()] == "org/kiel"


def test_commands_take_a_model_for_its_namespace(octavo, store, tmp_path):
    url = f"file://{store}"
    assert octavo("store", "stat", url, "--namespace", "org/kiel").out.startswith("3 objects, ")
    assert octavo("store", "verify", url, "--namespace", "org/kiel").out.startswith("3 objects, ")
    assert octavo("store", "stat", url, "--namespace", KIELS.hex()[:6]).out.startswith("3 objects, ")
    size = ("--disk", tmp_path / "disk", "--size", "4MiB")
    ran = octavo("store", "warm", url, *size)
    assert "(model org/kiel, bfloat16, 2 full_attention) or " in ran.err.replace("\n", " ")
    assert octavo("store", "warm", url, *size, "--namespace", "bern").out.startswith("1 object, ")
    ran = octavo("store", "gc", url, "--size", "1B", "--namespace", "org/kiel")
    assert ran.out.startswith("3 objects, ")
    assert ", of 3 objects, " in ran.out
    assert models(octavo, store) == {BERNS.hex(): "bern"}


@pytest.mark.parametrize("command", ["stat", "verify", "gc", "delete"])
def test_a_name_that_nobody_has_is_refused(octavo, store, command):
    yes = ["--yes"] if command == "delete" else []
    for namespace in ("kiel", "ff"):
        ran = octavo("store", command, f"file://{store}", "--namespace", namespace, *yes)
        assert ran.code == 2
        assert f"no namespace whose digest begins with '{namespace}' or whose model has this name" in ran.err
    assert len(models(octavo, store)) == 2


def test_a_name_of_hex_digits_is_a_digest(octavo, store):
    fill(store, KIEL | {"model": KIELS.hex()[:4]}, b"\xff" * 16, [0])
    octavo("store", "delete", f"file://{store}", "--namespace", KIELS.hex()[:4], "--yes")
    assert set(models(octavo, store)) == {BERNS.hex(), "ff" * 16}


def test_a_description_goes_with_the_last_object(octavo, store):
    url, kiel, bern = (f"file://{store}", described(store, KIELS), described(store, BERNS))
    octavo("store", "gc", url, "--size", "1B", "--dry-run")
    one = max(line["num_bytes"] for line in listed(octavo, store)) // 3
    assert octavo("store", "gc", url, "--size", f"{one}B", "--namespace", "org/kiel").out.startswith("2 objects, ")
    assert kiel.exists()
    octavo("store", "gc", url, "--size", "1B", "--namespace", "org/kiel")
    assert not kiel.exists()
    assert bern.exists()
    octavo("store", "delete", url, "--namespace", "bern", "--yes")
    assert not bern.exists()


def test_what_is_encrypted_is_named_with_its_key_only(octavo, tmp_path):
    store, key, other = tmp_path / "store", tmp_path / "key", tmp_path / "other"
    key.write_text(KEY)
    other.write_text("a5" * 32)
    fill(store, KIEL, KIELS, [0], key_file=str(key))
    (packed,) = (path.read_bytes() for path in (store / FAMILY.hex() / "names").iterdir())
    assert b"kiel" not in packed
    assert list(models(octavo, store, "--key-file", key).values()) == ["org/kiel"]
    assert list(models(octavo, store).values()) == list(models(octavo, store, "--key-file", other).values()) == [None]
    assert "model unknown" in octavo("store", "ls", f"file://{store}").out
    ran = octavo("store", "gc", f"file://{store}", "--size", "1B", "--namespace", "org/kiel", "--key-file", key)
    assert ran.out.startswith("1 object, ")
    assert not list(store.rglob("names/*"))


@pytest.mark.parametrize(
    "content", [b"", b"x" * (5 << 20), b"[" * 100_000, b"{}"], ids=["none", "huge", "deep", "plain"]
)
def test_what_is_no_description_is_unknown(octavo, store, content):
    described(store, KIELS).write_bytes(content)
    assert models(octavo, store) == {KIELS.hex(): None, BERNS.hex(): "bern"}
    ran = octavo("store", "ls", f"file://{store}")
    assert (ran.code, ran.err) == (0, "")
    assert "; model unknown; " in ran.out
    assert octavo("store", "stat", f"file://{store}", "--namespace", "org/kiel").code == 2
    described(store, KIELS).write_bytes(described(store, BERNS).read_bytes())
    assert models(octavo, store)[KIELS.hex()] is None  # it is another namespace's
