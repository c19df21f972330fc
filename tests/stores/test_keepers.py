"""A store without an engine: on a folder, on a real S3 server, and on a real Redis."""

import base64
import hmac
import json
import os
import time
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

import httpx
import obstore
import pytest
from redis import Redis

from octavo.cli import run
from octavo.stores.objects import ObjectsConfig, open_store
from octavo.testing import tier_driver
from rigs.keeper_suite import IDENTITY, KEYS, KeeperSuite


class ObjectsKeeperSuite(KeeperSuite):
    holds_chunks = len(KEYS)
    versions = (8, -32)

    def store(self, folder):
        return open_store(ObjectsConfig.from_mapping(self.settings(folder)))

    def spoil(self, folder, name, index):
        packed = bytearray(obstore.get(self.store(folder), name).bytes())
        packed[index] ^= 4
        obstore.put(self.store(folder), name, bytes(packed))

    def put(self, folder, name):
        obstore.put(self.store(folder), name, b"somebody else's")


class TestFolder(ObjectsKeeperSuite):
    def settings(self, folder):
        return {"url": f"file://{folder}/store"}

    def test_what_a_killed_writer_has_left_is_deleted_when_nobody_can_be_writing_it(self, tmp_path, capsys):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        with self.keeper(spec) as keeper:
            (whole,) = filter(None, keeper.entries())
        old, young = (tmp_path / "store" / f"{whole.name}#{number}" for number in (1, 2))
        for half in (old, young):
            half.write_bytes(b"half of an object")
        os.utime(old, (0, time.time() - 3700))
        with self.keeper(spec) as keeper:
            inventory, _ = self.count(keeper)
            assert (inventory.total.count, inventory.former.count, inventory.others) == (2, 1, 0)
        assert run(["store", "verify", spec.config.url]) == 0
        assert run(["store", "warm", spec.config.url, "--disk", str(tmp_path / "disk"), "--size", "1MiB"]) == 0
        assert run(["store", "gc", spec.config.url]) == 0
        assert "\n1 object, 17 B deleted, of 2 objects, " in capsys.readouterr().out
        assert (old.exists(), young.exists()) == (False, True)
        with self.keeper(spec) as keeper:
            assert list(keeper.entries()) == [whole]

    def test_ages_are_by_the_clock_of_the_folder(self, tmp_path, monkeypatch):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        with self.keeper(spec) as keeper:
            (whole,) = filter(None, keeper.entries())
        half = tmp_path / "store" / f"{whole.name}#1"
        half.write_bytes(b"half of an object")
        ahead_s = time.time() + 2 * 86400
        monkeypatch.setattr(time, "time", lambda: ahead_s)
        assert run(["store", "gc", spec.config.url, "--older-than", "1d"]) == 0
        with self.keeper(spec) as keeper:
            assert list(keeper.entries()) == [whole]
        assert half.exists()

    def test_nothing_that_others_put_there_is_in_the_way(self, tmp_path, capsys):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        root = tmp_path / "store"
        (family,) = root.iterdir()
        folders = (root, family, *family.iterdir())
        for folder in folders:
            Path(os.fsdecode(bytes(folder) + b"/\xff\xfe")).write_bytes(b"")
            (folder / "loop").symlink_to("loop")
            (folder / "circle").symlink_to(folder)
            os.mkfifo(folder / "fifo")
        (root / "lost+found").mkdir(mode=0)
        with self.keeper(spec) as keeper:
            inventory, _ = self.count(keeper)
        assert (inventory.total.count, inventory.others) == (1, len(folders))
        for command in ("ls", "verify", "gc"):
            assert run(["store", command, spec.config.url]) == 0
        assert run(["store", "gc", spec.config.url, "--size", "1KiB"]) == 0
        with self.keeper(spec) as keeper:
            assert not list(filter(None, keeper.entries()))

    @pytest.mark.parametrize("error", [OSError(5, "an error of the disk"), PermissionError(13, "not permitted")])
    def test_objects_that_cannot_be_seen_are_told(self, tmp_path, capsys, monkeypatch, error):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        (family,) = (tmp_path / "store").iterdir()
        error.filename = str(family / "00000000")
        walk = os.walk

        def fail(folder, onerror):
            onerror(error)
            return walk(folder)

        monkeypatch.setattr(os, "walk", fail)
        assert run(["store", "ls", spec.config.url]) == 2
        assert error.strerror in capsys.readouterr().err

    def test_folders_that_become_empty_go(self, tmp_path):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        with self.keeper(spec) as keeper:
            keeper.delete(list(filter(None, keeper.entries())))
        left = {path.relative_to(tmp_path / "store").parts[1] for path in (tmp_path / "store").glob("*/*")}
        assert left == {"names"}
        self.fill(spec)


@pytest.mark.stores
@pytest.mark.timeout(300)  # a server that starts
class TestS3(ObjectsKeeperSuite):
    @pytest.fixture(autouse=True)
    def use(self, server):
        self.endpoint = server

    def settings(self, folder):
        return {"url": f"s3://octavo/{folder.parent.name}-{folder.name}", "endpoint": self.endpoint}

    def put_raw(self, url, name):
        """Under a name that obstore would change."""
        path, date = quote(f"{url.removeprefix('s3:/')}/{name}"), formatdate(usegmt=True)
        signed = hmac.digest(os.environ["AWS_SECRET_ACCESS_KEY"].encode(), f"PUT\n\n\n{date}\n{path}".encode(), "sha1")
        key = f"AWS {os.environ['AWS_ACCESS_KEY_ID']}:{base64.b64encode(signed).decode()}"
        answer = httpx.put(f"{self.endpoint}{path}", headers={"Date": date, "Authorization": key}, timeout=300)
        assert answer.status_code == 200, answer.text

    @pytest.mark.parametrize("name", ["logs//2026", "logs/\1", "2026//x"])
    def test_names_of_others_are_in_the_way_of_nothing(self, tmp_path, capsys, name):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        self.put_raw(spec.config.url, name)
        at = [spec.config.url, "--endpoint", self.endpoint]
        for command in ("ls", "stat", "verify", "gc"):
            assert run(["store", command, *at]) == 0
        assert run(["store", "gc", *at, "--size", "1KiB"]) == 0
        assert "\n1 object, " in capsys.readouterr().out
        with self.keeper(spec) as keeper:
            assert not list(filter(None, keeper.entries()))

    def test_a_name_that_hides_all_others_is_told_with_the_remedy(self, tmp_path, capsys):
        """Nobody can list the folder that it is in."""
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        self.put_raw(spec.config.url, "/x")
        assert run(["store", "gc", spec.config.url, "--endpoint", self.endpoint]) == 2
        assert capsys.readouterr().err.endswith(
            "contained empty path segment; delete that object, or give engines a prefix of their own in the url\n"
        )


@pytest.mark.stores
class TestRedis(KeeperSuite):
    @pytest.fixture(autouse=True)
    def use(self, redis):
        self.url = redis["URL"]
        with Redis.from_url(self.url) as self.server:
            self.server.flushdb()
            yield

    def settings(self, folder):
        return {"url": self.url}

    def spoil(self, folder, name, index):
        (byte,) = self.server.getrange(name, index, index)
        self.server.setrange(name, index, bytes([byte ^ 4]))

    def put(self, folder, name):
        self.server.set(name, b"somebody else's")

    def test_the_commands(self, tmp_path, capsys):
        spec = self.make_spec(tmp_path, "5a" * 32)
        self.fill(spec)
        assert run(["store", "ls", self.url, "--json"]) == 0
        (line,) = json.loads(capsys.readouterr().out)
        assert (line["count"], line["oldest_s"], line["is_former"]) == (len(KEYS), None, False)
        assert run(["store", "stat", self.url]) == 0
        assert capsys.readouterr().out.startswith(f"{len(KEYS)} values, ")
        assert run(["store", "verify", self.url, "--key-file", str(spec.config.key_file)]) == 0
        assert capsys.readouterr().out.endswith(": 0 damaged, 6 of 6 chunks encrypted with this key\n")
        assert run(["store", "gc", self.url, "--size", "1GiB"]) == 2
        assert "Redis ends values by itself: by age with engines' --shared-keep" in capsys.readouterr().err
        assert run(["store", "gc", self.url]) == 0
        assert capsys.readouterr().out.startswith("0 values, 0 B deleted, of 6 values")
        assert run(["store", "delete", self.url, "--namespace", line["namespace"][:8], "--yes"]) == 0
        assert capsys.readouterr().out.startswith("6 values")
        assert run(["store", "ls", self.url]) == 0
        assert capsys.readouterr().out.endswith("no values of Octavo here\n")

    def test_the_commands_take_a_model_for_its_namespace(self, tmp_path, capsys):
        spec = self.make_spec(tmp_path, "5a" * 32)
        self.fill(spec)
        key, name = ("--key-file", str(spec.config.key_file)), ("--namespace", IDENTITY["model"])
        assert run(["store", "ls", self.url]) == 0
        assert "; model unknown; " in capsys.readouterr().out
        assert run(["store", "ls", self.url, *key]) == 0
        assert f"; model {IDENTITY['model']}; " in capsys.readouterr().out
        assert run(["store", "gc", self.url]) == 0
        assert capsys.readouterr().out.startswith("0 values")
        assert run(["store", "verify", self.url, *key, *name]) == 0
        assert capsys.readouterr().out.startswith(f"{len(KEYS)} values")
        assert run(["store", "delete", self.url, *key, *name, "--yes"]) == 0
        assert capsys.readouterr().out.startswith(f"{len(KEYS)} values")
        assert [mark.count(b":") for mark in self.server.scan_iter()] == [1]

    @pytest.mark.parametrize("content", [b"", b"x" * (5 << 20), b"[" * 100_000], ids=["none", "huge", "deep"])
    def test_what_is_no_description_is_unknown(self, tmp_path, capsys, content):
        self.fill(self.make_spec(tmp_path))
        (name,) = self.server.scan_iter("octavo:*:names:*")
        self.server.set(name, content)
        self.says_that_the_model_is_unknown(capsys)

    def test_a_description_of_another_namespace_or_type_is_unknown(self, tmp_path, capsys):
        spec = self.make_spec(tmp_path)
        self.fill(spec)
        (name,) = self.server.scan_iter("octavo:*:names:*")
        self.server.set(name.replace(tier_driver.NAMESPACE.hex().encode(), b"ff" * 16), self.server.getdel(name))
        self.says_that_the_model_is_unknown(capsys)
        self.server.rpush(name, b"a list")
        self.says_that_the_model_is_unknown(capsys)
        with self.driver(spec) as driver:
            assert driver.store(tier_driver.chunks([100])) == frozenset()
            assert driver.load(tier_driver.chunks([100])) == frozenset()

    def says_that_the_model_is_unknown(self, capsys):
        assert run(["store", "ls", self.url]) == 0
        told = capsys.readouterr()
        assert "; model unknown; " in told.out
        assert told.err == ""

    def test_a_server_that_is_not_there_is_a_sentence(self, tmp_path, capsys):
        assert run(["store", "ls", f"unix://{tmp_path}/nobody"]) != 0
        assert capsys.readouterr().err.startswith(f"octavo: unix://{tmp_path}/nobody: ")


class TestClusterOfOne(TestRedis):
    """A server that has all slots of a cluster answers as one that is none, but to commands with several names."""

    @pytest.fixture(autouse=True)
    def use(self, second_redis):
        self.url = second_redis["URL"]
        with Redis.from_url(self.url) as self.server:
            self.server.flushdb()
            yield
