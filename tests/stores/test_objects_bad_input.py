"""What is wrong with an object store is said at the start, in one sentence of ours with the remedy."""

import errno
import os
import ssl
import threading
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from obstore.exceptions import GenericError

from octavo.errors import InputError, OctavoError, TierError
from octavo.stores.objects import ObjectsConfig, open_store
from octavo.stores.objects.troubles import explain
from octavo.tiers import spec_from_config
from rigs.certificates import make_certificate
from rigs.fault_proxy import Answer, FaultProxy, refuse, vanish
from rigs.refused_tier import refused_tier

FULL = "it is full, or its quota is used up: `octavo store gc --size` makes room"
RIGHTS = "give credentials that may list, read, write and delete there (environment, profile or instance role)"


def check(url="s3://bucket/prefix", **options):
    spec_from_config({"type": "objects", "url": url, **options}).check()


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")


@pytest.fixture
def proxy():
    with FaultProxy("http://127.0.0.1:1") as proxy:
        yield proxy


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "az://me",
        "s3:/bucket",
        "s3://key:secret@bucket",
        "ftp://bucket",
        "file://folder",
        "bucket",
    ],
)
def test_a_url_that_is_none(url):
    with pytest.raises(
        InputError, match=r"url must be s3://bucket/prefix, .* or file:///folder \(.* at least 3 characters\), not "
    ):
        check(url)


def test_an_endpoint_without_a_scheme():
    with pytest.raises(InputError, match="endpoint must be https://host:port, not 'localhost:9000'"):
        check(endpoint="localhost:9000")


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        ("404 Not Found", "NoSuchBucket", "there is no such bucket; create it, or give the right name in the url"),
        ("403 Forbidden", "AccessDenied", f"it does not permit that; {RIGHTS}"),
        ("401 Unauthorized", "Unauthorized", f"it does not permit that; {RIGHTS}"),
        ("403 Forbidden", "InvalidAccessKeyId", f"it does not know the access key; {RIGHTS}"),
        ("403 Forbidden", "SignatureDoesNotMatch", f"the secret key does not belong to the access key; {RIGHTS}"),
        ("400 Bad Request", "ExpiredToken", "the credentials have expired; renew them"),
        ("403 Forbidden", "RequestTimeTooSkewed", "this machine's clock is too far from the store's; set its clock"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "the bucket is in another region; give its region"),
        ("301 Moved Permanently", "PermanentRedirect", "the bucket is in another region; give its region"),
        ("200 OK", "Odd", "its answer is none of an object store; give the store's own address as endpoint"),
    ],
)
def test_what_does_not_go_away_by_itself_is_an_error(proxy, status, code, says):
    proxy.break_with(refuse(status, code=code))
    with pytest.raises(TierError) as error:
        check(endpoint=proxy.endpoint)
    assert str(error.value) == f"object store tier: s3://bucket/prefix: {says}"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (refuse("500 Internal Server Error"), "it answers 500 InternalError"),
        (refuse("503 Slow Down", code="SlowDown"), "it throttles (503 SlowDown)"),
        (vanish, "it cannot be reached"),
        (refuse("403 Forbidden", code="QuotaExceeded"), f"{FULL} (403 QuotaExceeded)"),
        (refuse("507 Insufficient Storage", code="XMinioStorageFull"), f"{FULL} (507 XMinioStorageFull)"),
    ],
)
def test_a_store_that_does_not_work_now_is_told_and_no_error(proxy, fault, says, caplog):
    proxy.break_with(fault)
    check(endpoint=proxy.endpoint)
    (record,) = caplog.records
    assert record.getMessage().endswith(f"it is tried again while the engine runs: {says}")


async def show_a_page(exchange):
    """As a store's console does, or a proxy that wants a password, whatever is asked."""
    page = b"" if exchange.request.method == "HEAD" else b"<html>Welcome</html>"
    exchange.send(Answer([b"HTTP/1.1 200 OK", b"Content-Type: text/html", b"ETag: page"], page))


async def list_a_date_of_no_calendar(exchange):
    """As no store does, but one that is broken may."""
    date = b"<Key>prefix/a</Key><LastModified>0000-01-01T00:00:00.000Z</LastModified><ETag>e</ETag><Size>1</Size>"
    page = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>%s</Contents></ListBucketResult>" % date
    exchange.send(Answer([b"HTTP/1.1 200 OK", b"Content-Type: application/xml"], page))


async def list_for_ever(exchange):
    """One full page again and again."""
    told = b"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag><Size>1</Size></Contents>"
    seen = b"".join(b"<Contents><Key>prefix/%04d</Key>%s" % (number, told) for number in range(1000))
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    page = b"<ListBucketResult>%s%s</ListBucketResult>" % (more, seen)
    exchange.send(Answer([b"HTTP/1.1 200 OK", b"Content-Type: application/xml"], page))


async def give_whole_objects(exchange):
    """Whatever part of them is asked for."""
    body = b"octavo" if exchange.request.method == "GET" else b""
    told = [b"ETag: e", b"Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"]
    exchange.send(Answer([b"HTTP/1.1 200 OK", *told], body))


def test_a_store_that_gives_whole_objects_alone_is_an_error(proxy):
    proxy.break_with(give_whole_objects)
    with pytest.raises(TierError, match=r"it does not give the part of an object that was asked for; take a store"):
        check(endpoint=proxy.endpoint)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            list_for_ever,
            "its listing has no end, and tells the same objects again: take a store that can list whole folders",
        ),
        (list_a_date_of_no_calendar, "its answer is none to what was asked (year 0 is out of range)"),
        (
            show_a_page,
            "it says yes whatever is asked, and is no object store: give the store's own address as endpoint",
        ),
        (refuse("503 Slow Down", code="SlowDown"), "it throttles (503 SlowDown)"),
    ],
)
def test_what_is_no_store_is_not_called_empty(proxy, fault, says):
    proxy.break_with(fault)
    settings = {"type": "objects", "url": "s3://bucket/prefix", "endpoint": proxy.endpoint}
    keeper = spec_from_config(settings).open_keeper()
    with pytest.raises(TierError) as error, keeper.asking():
        list(keeper.entries())
    assert str(error.value) == f"s3://bucket/prefix: {says}"


@pytest.mark.parametrize("status", ["503 Slow Down", "429 Too Many Requests", "500 Internal Server Error"])
def test_a_call_that_fails_is_made_three_times_whatever_the_store_asks_for(proxy, status):
    proxy.break_with(refuse(status, "Retry-After: 3600", code="SlowDown"))
    check(endpoint=proxy.endpoint)
    assert [request.method for request in proxy.requests] == ["PUT"] * 3


def test_no_credentials_or_half_of_them(proxy, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(
        OctavoError, match="no credentials were found; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    ):
        check(endpoint=proxy.endpoint)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", proxy.endpoint)
    proxy.break_with(refuse("404 Not Found"))  # an instance without a role
    with pytest.raises(
        OctavoError, match="no credentials were found; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    ):
        check(endpoint=proxy.endpoint)


def test_certificates(tmp_path):
    with https_server(tmp_path) as (port, certificate):
        with pytest.raises(
            TierError, match="its certificate does not verify; give the certificates of its authority as ca_file"
        ):
            check(endpoint=f"https://127.0.0.1:{port}")
        with pytest.raises(TierError, match="its certificate is for another name; give the endpoint under a name"):
            check(endpoint=f"https://localhost:{port}", ca_file=str(certificate))
        check(endpoint=f"https://127.0.0.1:{port}", ca_file=str(certificate))
    with pytest.raises(InputError, match=r"ca_file .* cannot be read: No such file"):
        check(endpoint="https://127.0.0.1", ca_file=str(tmp_path / "none"))
    (tmp_path / "empty").write_text("nothing")
    with pytest.raises(InputError, match="ca_file has no certificates in PEM; give"):
        check(endpoint="https://127.0.0.1", ca_file=str(tmp_path / "empty"))


def test_certificates_that_are_replaced_while_an_engine_runs(tmp_path):
    folders = tmp_path / "former", tmp_path / "present"
    for folder in folders:
        folder.mkdir()
    authority = tmp_path / "authority"
    authority.write_bytes(make_certificate(folders[0]).read_bytes())
    with https_server(folders[1]) as (port, certificate):
        config = {"type": "objects", "url": "s3://bucket/prefix", "endpoint": f"https://127.0.0.1:{port}"}
        patient = dict.fromkeys(("find_seconds", "load_seconds", "store_seconds"), 600)
        with refused_tier({**config, **patient, "ca_file": str(authority)}) as driver:
            assert driver.tier.status().reason.startswith("its certificate does not verify")
            authority.write_text("it is being written")
            driver.poll()
            authority.write_bytes(certificate.read_bytes())
            driver.poll_until(lambda: "certificate" not in driver.tier.status().reason, "an answer of the server")
            assert driver.tier.status().reason.startswith("it cannot do what is asked of it")  # it knows no GET


@pytest.mark.parametrize(
    ("validity", "objects_says", "redis_says"),
    [
        (
            (timedelta(days=-2), timedelta(days=-1)),
            "its certificate has expired; renew it, or set this machine's clock",
            r"certificate has expired .*; renew its certificate, or set this machine's clock",
        ),
        (
            (timedelta(days=1), timedelta(days=2)),
            "its certificate is not valid yet; set this machine's clock, or the server's",
            r"certificate is not yet valid .*; renew its certificate, or set this machine's clock",
        ),
    ],
    ids=["expired", "not yet valid"],
)
def test_certificates_out_of_time(tmp_path, validity, objects_says, redis_says):
    """Its authority is known, so it is no remedy to give that one."""
    with https_server(tmp_path, *validity) as (port, certificate):
        with pytest.raises(TierError, match=objects_says):
            check(endpoint=f"https://127.0.0.1:{port}", ca_file=str(certificate))
        with pytest.raises(TierError, match=redis_says):
            check_redis(f"rediss://127.0.0.1:{port}/0", ca_file=str(certificate))


def test_what_redis_says_of_a_certificate_for_another_name(tmp_path):
    with (
        https_server(tmp_path) as (port, certificate),
        pytest.raises(TierError, match="; give the server under a name that stands in its certificate"),
    ):
        check_redis(f"rediss://localhost:{port}/0", ca_file=str(certificate))


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///tmp/socket"])
def test_an_authority_for_redis_without_tls(tmp_path, url):
    with pytest.raises(InputError, match="ca_file is for TLS: give rediss://host:port/db, or leave ca_file out"):
        check_redis(url, ca_file=str(make_certificate(tmp_path)))


def check_redis(url, **options):
    spec_from_config({"type": "redis", "url": url, **options}).check()


class Answers(BaseHTTPRequestHandler):
    """Takes everything, and fails."""

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(500)

    def log_message(self, *_):
        pass


@contextmanager
def https_server(folder, *validity):
    """Its port, and its certificate, which is its own authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate := make_certificate(folder, *validity))
    server = HTTPServer(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, certificate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("limit", ["find_seconds", "load_seconds", "store_seconds"])
@pytest.mark.parametrize(("seconds", "timeout"), [(1, "1m"), (300, "5m 10s")])
def test_only_the_tier_limits_how_long_an_answer_may_take(limit, seconds, timeout):
    """obstore has a limit of its own, for each attempt."""
    config = {"url": "s3://bucket/prefix", "endpoint": "http://127.0.0.1:1", limit: seconds}
    assert open_store(ObjectsConfig.from_mapping(config)).client_options["timeout"] == timeout


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_folder_without_hard_links_is_told_with_the_remedy(number):
    said = f"Generic LocalFileSystem error: Unable to rename file: {os.strerror(number)} (os error {number})"
    told = explain(GenericError(said))
    assert str(told) == f"its file system has no hard links; {told.remedy}"
