"""What Mooncake's numbers mean, and what is wrong with a pool as one sentence with the remedy."""

from octavo.stores.client import StoreDownError

_HAS_NO_ROOM, _HAS_OTHER_SIZE = -200, -600
_OF_THE_OBJECT = range(-799, -699)
"""It is not there, not whole yet, or somebody uses it."""
_SENTENCES = {
    _HAS_NO_ROOM: "the pool has no room: give it some with segment_size, or with mooncake_client",
    -800: "a machine that holds a part of the pool does not answer",
    -900: "the master is not reached",
    -901: "the master does not answer in time",
}


def is_missing(code: int) -> bool:
    """Whether an object cannot be had for now, and the store works."""
    return code in _OF_THE_OBJECT


def has_other_size(code: int) -> bool:
    """Whether an object is longer than what was asked for may be, or shorter."""
    return code == _HAS_OTHER_SIZE


def is_down(code: int) -> bool:
    """Whether the store did not work."""
    return code < 0 and code != _HAS_NO_ROOM and not is_missing(code) and not has_other_size(code)


def explain(code: int) -> StoreDownError:
    return StoreDownError(_SENTENCES.get(code, f"Mooncake's error {code}"))


def explain_start(answer: dict[str, str]) -> StoreDownError:
    """Why the process with the library did not begin."""
    error = answer["error"]
    if answer.get("of") == "import":
        return StoreDownError(
            f"Mooncake's library does not load: {error}",
            "pip install 'octavo[mooncake]', or mooncake-transfer-engine-non-cuda on a machine without CUDA, and "
            "Debian's packages libibverbs1, libnl-3-200 and libnl-route-3-200",
        )
    return StoreDownError(error)
