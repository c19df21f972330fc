"""`Certificate`: the picker's TLS certificate and its key, read again when their files have changed.

The files are replaced weeks before the old certificate ends. Open connections go on with the old one.
"""

import logging
import ssl
from pathlib import Path

import grpc

from octavo.errors import InputError

_logger = logging.getLogger(__name__)


class Certificate:
    """Two files in PEM. If they cannot be used at some later time, what was read last stays in use."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._seen: list[tuple[int, int, int]] | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Looks at the files for each new connection. InputError if they cannot be used now."""
        return grpc.dynamic_ssl_server_credentials(self._read(), self._read_again)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            self._seen = self._look()
            chain = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            chain.load_cert_chain(self._certificate, self._key, password=bytes)  # asks nobody
            pair = (self._key.read_bytes(), self._certificate.read_bytes())
        except ssl.SSLError as error:
            why = error.reason or error
            raise InputError(
                f"{self._certificate} and {self._key} are no certificate and its key in PEM ({why})"
            ) from error
        except OSError as error:
            raise InputError(f"{self._certificate} or {self._key} cannot be read: {error.strerror}") from error
        return grpc.ssl_server_certificate_configuration([pair])

    def _read_again(self) -> grpc.ServerCertificateConfiguration | None:
        """None if nothing has changed, or nothing better is there."""
        try:
            return None if self._look() == self._seen else self._read()
        except (InputError, OSError) as error:
            _logger.warning("the certificate that was read before stays in use: %s", error)
            return None

    def _look(self) -> list[tuple[int, int, int]]:
        stats = [file.stat() for file in (self._certificate, self._key)]
        return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]
