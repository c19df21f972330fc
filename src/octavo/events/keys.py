"""The keys of ZMQ's CURVE: a publisher encrypts its events, and only the subscribers that it knows can read them.

`make_keys` writes one folder. Copy the files to the two sides and keep the secret ones from others:

    publisher    publisher.key_secret, subscribers/NAME.key for each subscriber that may read
    subscriber   publisher.key, subscriber.key_secret
"""

import shutil
import stat
from contextlib import suppress
from pathlib import Path

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from octavo.errors import InputError
from octavo.events.sockets import Context, Socket

_PUBLISHER = "publisher"
_SUBSCRIBER = "subscriber"
_KNOWN = "subscribers"
_PUBLIC, _SECRET = ".key", ".key_secret"
_KEY_CHARS = 40
_OTHERS_MAY_READ = stat.S_IRGRP | stat.S_IROTH


def make_keys(folder: Path) -> None:
    """Writes new keys for a publisher and one subscriber, or nothing. InputError if the folder has keys or cannot be
    written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty: name a new folder for the keys")
        folder.chmod(0o700)
        try:
            _write_keys(folder)
        except BaseException:
            _clear(folder)
            raise
    except OSError as error:
        raise InputError(f"cannot write keys to {folder}: {error.strerror}") from error


def _write_keys(folder: Path) -> None:
    for name in (_PUBLISHER, _SUBSCRIBER):
        zmq.auth.create_certificates(folder, name)
        (folder / f"{name}{_SECRET}").chmod(0o600)
    (folder / _KNOWN).mkdir()
    shutil.move(folder / f"{_SUBSCRIBER}{_PUBLIC}", folder / _KNOWN)


def _clear(folder: Path) -> None:
    """Removes what `_write_keys` made, so that it can be called again."""
    shutil.rmtree(folder / _KNOWN, ignore_errors=True)
    for name in (_PUBLISHER, _SUBSCRIBER):
        for end in (_PUBLIC, _SECRET):
            with suppress(OSError):
                (folder / f"{name}{end}").unlink()


def secure_publisher(socket: Socket, folder: Path) -> None:
    """Makes a socket the side that asks its peers for their keys. `start_authenticator` must run in its context."""
    socket.curve_publickey, socket.curve_secretkey = _read_secret(folder / f"{_PUBLISHER}{_SECRET}")
    socket.curve_server = True


def secure_subscriber(socket: Socket, folder: Path) -> None:
    """Makes a socket prove its own key, and talk to no other publisher than the folder's."""
    socket.curve_publickey, socket.curve_secretkey = _read_secret(folder / f"{_SUBSCRIBER}{_SECRET}")
    socket.curve_serverkey = _read(folder / f"{_PUBLISHER}{_PUBLIC}")[0]


def check_subscriber(folder: Path) -> None:
    """Raises InputError where `secure_subscriber` would: a server that reads events later refuses to start."""
    _read_secret(folder / f"{_SUBSCRIBER}{_SECRET}")
    _read(folder / f"{_PUBLISHER}{_PUBLIC}")


def start_authenticator(context: Context, folder: Path) -> ThreadAuthenticator:
    """Starts the thread that lets in the subscribers of the folder. The caller stops it before it ends the context."""
    known = folder / _KNOWN
    files = list(known.glob(f"*{_PUBLIC}"))
    if not files:
        raise InputError(f"{known} has no key of a subscriber: put the public keys (NAME{_PUBLIC}) there")
    for file in files:
        _read(file)  # the authenticator only logs one that is no key, and then lets in nobody
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve(domain="*", location=known)
    return authenticator


def _read_secret(file: Path) -> tuple[bytes, bytes]:
    public, secret = _read(file)
    if secret is None:
        raise InputError(f"{file} has no secret key: make keys with `octavo events keys FOLDER`")
    if file.stat().st_mode & _OTHERS_MAY_READ:
        raise InputError(f"{file} can be read by others: chmod 600 {file}")
    return public, secret


def _read(file: Path) -> tuple[bytes, bytes | None]:
    refusal = InputError(f"{file} is not a key file: make keys with `octavo events keys FOLDER`")
    try:
        file.open("rb").close()  # zmq does not say why it cannot
        keys = zmq.auth.load_certificate(file)
    except PermissionError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise refusal from error
    if any(key is not None and len(key) != _KEY_CHARS for key in keys):
        raise refusal
    return keys
