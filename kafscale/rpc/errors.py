"""Maps exceptions to gRPC status codes and back, so that a caller catches the exception that the service raised.

A subclass arrives as its base class in `kafscale.errors`, with its message. The direct transport uses the same mapping,
so that callers see no difference.
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
    # Codes of gRPC itself for which retries are useless. Its other codes become Unavailable: the outcome is unknown.
    grpc.StatusCode.UNIMPLEMENTED: Refused,
    grpc.StatusCode.UNAUTHENTICATED: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
}
# Details are sent in a header, percent-encoded to up to three times their size. Peers accept 8 KiB of headers.
_MAX_DETAIL_BYTES = 2000


class StatusError(KafscaleError):
    """An error with an explicit gRPC status, of a service that is also called by other clients."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details or code.name)
        self.code = code


_log = structlog.get_logger(__name__)


def status_of(error: Exception, method: str) -> tuple[grpc.StatusCode, str]:
    """Return the code and details of ``error`` for its caller. An unexpected error is INTERNAL, and is logged."""
    if isinstance(error, StatusError):
        return error.code, _shortened(str(error))
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind], _shortened(str(error))
    _log.error("call failed with an unexpected error", method=method, exc_info=error)
    return grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}"


def error_of(code: grpc.StatusCode, details: str) -> KafscaleError:
    """Return the exception that a caller raises for this status."""
    return _KINDS.get(code, Unavailable)(details or code.name)


def as_received(error: Exception, method: str) -> KafscaleError:
    """Convert an error of a service to the exception that its caller gets, on any transport."""
    return error_of(*status_of(error, method))


def _shortened(details: str) -> str:
    return details.encode(errors="replace")[:_MAX_DETAIL_BYTES].decode(errors="ignore")
