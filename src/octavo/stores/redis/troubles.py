"""Explains errors of a server in one sentence with the remedy."""

from octavo.errors import MALFORMED
from octavo.stores.client import StoreDownError

PASSWORD_VARIABLE = "OCTAVO_REDIS_PASSWORD"  # noqa: S105 - its name
_CLIENT_CERTIFICATE = "rediss://host:port/0?ssl_certfile=FILE&ssl_keyfile=FILE"
_ASKS_FOR_A_CERTIFICATE = (
    "CERTIFICATE_REQUIRED",
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_HANDSHAKE_FAILURE",
)
_IS_CLOSED = ("Connection reset by peer", "Connection closed by server", "Connection lost")
_IS_MUTE = "Timeout connecting to server"
_REMEDIES = (
    (("DB index", "invalid DB"), "give a database that the server has: redis://host:port/0"),
    (("certificate has expired", "not yet valid"), "renew its certificate, or set this machine's clock"),
    (("certificate is not valid for",), "give the server under a name that stands in its certificate"),
    (_ASKS_FOR_A_CERTIFICATE, f"give a client's certificate that it accepts: {_CLIENT_CERTIFICATE}"),
    (("certificate", "CERTIFICATE"), "give the certificates of its authority as ca_file"),
    (
        (
            "NOAUTH",
            "WRONGPASS",
            "Authentication",
            "already authenticated",
            "username-password",
            "NOPERM",
            "permissions",
        ),
        f"give a user and a password that may read and write: redis://user:password@host, or {PASSWORD_VARIABLE}",
    ),
    (("without any password configured",), "leave the password out: the server asks for none"),
    (("READONLY", "read only replica"), "give the primary server, which can be written"),
)


def explain(error: Exception, url: str = "") -> StoreDownError:
    from redis.exceptions import AskError, ClusterDownError, MasterDownError, MovedError  # an optional dependency

    if "'idna' codec" in str(error):
        return StoreDownError("its host has no name that can be looked up", "give another one in the url")
    if isinstance(error, MALFORMED):  # what is no reply, or one without an end
        return other_answer()
    is_of_a_cluster = isinstance(error, MovedError | AskError | ClusterDownError)
    is_of_a_cluster = is_of_a_cluster or "not allowed in cluster mode" in str(error)
    if is_of_a_cluster and not isinstance(error, MasterDownError):  # which any replica may say for a while
        return StoreDownError("it is part of a cluster", "give a server that has all values itself")
    text = " ".join(str(error).split()) or type(error).__name__
    remedy = next((remedy for signs, remedy in _REMEDIES if any(sign in text for sign in signs)), "")
    if not remedy and (hint := _hint(text, url)):
        text += f" ({hint})"
    return StoreDownError(text, remedy)


def _hint(text: str, url: str) -> str:
    """What may be the cause. A server that is away, or a proxy before it, may do the same."""
    if any(sign in text for sign in _IS_CLOSED):
        if url.startswith("rediss://"):  # with TLS 1.3 a client learns nothing else
            return f"if it asks clients for certificates, give one that it accepts: {_CLIENT_CERTIFICATE}"
        return "if it wants TLS, give rediss://" if url.startswith("redis://") else ""
    return "if it has no TLS, give redis://" if _IS_MUTE in text and url.startswith("rediss://") else ""


def other_answer() -> StoreDownError:
    return StoreDownError("its answer is none to what was asked")


def is_of_another_type(answer: object) -> bool:
    """Whether somebody else has put something there that has no bytes, such as a list. A store overwrites it."""
    return isinstance(answer, Exception) and str(answer).startswith("WRONGTYPE")
