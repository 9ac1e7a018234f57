"""The Kafka APIs that this gateway supports, one for each module in ``services/gateway/apis``.

ApiVersions, request dispatch and docs/reference/protocol.md are derived from this list.
"""

import pkgutil
from importlib import import_module

from services.gateway import apis
from services.gateway.api import Api
from services.gateway.apis import api_versions, sasl_authenticate, sasl_handshake
from services.gateway.clients.unsupported import UNSUPPORTED

API_VERSIONS = api_versions.KEY
BEFORE_AUTHENTICATION = frozenset((API_VERSIONS, sasl_handshake.KEY, sasl_authenticate.KEY))
"""The APIs that a client may call before it is authenticated."""


def _supported() -> dict[int, Api]:
    modules = [import_module(f"{apis.__name__}.{found.name}") for found in pkgutil.iter_modules(apis.__path__)]
    others: list[Api] = [module.API for module in modules if module is not api_versions]
    # ApiVersions needs the list of all other APIs.
    return {api.key: api for api in sorted((*others, api_versions.api(others)), key=lambda api: api.key)}


APIS: dict[int, Api] = _supported()
"""The APIs by key, in ascending order."""


def refusal(api_key: int, version: int) -> str:
    """The reason why a request with this API key and version is not supported."""
    if api_key in APIS:
        versions = APIS[api_key].versions
        only = f"versions {versions[0]} to {versions[-1]} are"
        return f"{APIS[api_key].name} ({api_key}) version {version} is not supported: {only}"
    if api_key in UNSUPPORTED:
        name, reason = UNSUPPORTED[api_key]
        return f"{name} ({api_key}) is not supported: {reason}"
    return f"there is no API {api_key} (version {version})"
