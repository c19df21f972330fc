"""What a request hints of its resume points: {"retain": "2h"}.

kv_transfer_params    {"octavo": {"retain": "2h"}}
kv_hints              the payload of each action of type "octavo", version 1; vLLM's envelope of what routers say
"""

from collections.abc import Iterator, Mapping

from octavo.chunks import Hint, HintKind, read_lifetime
from octavo.errors import InputError
from octavo.settings import Settings, shown

_KEY = "octavo"
_VERSION = "1"
_ORDER = (HintKind.RELEASE, HintKind.RETAIN, HintKind.DEMOTE)


class _Hints(Settings, frozen=True, kw_only=True):
    what = 'kv_transfer_params["octavo"]'

    retain: str | None = None
    release: bool = False
    demote: bool = False


class _HintsOfAction(_Hints, frozen=True, kw_only=True):
    what = 'kv_hints: action "octavo"'


def read_hints(params: object, envelope: object = None) -> tuple[Hint, ...]:
    """The hints, in the order in which they are followed. InputError names a wrong key or value, and the right ones."""
    hints = [*_hints_of_params(params), *_hints_of_envelope(envelope)]
    return tuple(sorted(hints, key=lambda hint: _ORDER.index(hint.kind)))


def _hints_of_params(params: object) -> Iterator[Hint]:
    asked = params.get(_KEY) if isinstance(params, Mapping) else None
    if asked is not None:
        yield from _hints(_Hints.from_mapping(asked))


def _hints_of_envelope(envelope: object) -> Iterator[Hint]:
    """`envelope`: vLLM's `KvHintsEnvelope`. Actions of other types are ignored."""
    for action in getattr(envelope, "actions", ()):
        if action.action_type != _KEY:
            continue
        if action.action_version.partition(".")[0] != _VERSION:
            raise InputError(
                f"{_HintsOfAction.what} has version {shown(action.action_version)}: send version {_VERSION}"
            )
        yield from _hints(_HintsOfAction.from_mapping(action.payload))


def _hints(wanted: _Hints) -> Iterator[Hint]:
    if wanted.release:
        yield Hint(kind=HintKind.RELEASE)
    if wanted.retain is not None:
        try:
            lifetime_s = read_lifetime(wanted.retain)
        except InputError as error:
            raise InputError(f"{wanted.what}: retain {error}, not {shown(wanted.retain)}") from error
        yield Hint(kind=HintKind.RETAIN, lifetime_s=lifetime_s)
    if wanted.demote:
        yield Hint(kind=HintKind.DEMOTE)
