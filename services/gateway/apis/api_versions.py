"""ApiVersions (18), versions 0 to 4: the APIs and versions that this gateway supports.

- 0: error code and version ranges.
- 1: adds the throttle time.
- 3: flexible. The client sends its name and version. Adds features.
- 2, 4: no changes.

The only feature is `metadata.version`. It is finalized at the level of Kafka 4.1, whose topic configs and admin APIs
KafScale follows, and cannot be changed. Kafka's other features are missing because KafScale does not support what they
control: `group.version` the consumer group protocol of Kafka 4, and `transaction.version` transactions.

Clients send the highest version that they know. If the gateway does not support it, it responds in version 0 with
UNSUPPORTED_VERSION and all ranges, so that the client can retry. The response header is never flexible.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Order, Work

KEY = 18

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class _Range:
    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class _Supported:
    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class _Finalized:
    name: str
    min_version_level: int
    max_version_level: int


_METADATA_VERSION = ("metadata.version", 27, 27)
"""The level of 4.1-IV1."""


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    api_keys: tuple[_Range, ...]
    supported_features: tuple[_Supported, ...] = ()
    finalized_features: tuple[_Finalized, ...] = ()
    finalized_features_epoch: int = -1
    throttle_time: int = 0


def api(others: Iterable[Api]) -> Api:
    """Return this API. Its responses list ``others`` and itself."""
    versions = range(5)
    ranges = tuple(
        _Range(key, supported.start, supported[-1])
        for key, supported in sorted([(KEY, versions), *((other.key, other.versions) for other in others)])
    )

    def handle(call: Call) -> Work | None:
        if call.version not in versions:
            call.answer(_Reply(ErrorCode.unsupported_version, ranges), version=0)
            return None
        request = codec.decode_request(KEY, call.version, call.request.body)
        names = (getattr(request, "client_software_name", "-"), getattr(request, "client_software_version", "-"))
        valid = call.version < 3 or all(_SOFTWARE.fullmatch(name) for name in names)
        features = (_Supported(*_METADATA_VERSION),), (_Finalized(*_METADATA_VERSION),), 0
        call.answer(_Reply(ErrorCode.none, ranges, *features) if valid else _Reply(ErrorCode.invalid_request, ()))
        return None

    def fail(call: Call, error: ErrorCode) -> None:
        version = call.version if call.version in versions else 0
        call.answer(_Reply(error, ()), version=version)

    return Api(KEY, "ApiVersions", versions, handle, fail, order=Order.READS)
