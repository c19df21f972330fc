"""What a url says of TLS: files and choices that no connection can be made with are refused before one is tried."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def tls_files(url: str, ca_file: Path | None) -> list[Path]:
    """All files that a connection is made with: those that the url names, too."""
    named = [Path(value) for name, value in parse_qsl(urlsplit(url).query) if name in _FILES]
    return named if ca_file is None else [*named, ca_file]


def try_tls(options: Mapping[str, Any]) -> None:
    """ValueError, with the remedy, for options of the package redis that a connection with TLS cannot be made with."""
    for name in _FILES:
        if path := options.get(name):
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise ValueError(f"{name} {path} cannot be read: {error.strerror}") from error
    context = ssl.create_default_context()
    _take_own_certificate(context, options)
    if ciphers := options.get("ssl_ciphers"):
        with _or_say(f"ssl_ciphers {ciphers}: this machine's OpenSSL knows none of them"):
            context.set_ciphers(ciphers)
    file, text = options.get("ssl_ca_certs"), options.get("ssl_ca_data")
    if file or text:
        with _or_say(f"{file or 'ssl_ca_data'} has no certificates in PEM: give those of the server's authority"):
            context.load_verify_locations(cafile=file, cadata=text)
    if (version := options.get("ssl_min_version")) is not None:
        with _or_say(f"ssl_min_version {version} is no version of TLS: 771 is 1.2, and 772 is 1.3"):
            context.minimum_version = version


def _take_own_certificate(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    certificate, key = options.get("ssl_certfile"), options.get("ssl_keyfile")
    if certificate:
        problem = f"ssl_certfile {certificate} and ssl_keyfile {key or certificate} are no certificate and its key"
        with _or_say(f"{problem} in PEM; a key that is encrypted needs ssl_password"):
            # without a password OpenSSL would ask for one at the terminal, and wait
            context.load_cert_chain(certificate, key, password=options.get("ssl_password") or "")
    elif key:
        raise ValueError(f"ssl_keyfile {key} is the key of a certificate: give ssl_certfile too")


@contextmanager
def _or_say(sentence: str) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(sentence) from error
