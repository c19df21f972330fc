"""`EngineAddress`: where an engine is, as a person writes it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import SplitResult, urlsplit

import httpx

from octavo.errors import InputError
from octavo.events import SourceConfig, check_subscriber, endpoint_of_rank
from octavo.hashing import DEFAULT_ALGORITHM, BlockHasher
from octavo.settings import read_path
from octavo.units import find_count

_SCHEME = re.compile(r"\w+://")
_OPTIONS = ("name", "events", "replay", "keys", "hash", "seed", "ranks", "store")
_MOST_RANKS = 1024
_NAME = "dns"
_ANY_ENDPOINT = "tcp://127.0.0.1:1"
_WILDCARDS = ("*", "0.0.0.0", "[::]")  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """Where an engine is: `http://10.0.0.5:8000`, or with options as `http://10.0.0.5:8000,events=tcp://10.0.0.5:5557`.

    `dns://engines:8000` is where several are, each at one of the name's addresses.
    """

    url: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    """`events` and `replay` in place of what the engine says; `keys`, a folder with the keys of its events; `hash` and
    `seed` of engines that do not tell how they hash; `ranks`, the number of data-parallel ranks behind the URL;
    `store`, a name that engines have in common which share a store and do not tell it."""
    rank: int | None = None
    """Which of the data-parallel ranks behind the URL this is; each rank is an engine of its own."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """InputError names what is wrong."""
        url, *pairs = map(str.strip, text.split(","))
        parts = _split(url)
        if parts is None:
            raise InputError(f"engine {text!r}: write a URL such as http://127.0.0.1:8000, or dns://NAME:PORT")
        options = dict(pair.partition("=")[::2] for pair in pairs)
        if wrong := [name for name, value in options.items() if name not in _OPTIONS or not value]:
            raise InputError(f"engine {text!r}: {wrong[0]!r} is not one of {', '.join(_OPTIONS)} with a value")
        if not options.get("name", "").isprintable():
            raise InputError(f"engine {text!r}: its name must be printable: it stands in the header of each answer")
        if parts.scheme == _NAME:
            _check_name(text, parts, options)
        address = cls(url=url.rstrip("/"), name=options.pop("name", _place_of(parts)), options=options)
        address._check_options(text)
        return address

    @classmethod
    def parse_all(cls, texts: Iterable[str]) -> list[Self]:
        """Several addresses, each followed by its options: commas part engines and options alike."""
        found: list[str] = []
        for part in map(str.strip, ",".join(texts).split(",")):
            if found and not _SCHEME.match(part):
                found[-1] += f",{part}"
            else:
                found.append(part)
        addresses = [rank for text in found if text for rank in cls.parse(text).each_rank()]
        names = [address.name for address in addresses]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"two engines are called {twice[0]!r}: give one another name, as URL,name=NAME")
        return addresses

    @property
    def shown_url(self) -> str:
        """Without a password."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=_place_of(parts)).geturl()

    @property
    def is_name(self) -> bool:
        """Whether engines are at each address of a name."""
        return self.url.startswith(f"{_NAME}:")

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The host and port of a `dns://` name."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None, "it was checked"
        return parts.hostname, parts.port

    def at(self, host: str) -> Self:
        """The engine at one address of this name."""
        where = f"{f'[{host}]' if ':' in host else host}:{self.host_and_port[1]}"
        return replace(self, url=f"http://{where}", name=where if self.rank is None else f"{where}/{self.rank}")

    def each_rank(self) -> list[Self]:
        """The engines behind the URL: one for each data-parallel rank. Ports of events count up by the rank, as vLLM
        opens them."""
        options = dict(self.options)
        count = options.pop("ranks", None)
        if count is None:
            return [self]
        num_ranks = find_count(count)
        if num_ranks is None or not 1 <= num_ranks <= _MOST_RANKS:
            raise InputError(f"engine {self.name!r}: ranks must be a number of 1 to {_MOST_RANKS}, not {count!r:.60}")
        if "events" not in options:
            raise InputError(f"engine {self.name!r}: ranks needs events, those of rank 0: URL,ranks={count},events=...")
        told = {name: options[name] for name in ("events", "replay") if name in options}
        return [
            replace(
                self,
                name=f"{self.name}/{rank}",
                rank=rank,
                options=options | {name: endpoint_of_rank(endpoint, rank) for name, endpoint in told.items()},
            )
            for rank in range(num_ranks)
        ]

    def source(self, events: str | None, replay: str | None) -> SourceConfig | None:
        """Where its events are, by the engine's own words and these options; None if it publishes none. An address that
        listens everywhere is replaced by the engine's host."""
        events = self.options.get("events", events)
        if events is None:
            return None
        replay = self.options.get("replay", replay)
        keys = self.options.get("keys")
        return SourceConfig(
            endpoint=self._reachable(events),
            replay_endpoint=None if replay is None else self._reachable(replay),
            keys=None if keys is None else read_path(keys),
        )

    def check_keys(self) -> None:
        """InputError if the keys of its events cannot be read. Only for a start: later it may be that they come."""
        if "keys" in self.options:
            try:
                check_subscriber(read_path(self.options["keys"]))
            except InputError as error:
                raise InputError(f"engine {self.name!r}: keys: {error}") from None

    def _check_options(self, text: str) -> None:
        """Refuses what would be noticed only when the engine answers."""
        try:
            self.source(_ANY_ENDPOINT, None)
            BlockHasher(hash_block_size=1, algorithm=self.options.get("hash", DEFAULT_ALGORITHM))
        except InputError as error:
            raise InputError(f"engine {text!r}: {error}") from None

    def _reachable(self, endpoint: str) -> str:
        host = urlsplit(self.url).hostname or ""
        for wildcard in _WILDCARDS:
            endpoint = endpoint.replace(f"//{wildcard}:", f"//{f'[{host}]' if ':' in host else host}:")
        return endpoint


def _place_of(parts: SplitResult) -> str:
    """Host and port, without the user and the password that may stand before them."""
    return parts.netloc.rpartition("@")[2]


def _split(url: str) -> SplitResult | None:
    """The parts of a URL; None if the router could not ask there."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https", _NAME) and bool(parts.hostname) and parts.port != 0
        is_asked = bool(httpx.URL(url).host) and not {"?", "#"}.intersection(url)
    except (ValueError, httpx.InvalidURL):  # such as http://[::1 and http://host:port
        return None
    return parts if is_whole and is_asked else None


def _check_name(text: str, parts: SplitResult, options: Mapping[str, str]) -> None:
    """Each engine behind a name has a port, and events at its own address."""
    if parts.port is None or parts.path.strip("/") or "name" in options or "@" in parts.netloc:
        raise InputError(f"engine {text!r}: behind a name are several engines: write dns://NAME:PORT, without name=")
    for option in ("events", "replay"):
        if option in options and not any(f"//{wildcard}:" in options[option] for wildcard in _WILDCARDS):
            raise InputError(f"engine {text!r}: each engine behind a name has its own {option}: {option}=tcp://*:PORT")
