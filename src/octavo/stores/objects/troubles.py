"""The meaning of obstore's errors: one sentence, with the remedy if the trouble does not go away by itself."""

import errno
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from octavo.stores.client import StoreBusyError, StoreDownError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_ODD_NAMES = ("object with invalid path", "cannot decode input using UTF-8")
_NO_LINKS = tuple(os.strerror(number) for number in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP))
"""What obstore says where a link is refused, as it makes one of the written file in its place."""
_RIGHTS = "give credentials that may list, read, write and delete there (environment, profile or instance role)"


class _Trouble(NamedTuple):
    signs: Sequence[str]
    """Texts, one of which is in the error's message. The first trouble that matches counts."""
    sentence: str
    remedy: str = ""


_TROUBLES = (
    _Trouble(
        (
            "169.254.169.254",
            "metadata.google.internal",
            "/latest/api/token",
            "security-credentials",
            "Missing AccessKeyId",
            "Missing SecretAccessKey",
        ),
        "no credentials were found",
        "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the store's own tools take, or an instance role",
    ),
    _Trouble(("Account must be specified",), "its account is not known", "give it in AZURE_STORAGE_ACCOUNT_NAME"),
    _Trouble(
        ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"),
        "there is no such bucket",
        "create it, or give the right name in the url",
    ),
    _Trouble(
        ("NotValidForName",),
        "its certificate is for another name",
        "give the endpoint under a name that stands in its certificate",
    ),
    _Trouble(
        ("ExpiredContext",),
        "its certificate has expired",
        "renew it, or set this machine's clock",
    ),
    _Trouble(("NotValidYet",), "its certificate is not valid yet", "set this machine's clock, or the server's"),
    _Trouble(
        ("InvalidCertificate", "UnknownIssuer"),
        "its certificate does not verify",
        "give the certificates of its authority as ca_file",
    ),
    _Trouble(
        ("No certificates found",), "ca_file has no certificates in PEM", "give those of the store's authority there"
    ),
    _Trouble(("InvalidContentType", "InvalidMessage"), "it does not speak TLS", "give the endpoint with http://"),
    _Trouble(("RequestTimeTooSkewed",), "this machine's clock is too far from the store's", "set its clock"),
    _Trouble(
        ("ExpiredToken", "TokenRefreshRequired", "token has expired"), "the credentials have expired", "renew them"
    ),
    _Trouble(("InvalidAccessKeyId", "InvalidToken"), "it does not know the access key", _RIGHTS),
    _Trouble(("SignatureDoesNotMatch",), "the secret key does not belong to the access key", _RIGHTS),
    _Trouble(
        ("ETag Header missing",),
        "its answer is none of an object store",
        "give the store's own address as endpoint",
    ),
    _Trouble(
        ("non-partial response", "Content-Range", "CONTENT_RANGE"),
        "it does not give the part of an object that was asked for",
        "take a store, and a proxy before it, that know ranges of bytes",
    ),
    _Trouble(
        ("PermanentRedirect", "redirect without LOCATION", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"),
        "the bucket is in another region",
        "give its region",
    ),
    _Trouble(
        tuple(f"Unable to rename file: {words}" for words in _NO_LINKS),
        "its file system has no hard links",
        "take one that has: an object is to appear whole, and once",
    ),
    _Trouble(("SlowDown", "TooManyRequests", "status code: 429", "status code: 503"), "it throttles"),
    _Trouble(
        ("QuotaExceeded", "StorageFull"), "it is full, or its quota is used up: `octavo store gc --size` makes room"
    ),
    _Trouble(("AccessDenied", "status code: 401", "status code: 403"), "it does not permit that", _RIGHTS),
    _Trouble(
        ("NotImplemented", "status code: 501"),
        "it cannot do what is asked of it",
        "take a store that knows conditional writes (If-None-Match)",
    ),
    _Trouble(("dns error",), "the name of its host is not known"),
    _Trouble(("Connection refused", "ConnectionRefused"), "it refuses connections"),
    _Trouble(("error sending request", "ConnectError"), "it cannot be reached"),
    _Trouble(("timed out", "TimedOut"), "it has not answered in time"),
    _Trouble(("error decoding response body", "IncompleteBody", "IncompleteMessage"), "an answer broke off"),
)


def explain(error: Exception) -> StoreDownError:
    """The explanation of an error that obstore raised."""
    if has_odd_names(error):
        return StoreDownError(first_line(error), "delete that object, or give engines a prefix of their own in the url")
    text = f"{type(error).__name__} {error}"
    answer = " ".join(found[1] for pattern in (_STATUS, _CODE) if (found := pattern.search(text)))
    for trouble in _TROUBLES:
        if any(sign in text for sign in trouble.signs):
            sentence = f"{trouble.sentence} ({answer})" if answer and not trouble.remedy else trouble.sentence
            kind = StoreBusyError if trouble.sentence == "it throttles" else StoreDownError
            return kind(sentence, trouble.remedy)
    return StoreDownError(f"it answers {answer}" if answer else first_line(error))


def has_odd_names(error: Exception) -> bool:
    """Whether a listing failed at a name that obstore cannot tell: with an empty part (`a//b`), control characters, or
    bytes that are not UTF-8. Other tools of a shared bucket may give such names."""
    return any(sign in str(error) for sign in _ODD_NAMES)


def is_conflict(error: Exception) -> bool:
    """Whether a write was refused as another one of that name was under way, though obstore says that the object is
    there: nobody knows whether it is."""
    return any(code in str(error) for code in ("ConditionalRequestConflict", "OperationAborted"))


def first_line(error: BaseException) -> str:
    """The useful part of obstore's message, which goes on for a page."""
    return str(error).partition("\n")[0].strip() or type(error).__name__


def is_beyond_its_end(error: Exception) -> bool:
    """Whether an object is shorter than the range that was asked for."""
    return "status code: 416" in str(error) or "InvalidRange" in str(error)
