"""API keys that stand for tenants: a file that says which salt and which quota go with which key.

    - {key: sk-7f3a, tenant: team-a, quota: 20GiB}
    - {key: sk-91c0, tenant: team-b}

Requests with a tenant's key share what is cached with nobody else, whatever salt they ask for.
"""

import hmac
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import yaml
from msgspec import Meta

from octavo.errors import InputError
from octavo.http.config import api_keys_of
from octavo.settings import Secret, Settings, Size, load_yaml

_MOST_BYTES = 1 << 20
_SCHEME = b"bearer "


class Tenant(Settings, frozen=True, kw_only=True):
    """One key and its tenant."""

    key: Annotated[Secret, Meta(min_length=1, pattern=r"^[!-~]+$", description="printable ASCII without spaces")]
    tenant: Annotated[str, Meta(min_length=1, description="a name")]
    """The salt of all its requests."""
    quota: Size | None = None
    """The most bytes that are kept of the tenant's chunks below the device; by default what the media have room for."""


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """InputError for a file that others may read, for a wrong entry, for a key that stands there twice, and for two
    quotas of one tenant."""
    entries = _read(path)
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{path}: write a list of keys, such as: - {{key: sk-7f3a, tenant: team-a, quota: 20GiB}}")
    tenants: dict[str, Tenant] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):  # it may be a key
            raise InputError(f"{path}: entry {number}: write a mapping, such as {{key: sk-7f3a, tenant: team-a}}")
        try:
            tenant = Tenant.from_mapping(entry)
        except InputError as error:
            raise InputError(f"{path}: entry {number}: {error}") from None
        if tenants.setdefault(tenant.key, tenant) is not tenant:
            raise InputError(f"{path}: entry {number}: its key is another entry's too; give each tenant its own")
    quotas_of(tenants.values(), source=str(path))
    return tuple(tenants.values())


def tenants_of(file: Path | None, config: Settings) -> tuple[Tenant, ...]:
    """The tenants of a server, by its file if it has one. Also InputError for a key that is one of the server's own, as
    it would open all that is the operator's."""
    tenants = () if file is None else read_tenants(file)
    for name, own in api_keys_of(config).items():
        if shared := [number for number, tenant in enumerate(tenants, 1) if tenant.key == own]:
            raise InputError(f"{file}: entry {shared[0]}: its key is {name} too; give the tenant its own")
    return tenants


def tenant_of(tenants: Sequence[Tenant], authorization: bytes) -> str | None:
    """The tenant whose key a request shows; None if the key is no tenant's."""
    shown = shown_key(authorization)
    return next((one.tenant for one in tenants if hmac.compare_digest(shown, one.key.encode())), None)


def shown_key(authorization: bytes) -> bytes:
    """The key in the header; empty, which is no key, without the header."""
    return authorization[len(_SCHEME) :].strip() if authorization[: len(_SCHEME)].lower() == _SCHEME else b""


def quotas_of(tenants: Iterable[Tenant], *, source: str = "tenants") -> Mapping[str, int]:
    """The quotas of those tenants that have one, by salt."""
    quotas: dict[str, int] = {}
    for tenant in tenants:
        if tenant.quota is not None and quotas.setdefault(tenant.tenant, tenant.quota) != tenant.quota:
            raise InputError(f"{source}: {tenant.tenant} has two quotas; give it one")
    return quotas


def _read(path: Path) -> object:
    try:
        with path.open("rb") as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputError(f"{path}: other users may read the keys in it: run `chmod 600 {path}`")
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise InputError(f"{path}: has more than {_MOST_BYTES:,} bytes")
        return load_yaml(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):  # whose words may hold a tenant's key
        raise InputError(f"{path}: this is no YAML, or a name stands twice in one mapping") from None
