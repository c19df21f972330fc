"""The one exception tree of Octavo.

    OctavoError
    ├── InputError                        a person's input is wrong: a flag, a file, a number
    │   ├── MissingPackageError           a package of one of Octavo's extras is not installed, or does not load
    │   ├── ModelConfigError              a model's config.json cannot be read or lacks what is needed
    │   ├── ModelFolderError              a model's folder is not there, or lacks a file
    │   ├── RequestTooLargeError          a request that no state of the pool could hold
    │   ├── UnknownArchitectureError      no reader knows this architecture, and guessing is not possible
    │   ├── UnsupportedModelError         a model that the engine does not serve, with the reason
    │   └── WeightsChangedError           files of the weights changed while they were loaded
    ├── SpecError                         a spec whose values are impossible
    ├── RegistryError
    │   ├── ConflictingRegistrationError  two registrations contradict each other
    │   ├── InvalidRegistrationError      what was registered is not what the registry holds
    │   └── UnregisteredSpecError         a layer's spec has no registered ancestor
    ├── PlanError                         specs that no plan can satisfy
    │   ├── BlockSizeError                block sizes that do not fit each other
    │   └── NotEnoughMemoryError          memory too small for one request
    ├── TierError                         a tier cannot be opened or used as asked
    │   └── TierLockedError               its directory is in use by another engine
    ├── TransferError                     bytes between a device and host memory
    │   ├── CacheLayoutError              cache tensors that cannot be seen as the plan's pages
    │   └── InvalidTransferError          a transfer that names rows or slots that are not there
    ├── OffloadError                      offloading was called against its contract
    ├── EngineError                       the engine cannot serve a request, and the request is not to blame
    │   ├── EngineBusyError               the queue is full; the same request may be welcome later
    │   └── EngineClosedError             the engine is shutting down, or has died
    └── WireError                         bytes from a peer that are not a message, or more of one than limits allow

What a person sees names the value and the remedy. `assert` is for our own mistakes only.

`MALFORMED` is for bytes of others: all that a decoder raises for them, and not only its own error.
"""

import re

import msgspec

MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading others' JSON or msgpack raises: text that is not UTF-8 is a ValueError, and so is a number of thousands
of digits; what is nested too deeply is a RecursionError."""

_HALF_PAIR = re.compile(rb"\\u[dD][89abAB].{2,7}\Z", re.DOTALL)
"""The first half of a pair, with less behind it than a second one takes."""


def why_not_read(error: Exception, data: bytes | bytearray = b"") -> str:
    """What a person hears of JSON that a decoder refused: it may be JSON all the same, and only too large for it, or
    hold what is no text. `data`, if msgspec read it: what ends soon after half of a pair is truncated to it."""
    text = str(error)
    if "surrogate" in text or ("truncated" in text and _HALF_PAIR.search(data[-16:])):
        return "holds half of a surrogate pair, such as \\ud83d alone, which is no text"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8"
    if "umber out of range" in text or "nteger value out of range" in text or "integer string conversion" in text:
        return "has a number of too many digits"
    return f"is no JSON: {text}"


class OctavoError(Exception):
    """The root of everything that Octavo raises on purpose."""


class InputError(OctavoError):
    """A person's input is wrong: a flag, a file, a number."""

    param: str | None = None
    """The parameter of a request, where one is wrong."""


class ParameterError(InputError):
    """A parameter of a request is wrong; the first word of the message names it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.param = message.partition(" ")[0]


class MissingPackageError(InputError, ModuleNotFoundError):
    """A package of one of Octavo's extras is not installed, or does not load."""


class ModelConfigError(InputError):
    """A model's config.json cannot be read or lacks what is needed."""


class ModelFolderError(InputError):
    """A model's folder is not there, or lacks a file."""


class UnsupportedModelError(InputError):
    """A model that the engine does not serve, with the reason."""


class UnknownArchitectureError(InputError):
    """No reader knows this architecture, and guessing is not possible."""


class RequestTooLargeError(InputError):
    """A request that no state of the pool could hold."""


class WeightsChangedError(InputError):
    """Files of the weights changed while they were loaded."""


class SpecError(OctavoError, ValueError):
    """A spec whose values are impossible."""


class RegistryError(OctavoError):
    """A registration or a lookup in a registry went wrong."""


class ConflictingRegistrationError(RegistryError):
    """Two registrations contradict each other."""

    def __init__(self, message: str, *, key: object) -> None:
        super().__init__(message)
        self.key = key
        """What was registered twice."""


class InvalidRegistrationError(RegistryError, TypeError):
    """What was registered is not what the registry holds."""


class UnregisteredSpecError(RegistryError, LookupError):
    """A layer's spec has no registered ancestor."""


class PlanError(OctavoError):
    """Specs that no plan can satisfy."""


class BlockSizeError(PlanError):
    """Block sizes that do not fit each other."""


class NotEnoughMemoryError(PlanError):
    """Memory too small for one request."""


class TierError(OctavoError):
    """A tier cannot be opened or used as asked."""


class TierLockedError(TierError):
    """A tier's directory is in use by another engine."""


class OffloadError(OctavoError):
    """Offloading was called against its contract: a job that was never prepared, or was completed before."""


class EngineError(OctavoError):
    """The engine cannot serve a request, and the request is not to blame."""


class EngineBusyError(EngineError):
    """The queue is full; the same request may be welcome later."""


class EngineClosedError(EngineError):
    """The engine is shutting down, or has died."""


class EngineDiedError(EngineClosedError):
    """An exception has ended the engine's thread, and so all its requests."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the engine has died: {type(cause).__name__}: {cause}")


class WireError(OctavoError, ValueError):
    """Bytes from a peer that are not a message, or more of one than limits allow."""


class TransferError(OctavoError, ValueError):
    """Bytes cannot go between a device and host memory as asked."""


class CacheLayoutError(TransferError):
    """Cache tensors that cannot be seen as the plan's pages."""


class InvalidTransferError(TransferError):
    """A transfer that names rows or slots that are not there."""
