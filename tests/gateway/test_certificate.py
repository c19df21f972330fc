"""The picker's certificate: what a Gateway is shown, when the files are replaced too."""

import datetime as dt
import ssl

import pytest

pytest.importorskip("envoy", reason="needs octavo[epp]: make test-fleet")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from octavo.errors import InputError
from octavo.gateway.certificate import Certificate
from rigs.running_envoy import RunningPicker

pytestmark = pytest.mark.fleet

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def make(name):
    """A certificate and its key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(BEGIN + dt.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)


@pytest.fixture
def files(tmp_path):
    return tmp_path / "tls.crt", tmp_path / "tls.key"


def write(files, contents):
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)


def shown(address):
    """The certificate that a new connection gets."""
    host, port = address.rsplit(":", 1)
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


def test_a_new_connection_gets_the_new_certificate_once_both_files_are_there(files, running):
    first, second = make("first"), make("second")
    write(files, first)
    picker = running(RunningPicker(["http://127.0.0.1:9"], tls_certificate=files[0], tls_key=files[1]))
    old, new = (ssl.PEM_cert_to_DER_cert(pem.decode()) for pem, _ in (first, second))
    assert shown(picker.address) == old
    files[0].write_bytes(second[0])
    assert shown(picker.address) == old, "its key is not there yet"
    files[1].unlink()
    assert shown(picker.address) == old
    files[1].write_bytes(second[1])
    assert shown(picker.address) == new


def test_files_that_cannot_be_used_are_named(files):
    with pytest.raises(InputError, match=r"tls\.crt or .*tls\.key cannot be read: No such file"):
        Certificate(*files).credentials()
    write(files, (make("one")[0], make("other")[1]))
    with pytest.raises(InputError, match=r"no certificate and its key in PEM \(KEY_VALUES_MISMATCH\)"):
        Certificate(*files).credentials()
    certificate, key = make("encrypted")
    secret = serialization.BestAvailableEncryption(b"secret")
    private = serialization.load_pem_private_key(key, None)
    pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    write(files, (certificate, pem))
    with pytest.raises(InputError, match="no certificate and its key in PEM"):
        Certificate(*files).credentials()
