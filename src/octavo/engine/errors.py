"""How an engine refuses or loses requests, whoever's fault it is not.

OctavoError
└── EngineError
    ├── EngineBusyError      the queue is full; the same request may be welcome later
    └── EngineClosedError    the engine is shutting down, or has died
"""

from octavo.errors import OctavoError


class EngineError(OctavoError):
    """The engine cannot serve a request, and the request is not to blame."""


class EngineBusyError(EngineError):
    """The queue is full; the same request may be welcome later."""


class EngineClosedError(EngineError):
    """The engine is shutting down, or has died."""
