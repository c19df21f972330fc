"""How a real Redis or Valkey is reached (address, rights, TLS), and what is said where one of these is wrong."""

from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.exceptions import AskError, ClusterDownError, MasterDownError, MovedError

from octavo.chunks import ALL_BLOCKS
from octavo.errors import InputError, TierError
from octavo.offload import SharedConfig
from octavo.stores import delete_items
from octavo.stores.redis.troubles import explain
from octavo.testing import tier_driver
from octavo.tiers import TierState, spec_from_config
from rigs.certificates import make_certificate
from rigs.network_link import NetworkLink
from rigs.objects_suite import PATIENT
from rigs.redis_suite import RedisSuite, descriptions, emptied, values
from rigs.refused_tier import refused_tier

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]


@pytest.fixture
def server(redis):
    """The server itself, empty."""
    with emptied(redis) as server:
        yield server


@contextmanager
def spread_over(redis, second_redis):
    """A link whose connections lead to one server and the other by turns, and the URL of the link."""
    one, other = (f"http://127.0.0.1:{urlsplit(told['TCP_URL']).port}" for told in (redis, second_redis))
    link = NetworkLink(one, other)
    try:
        yield link, redis["TCP_URL"].replace(f":{urlsplit(one).port}", f":{link.port}")
    finally:
        link.close()


def test_an_address_that_leads_to_several_servers_is_refused(redis, second_redis):
    with (
        spread_over(redis, second_redis) as (_, url),
        pytest.raises(TierError, match=r"leads to several servers .*; give the address of one"),
    ):
        check(url)


def test_an_address_that_comes_to_lead_to_several_turns_the_tier_off(redis, server, second_redis, tmp_path):
    """Each has an epoch of its own: to follow the one and the other by turns would leave all behind, each time."""
    wanted, now = tier_driver.chunks(range(6)), count(step=100)
    with spread_over(redis, second_redis) as (link, url):
        suite = RedisSuite()
        suite.url, both = url, link.targets
        link.heal(both[0])
        with suite.driver(tmp_path) as opened:
            driver = tier_driver.TierDriver(opened.tier, lambda tier: tier.flush(0.001), lambda: next(now))
            assert driver.store(wanted) == frozenset()
            before = {name: server.get(name) for name in server.scan_iter("octavo:*")}
            link.break_off()
            link.heal(*both)

            def is_told():
                for chunk in wanted[:2]:
                    driver.submit_store([chunk])
                return "leads to several servers" in driver.tier.status().reason

            driver.poll_until(is_told, "the tier to be off")
            link.break_off()
            link.heal(both[0])

            def is_back():
                driver.tier.ask(tier_driver.ALL_KEYS)
                return driver.tier.status().state is TierState.OK

            driver.poll_until(is_back, "the tier to be back")
            assert {name: server.get(name) for name in server.scan_iter("octavo:*")} == before
            assert driver.load(wanted) == frozenset()


def test_a_right_that_only_loads_need_is_missed_at_the_start(redis, server):
    server.acl_setuser("writer", enabled=True, passwords=["+w"], keys=["octavo*"], commands=["+set", "+get", "+del"])
    try:
        with pytest.raises(TierError, match=r"'getrange' command; give a user and a password that may read and write"):
            check(redis["TCP_URL"].replace("octavo:octavo-secret", "writer:w"))
    finally:
        server.acl_deluser("writer")


def check(url, **options):
    spec_from_config({"type": "redis", "url": url, **options}).check()


@pytest.fixture
def tls(redis):
    """The settings for TLS."""
    if "TLS_URL" not in redis:
        pytest.skip("this server is built without TLS")
    return {"url": redis["TLS_URL"], "ca_file": redis["CA_FILE"]}


def test_a_user_with_the_rights_of_the_docs_over_tcp(redis, server, tmp_path):
    needs_no_more_rights({"url": redis["TCP_URL"]}, server, tmp_path)


def test_a_user_with_the_rights_of_the_docs_over_tls(tls, server, tmp_path):
    needs_no_more_rights(tls, server, tmp_path)


def needs_no_more_rights(options, server, tmp_path):
    check(**options)
    suite, wanted = RedisSuite(), tier_driver.chunks(range(6))
    suite.config = lambda folder: options
    with suite.driver(tmp_path) as driver:
        assert driver.store(wanted) == frozenset()
    with suite.driver(tmp_path) as driver:
        assert driver.found(range(6)) == [ALL_BLOCKS] * 6
        assert driver.load(wanted) == frozenset()
        driver.tier.reset()
        driver.poll_until(driver.tier.is_reset_durable, "the reset")
        assert driver.found(range(6)) == [0] * 6
    keeper = SharedConfig.from_mapping(options).spec.open_keeper()
    with keeper.asking():
        (namespace,) = {item.namespace for item in keeper.entries()}
        (family,) = {item.family for item in keeper.entries()}
        assert keeper.describe(family, namespace) == {"model": "org/kiel"}
        delete_items(keeper, filter(None, keeper.entries()), is_dry=False, tell=lambda share: None)
        keeper.drop_descriptions([])
    assert not values(server) + descriptions(server)


def test_what_is_wrong_with_certificates_is_said_with_the_remedy(tls, tmp_path):
    with pytest.raises(TierError, match=r"give the certificates of its authority as ca_file"):
        check(tls["url"])
    with pytest.raises(InputError, match=r"ca_file .*none cannot be read"):
        check(tls["url"], ca_file=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("ssl_ca_certs={none}", "none has no certificates in PEM"),
        ("ssl_ca_data=none", "ssl_ca_data has no certificates in PEM"),
        ("ssl_min_version=1", "ssl_min_version 1 is no version of TLS"),
    ],
)
def test_what_no_connection_can_be_made_with_is_refused_before_one_is_tried(tmp_path, option, told):
    (none := tmp_path / "none").write_text("none")
    with pytest.raises(InputError, match=told):
        check(f"rediss://127.0.0.1:1/0?{option.format(none=none)}")


def test_a_file_of_an_authority_without_certificates(tmp_path):
    (none := tmp_path / "none").write_text("none")
    with pytest.raises(InputError, match="none has no certificates in PEM"):
        check("rediss://127.0.0.1:1/0", ca_file=str(none))


@pytest.fixture
def tls_with_client(tls, server, tmp_path):
    """The settings for TLS with a server that asks clients for certificates, and for the client's own."""
    folder = Path(tls["ca_file"]).parent
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.write_bytes((folder / "certificate.pem").read_bytes())
    key.write_bytes((folder / "key.pem").read_bytes())
    before = server.config_get("tls-*")
    server.config_set("tls-ca-cert-file", tls["ca_file"])
    server.config_set("tls-auth-clients", "yes")
    yield {**tls, "url": f"{tls['url']}?ssl_certfile={certificate}&ssl_keyfile={key}"}, certificate, key
    for name in ("tls-auth-clients", "tls-ca-cert-file"):
        server.config_set(name, before[name])


def test_a_server_that_asks_for_a_certificate(tls, tls_with_client, caplog):
    with_client, _, _ = tls_with_client
    check(**with_client)
    assert not caplog.text
    try:
        check(**tls)
    except TierError as refused:  # the client has read the server's reason before the connection was gone
        told = str(refused)
    else:
        told = caplog.text
    assert "rediss://host:port/0?ssl_certfile=FILE&ssl_keyfile=FILE" in told


def test_tls_that_only_one_side_speaks(tls, redis, caplog):
    check(tls["url"].replace("rediss://", "redis://"))
    check(redis["TCP_URL"].replace("redis://", "rediss://"))
    plain, secure = caplog.messages
    assert plain.endswith("(if it wants TLS, give rediss://)")
    assert secure.endswith("(if it has no TLS, give redis://)")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda certificate, key: certificate.unlink(), r"ssl_certfile .*client.pem cannot be read: No such file"),
        (lambda certificate, key: key.write_text("none"), r"ssl_certfile .* and ssl_keyfile .* are no certificate and"),
    ],
    ids=["missing", "no key"],
)
def test_a_client_certificate_that_is_none_is_refused_at_the_start(tls_with_client, spoil, told):
    with_client, certificate, key = tls_with_client
    spoil(certificate, key)
    with pytest.raises(InputError, match=told):
        check(**with_client)


def test_a_client_certificate_that_is_replaced_while_an_engine_runs(tls_with_client, tmp_path):
    with_client, certificate, key = tls_with_client
    right = certificate.read_bytes(), key.read_bytes()
    foreign = make_certificate(tmp_path)
    certificate.write_bytes(foreign.read_bytes())
    key.write_bytes(foreign.read_bytes())
    with refused_tier({"type": "redis", **PATIENT, **with_client}) as driver:
        for file, content in zip((certificate, key), right, strict=True):
            file.write_bytes(content)
        driver.poll_until(lambda: driver.tier.status().state is TierState.OK, "the store to be back")


def test_certificates_that_are_replaced_while_an_engine_runs(tls, tmp_path):
    authority = tmp_path / "authority"
    authority.write_bytes(make_certificate(tmp_path).read_bytes())
    with refused_tier({"type": "redis", **PATIENT, **tls, "ca_file": str(authority)}) as driver:
        authority.write_bytes(Path(tls["ca_file"]).read_bytes())
        driver.poll_until(lambda: driver.tier.status().state is TierState.OK, "the store to be back")


def test_what_is_wrong_with_a_password_is_said_with_the_remedy(redis, monkeypatch):
    with pytest.raises(TierError, match=r"redis://127.0.0.1:\d+/0: .*give a user and a password that may"):
        check(redis["TCP_URL"].replace("secret", "wrong"))
    monkeypatch.setenv("OCTAVO_REDIS_PASSWORD", "octavo-secret")
    check(redis["TCP_URL"].replace(":octavo-secret", ""))


def test_what_is_wrong_is_said_with_the_remedy(redis, server, monkeypatch):
    url = redis["URL"]
    check(url)
    with pytest.raises(TierError, match=r"give a database that the server has"):
        check(f"{url}?db=99")
    monkeypatch.setenv("OCTAVO_REDIS_PASSWORD", "secret")
    with pytest.raises(TierError, match="leave the password out"):
        check(url)
    monkeypatch.delenv("OCTAVO_REDIS_PASSWORD")
    server.config_set("requirepass", "secret")
    try:
        with pytest.raises(TierError, match=r"redis://user:password@host, or OCTAVO_REDIS_PASSWORD"):
            check(url)
        monkeypatch.setenv("OCTAVO_REDIS_PASSWORD", "secret")
        check(url)
    finally:
        server.config_set("requirepass", "")


def test_a_server_that_is_not_there_is_no_error(tmp_path, caplog):
    check(f"unix://{tmp_path}/nobody")
    assert "is tried again while the engine runs" in caplog.text


@pytest.mark.parametrize(
    "error",
    [MovedError("3999 10.0.0.2:6379"), AskError("3999 10.0.0.2:6379"), ClusterDownError("Hash slot not served")],
    ids=["moved", "asked", "down"],
)
def test_a_part_of_a_cluster_is_said_to_be_one(error):
    """The package redis leaves the word MOVED out of the message."""
    assert str(explain(error)) == "it is part of a cluster; give a server that has all values itself"


def test_a_replica_that_waits_for_its_primary_is_no_cluster(server):
    server.config_set("replica-serve-stale-data", "no")
    server.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(MasterDownError) as caught:
            server.get("octavo:none")
    finally:
        server.replicaof("no", "one")
        server.config_set("replica-serve-stale-data", "yes")
    assert "is down" in str(explain(caught.value))
    assert not explain(caught.value).remedy
