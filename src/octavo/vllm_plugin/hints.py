"""What a request's `kv_transfer_params` hint of its resume points: {"octavo": {"retain": "2h"}}."""

from collections.abc import Mapping

from octavo.chunks import Hint, HintKind, read_lifetime
from octavo.errors import InputError
from octavo.settings import Settings, shown

_KEY = "octavo"


class _Hints(Settings, frozen=True, kw_only=True):
    what = 'kv_transfer_params["octavo"]'

    retain: str | None = None
    release: bool = False
    demote: bool = False


def read_hints(params: object) -> tuple[Hint, ...]:
    """InputError names a wrong key or value, and the right ones."""
    asked = params.get(_KEY) if isinstance(params, Mapping) else None
    if asked is None:
        return ()
    wanted = _Hints.from_mapping(asked)
    hints = [Hint(kind=HintKind.RELEASE)] if wanted.release else []
    if wanted.retain is not None:
        try:
            lifetime_s = read_lifetime(wanted.retain)
        except InputError as error:
            raise InputError(f"{_Hints.what}: retain {error}, not {shown(wanted.retain)}") from error
        hints.append(Hint(kind=HintKind.RETAIN, lifetime_s=lifetime_s))
    if wanted.demote:
        hints.append(Hint(kind=HintKind.DEMOTE))
    return tuple(hints)
