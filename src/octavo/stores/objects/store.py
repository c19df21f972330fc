"""Opens the store of a URL with obstore; errors in an option become a sentence with the remedy."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from octavo.errors import InputError, TierError
from octavo.extras import load_package
from octavo.stores.objects.config import ObjectsConfig
from octavo.stores.objects.troubles import explain, first_line

_LEAST_TIMEOUT_S = 60.0
_MARGIN_S = 10.0


def open_store(config: ObjectsConfig) -> Any:
    """Opens no connection. Raises InputError, with the remedy, for an error in the URL or an option."""
    load_package("obstore", "an object store tier")
    from obstore import store as stores

    scheme, _, place = config.url.partition("://")
    if scheme == "file":
        return _open_folder(stores, Path(place))
    options: dict[str, Any] = {
        "client_options": _client_options(config),
        "retry_config": {
            "max_retries": 2,
            "retry_timeout": timedelta(seconds=config.find_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=config.find_s),
                "base": 2,
            },
        },
    }
    if config.endpoint:
        options["endpoint"] = config.endpoint
    if scheme == "s3":
        options["region"] = config.region or _region_of_environment()
        if config.endpoint:
            options["virtual_hosted_style_request"] = not config.path_style
    try:
        return stores.from_url(config.url, **options)
    except Exception as error:
        raise InputError(f"object store tier: url {config.url}: {explain(error)}") from error


def _region_of_environment() -> str:
    from os import environ

    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _open_folder(stores: Any, folder: Path) -> Any:
    try:
        return stores.LocalStore(prefix=folder, mkdir=True, automatic_cleanup=True)
    except Exception as error:
        raise TierError(
            f"object store tier: {folder}: {first_line(error)}; give a folder that can be written"
        ) from error


def _client_options(config: ObjectsConfig) -> dict[str, Any]:
    deadline_s = max(config.find_s, config.load_s, config.store_s)  # of the tier, which ends its calls itself
    timeout = timedelta(seconds=max(_LEAST_TIMEOUT_S, deadline_s + _MARGIN_S))
    options: dict[str, Any] = {"timeout": timeout, "connect_timeout": timedelta(seconds=2)}
    if (config.endpoint or "").startswith("http://"):
        options["allow_http"] = True
    if config.ca_file is not None:
        try:
            options["root_certificate"] = config.ca_file.read_bytes()
        except OSError as error:
            raise InputError(f"object store tier: ca_file {config.ca_file} cannot be read: {error.strerror}") from error
    return options
