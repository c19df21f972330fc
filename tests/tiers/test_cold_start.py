"""A disk that holds another identity's chunks says so when it is opened."""

from octavo.tiers import TierContext
from octavo.tiers.disk.cipher import KEY_VARIABLE, RecordCipher
from octavo.tiers.registry import spec_from_config

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


def open_and_close(folder, namespace, *, codec="none", **identity):
    disk = {"type": "disk", "path": str(folder), "size": "16MiB"}
    spec = spec_from_config({"type": codec, "tier": disk} if codec != "none" else disk)
    spec.build(TierContext(namespace=namespace, max_chunk_bytes=4096, identity=identity)).close()


def test_why_a_restart_is_cold_is_one_line_of_the_log(tmp_path, caplog):
    folder = tmp_path / "disk"
    open_and_close(folder, b"1" * 16, dtype="bfloat16", vllm="0.32.0")
    open_and_close(folder, b"1" * 16, dtype="bfloat16", vllm="0.32.0")
    assert caplog.messages == []
    open_and_close(folder, b"2" * 16, dtype="bfloat16", vllm="0.33.0")
    (said,) = caplog.messages
    assert said.startswith(f"{folder}: a cold start")
    assert said.endswith("vllm was '0.32.0' and is '0.33.0'")


def last_reason(caplog):
    """The last line about a cold start, without its beginning; empty if there is none."""
    lines = [line for line in caplog.messages if "a cold start" in line]
    caplog.clear()
    return lines[-1].split("another identity: ")[1] if lines else ""


def test_a_codec_that_comes_or_goes_is_told(tmp_path, caplog):
    def start(codec):
        open_and_close(tmp_path / "disk", b"1" * 16, codec=codec, dtype="bfloat16")
        return last_reason(caplog)

    assert start("none") == ""
    assert start("zstd") == "codec was 'none' and is 'zstd planes 1'"
    assert start("zstd") == ""
    assert start("none") == ""  # its own chunks are there too


def test_leaving_a_codec_out_is_told(tmp_path, caplog):
    open_and_close(tmp_path / "disk", b"1" * 16, codec="zstd", dtype="bfloat16")
    open_and_close(tmp_path / "disk", b"1" * 16, dtype="bfloat16")
    assert last_reason(caplog) == "codec was 'zstd planes 1' and is 'none'"


def test_encryption_that_begins_ends_or_has_another_key_is_told(tmp_path, caplog, monkeypatch):
    def start(folder, key):
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        if key:
            monkeypatch.setenv(KEY_VARIABLE, key.hex())
        open_and_close(tmp_path / folder, b"1" * 16, dtype="bfloat16")
        return last_reason(caplog)

    name, other = (f"key {RecordCipher(key).key_id.hex()}" for key in (KEY, OTHER_KEY))
    assert start("a", None) == ""
    assert start("a", KEY) == f"encryption was 'none' and is '{name}'"
    assert start("a", KEY) == ""
    assert start("a", OTHER_KEY) == f"encryption was '{name}' and is '{other}'"
    assert start("b", KEY) == ""
    assert start("b", None) == f"encryption was '{name}' and is 'none'"
