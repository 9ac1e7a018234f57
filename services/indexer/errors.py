"""Errors of the indexer, and the statuses of its replies."""

from kafscale.errors import CorruptData, KafscaleError, Refused, Unavailable
from kafscale.objects.interface import ObjectNotFound
from kafscale.paths import is_topic_name
from kafscale.v1.common_pb2 import Status


class InvalidRequest(KafscaleError):
    """A request is inconsistent, or asks for more than its limits allow."""


def check_partition(topic: str, partition: int) -> None:
    """Raise InvalidRequest for names and numbers that no key may contain."""
    if not is_topic_name(topic) or partition < 0:
        raise InvalidRequest(f"{topic!r} with partition {partition} is not a partition of a topic")


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
