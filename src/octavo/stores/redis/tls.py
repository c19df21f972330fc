"""What a url says of TLS: files and choices that no connection can be made with are refused before one is tried."""

import ssl
from collections.abc import Mapping
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
    certificate, key = options.get("ssl_certfile"), options.get("ssl_keyfile")
    context = ssl.create_default_context()
    if key and not certificate:
        raise ValueError(f"ssl_keyfile {key} is the key of a certificate: give ssl_certfile too")
    if certificate:
        try:  # without a password OpenSSL would ask for one at the terminal, and wait
            context.load_cert_chain(certificate, key, password=options.get("ssl_password") or "")
        except ssl.SSLError as error:
            problem = f"ssl_certfile {certificate} and ssl_keyfile {key or certificate} are no certificate and its key"
            raise ValueError(f"{problem} in PEM; a key that is encrypted needs ssl_password") from error
    if ciphers := options.get("ssl_ciphers"):
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise ValueError(f"ssl_ciphers {ciphers}: this machine's OpenSSL knows none of them") from error
