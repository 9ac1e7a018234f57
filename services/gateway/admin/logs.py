"""Queries owners for the start and end of partitions' logs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import PartitionOffset, PartitionQuery
from services.gateway.api import Environment
from services.gateway.owners.commit_view import Key
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import Question, Result, ask_owners

LATEST, EARLIEST = -1, -2
UNKNOWN = -1
NOBODY = "no storage instance answered for the partition"


@dataclass(frozen=True, slots=True)
class Ends:
    """The start and end of a log, and the offset found for a timestamp. ``error`` says why they are unknown."""

    log_start: int = UNKNOWN
    high_watermark: int = UNKNOWN
    found: int = UNKNOWN
    error: str = ""


def key_of(ref: PartitionRef) -> Key:
    return ref.topic_id, ref.partition


async def ends_of(
    environment: Environment, partitions: Iterable[PartitionRef], *, timestamp_ms: int | None = None
) -> dict[Key, Ends]:
    """Return the ends of each partition by its key. With ``timestamp_ms``, find the first record at or after it."""
    timestamps = (EARLIEST, LATEST) if timestamp_ms is None else (EARLIEST, LATEST, timestamp_ms)
    questions: list[Question[PartitionQuery, PartitionOffset]] = [
        Question(
            key_of(ref), [PartitionQuery(partition=ref, timestamp=each, leader_epoch=UNKNOWN) for each in timestamps]
        )
        for ref in partitions
    ]
    await ask_owners(environment.router, questions, StorageLink.list_offsets)
    return {question.key: _ends(question.results) for question in questions}


def _ends(results: Sequence[PartitionOffset]) -> Ends:
    if not results:
        return Ends(error=NOBODY)
    refused = next((result for result in results if result.status != common_pb2.OK), None)
    if refused is not None:
        return Ends(error=refusal_text(refused, refused.detail))
    log_start, high_watermark, *at_time = (result.offset for result in results)
    return Ends(log_start, high_watermark, at_time[0] if at_time else UNKNOWN)


def refusal_text(result: Result, detail: str) -> str:
    name: str = common_pb2.Status.Name(result.status)
    return f"{name}: {detail}" if detail else name
