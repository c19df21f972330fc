"""Keys: who has none, or one that the publisher does not know, reads nothing; all faults of key files are told."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from octavo.errors import InputError
from octavo.events.keys import check_subscriber, make_keys
from octavo.events.messages import BlockRemoved, KVEventBatch
from octavo.events.publisher import ZmqPublisher
from octavo.events.publisher_config import PublisherConfig
from octavo.events.subscriber import Subscriber
from octavo.events.subscriber_config import SourceConfig, SubscriberConfig

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 300.0


@pytest.fixture
def keys(tmp_path):
    folder = tmp_path / "keys"
    make_keys(folder)
    return folder


def publisher(keys):
    return ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, keys=keys))


def subscriber(publisher, keys):
    source = SourceConfig(endpoint=publisher.endpoint, replay_endpoint=publisher.replay_endpoint, keys=keys)
    return Subscriber(SubscriberConfig(sources=(source,)))


def batch(number):
    return KVEventBatch(ts=float(number), events=[BlockRemoved(block_hashes=[number], medium="GPU", group_idx=0)])


def test_who_has_a_key_reads_live_and_replayed_events(keys):
    with publisher(keys) as sender:
        sender.publish(batch(0))
        with subscriber(sender, keys) as reader:
            assert reader.poll(PATIENCE_S).batch.ts == 0.0
            sender.publish(batch(1))
            assert reader.poll(PATIENCE_S).batch.ts == 1.0


@pytest.mark.parametrize(
    ("has_other_keys", "says"), [(False, "asks for keys"), (True, "do not accept each other's keys")]
)
def test_who_has_no_known_key_is_refused_and_told(keys, tmp_path, caplog, has_other_keys, says):
    others = None
    if has_other_keys:
        others = tmp_path / "others"
        make_keys(others)
        shutil.copy(keys / "publisher.key", others)
    with publisher(keys) as sender, subscriber(sender, others) as reader, subscriber(sender, keys) as known:
        sender.publish(batch(0))
        assert known.poll(PATIENCE_S).batch.ts == 0.0
        while not caplog.records:
            assert reader.poll(0.01) is None
    assert says in caplog.text


def test_keys_that_cannot_all_be_written_leave_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("shutil.move", full)
        with pytest.raises(InputError, match=r"cannot write keys to .*: No space left on device"):
            make_keys(tmp_path / "keys")
    make_keys(tmp_path / "keys")
    assert (tmp_path / "keys" / "subscribers" / "subscriber.key").exists()


def test_keys_that_may_not_be_read_are_not_called_faulty(keys, monkeypatch):
    opened = Path.open

    def refuse(path, *arguments):
        if path.name == "publisher.key":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"publisher\.key cannot be read: Permission denied$"):
        check_subscriber(keys)


def test_faulty_keys_are_refused(keys, tmp_path):
    with pytest.raises(InputError, match="is not empty"):
        make_keys(keys)
    (keys / "publisher.key").write_text("curve")
    with publisher(keys) as sender, pytest.raises(InputError, match="is not a key file"):
        subscriber(sender, keys).start()
    (keys / "publisher.key").write_text('curve\n    public-key = "short"\n')
    with publisher(keys) as sender, pytest.raises(InputError, match=r"publisher\.key is not a key file"):
        subscriber(sender, keys).start()
    (keys / "subscribers" / "other.key").write_text("curve")
    with pytest.raises(InputError, match=r"other\.key is not a key file"):
        publisher(keys).start()
    (keys / "subscribers" / "other.key").unlink()
    (keys / "publisher.key_secret").chmod(0o644)
    with pytest.raises(InputError, match="can be read by others"):
        publisher(keys).start()
    shutil.rmtree(keys / "subscribers")
    with pytest.raises(InputError, match="has no key of a subscriber"):
        publisher(keys).start()
