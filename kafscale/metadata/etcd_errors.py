"""Maps etcd's statuses to errors. The error classes of this module are internal to the store."""

import grpc

from kafscale.errors import CorruptData, KafscaleError, Refused, Unavailable
from kafscale.metadata.interface import Compacted, LeaseNotFound, TooLarge


class NotDone(Unavailable):
    """The request did not reach etcd, or was rejected before it had any effect. It is safe to retry elsewhere."""


class Full(Unavailable):
    """etcd's database is full and accepts no writes. Retrying on another member does not help."""


class TokenRefused(KafscaleError):
    """The token expired, belongs to another etcd, or predates a change of users. The request had no effect."""


class ReplyTooLarge(KafscaleError):
    """The reply exceeds the maximum message size."""


class FutureRevision(KafscaleError):
    """The requested revision does not exist yet."""


# Keyed by the message of etcd or gRPC, because status codes are ambiguous. etcd's messages are part of its API
# (rpctypes/error.go).
_MESSAGES: dict[str, type[KafscaleError]] = {
    "etcdserver: requested lease not found": LeaseNotFound,
    "etcdserver: mvcc: required revision has been compacted": Compacted,
    "etcdserver: mvcc: required revision is a future revision": FutureRevision,
    "etcdserver: too many operations in txn request": TooLarge,
    "etcdserver: request is too large": TooLarge,
    "etcdserver: mvcc: database space exceeded": Full,
    "etcdserver: too many requests": NotDone,
    "etcdserver: no leader": NotDone,
    "etcdserver: rpc not supported for learner": NotDone,
    "failed to connect to all addresses": NotDone,
    "etcdserver: invalid auth token": TokenRefused,
    "etcdserver: user name is empty": TokenRefused,
    "etcdserver: revision of auth store is old": TokenRefused,
    "etcdserver: permission denied": Refused,
    "Received message larger than max": ReplyTooLarge,
}
_CODES: dict[grpc.StatusCode, type[KafscaleError]] = {
    grpc.StatusCode.DATA_LOSS: CorruptData,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.INVALID_ARGUMENT: Refused,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
    grpc.StatusCode.UNAUTHENTICATED: Refused,
    grpc.StatusCode.UNIMPLEMENTED: Refused,
}


def error_of(code: grpc.StatusCode, details: str) -> KafscaleError:
    """Return the error for a call's final status. Unknown statuses become Unavailable: the outcome is unknown."""
    for message, kind in _MESSAGES.items():
        if message in details:
            return kind(details)
    return _CODES.get(code, Unavailable)(details or code.name)
