"""A disk that holds another identity's chunks says so when it is opened."""

from octavo.tiers import TierContext
from octavo.tiers.disk import DiskSpec


def open_and_close(folder, namespace, **identity):
    spec = DiskSpec.from_config({"path": str(folder), "size": "16MiB"})
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
