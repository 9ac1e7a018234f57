"""Errors of the indexer, and the statuses of its replies."""

from kafscale.errors import CorruptData, KafscaleError, Refused, Unavailable
from kafscale.objects.interface import ObjectNotFound
from kafscale.v1.common_pb2 import Status


class InvalidRequest(KafscaleError):
    """A request is inconsistent, or asks for more than its limits allow."""


def status_of(error: KafscaleError) -> Status:
    """Return the status that tells a caller of this error. Raises other errors."""
    if isinstance(error, ObjectNotFound | CorruptData):
        return Status.DAMAGED
    if isinstance(error, Unavailable | Refused):
        return Status.UNAVAILABLE
    if isinstance(error, InvalidRequest):
        return Status.INVALID
    raise error


def error_of(status: Status, detail: str) -> KafscaleError:
    """Return the error of which a status tells."""
    kinds: dict[Status, type[KafscaleError]] = {Status.DAMAGED: CorruptData, Status.INVALID: InvalidRequest}
    return kinds.get(status, Unavailable)(detail)
