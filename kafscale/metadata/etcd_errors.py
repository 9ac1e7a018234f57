"""What etcd's statuses mean for a caller. The kinds of this module never leave the store."""

import grpc

from kafscale.errors import CorruptData, KafscaleError, Refused, Unavailable
from kafscale.metadata.interface import Compacted, LeaseNotFound, TooLarge


class NotDone(Unavailable):
    """The request did not reach etcd, or was turned away before anything was done: asking elsewhere repeats nothing."""


class Full(Unavailable):
    """etcd's database is full and takes no writes; another member cannot help."""


class TokenRefused(KafscaleError):
    """The token ran out, is another etcd's, or is from before users were changed. Nothing was done."""


class ReplyTooLarge(KafscaleError):
    """More came than a message may hold."""


class FutureRevision(KafscaleError):
    """The revision is not there yet."""


# By what etcd (or gRPC, of itself) says: codes alone do not tell these apart. The words are part of etcd's API, in
# rpctypes/error.go.
_SAID: dict[str, type[KafscaleError]] = {
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
    """The error of a call that ended with this status; what is not known leaves the outcome unknown."""
    for said, kind in _SAID.items():
        if said in details:
            return kind(details)
    return _CODES.get(code, Unavailable)(details or code.name)
