"""The one table between error kinds and gRPC's status codes: what a service raises is what its caller catches.

Only kinds cross: a subclass arrives as the kind it belongs to, with its message. The direct transport uses the same
table, so that callers see no difference.
"""

import grpc
import structlog

from kafscale.errors import ConfigError, CorruptData, KafscaleError, Refused, Unavailable

_CODES: dict[type[KafscaleError], grpc.StatusCode] = {
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    CorruptData: grpc.StatusCode.DATA_LOSS,
    Refused: grpc.StatusCode.FAILED_PRECONDITION,
    ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    KafscaleError: grpc.StatusCode.ABORTED,
}
_KINDS: dict[grpc.StatusCode, type[KafscaleError]] = {code: kind for kind, code in _CODES.items()} | {
    # What gRPC itself answers and repeating cannot help. Its other codes are Unavailable: the outcome is unknown.
    grpc.StatusCode.UNIMPLEMENTED: Refused,
    grpc.StatusCode.UNAUTHENTICATED: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
}
# Details travel in a header, percent-encoded to three times their bytes; peers take 8 KiB of headers.
_MOST_DETAIL_BYTES = 2000


class StatusError(KafscaleError):
    """An error with a gRPC status of its own, of a service that others than ours call."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details or code.name)
        self.code = code


_log = structlog.get_logger(__name__)


def status_of(error: Exception, method: str) -> tuple[grpc.StatusCode, str]:
    """The code and details that tell a caller of ``error``. What is no KafscaleError is INTERNAL, and logged."""
    if isinstance(error, StatusError):
        return error.code, _shortened(str(error))
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind], _shortened(str(error))
    _log.error("a call failed by a defect of its service", method=method, exc_info=error)
    return grpc.StatusCode.INTERNAL, f"the service failed: {type(error).__name__}"


def error_of(code: grpc.StatusCode, details: str) -> KafscaleError:
    """What a caller raises for a call that ended with this status."""
    return _KINDS.get(code, Unavailable)(details or code.name)


def as_received(error: Exception, method: str) -> KafscaleError:
    """``error`` of a service as its caller gets it on any transport."""
    return error_of(*status_of(error, method))


def _shortened(details: str) -> str:
    return details.encode(errors="replace")[:_MOST_DETAIL_BYTES].decode(errors="ignore")
