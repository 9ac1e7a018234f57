"""Cut off what a power failure has damaged of intakes in a directory where their objects are not fsynced.

A power failure may remove any object that was put shortly before it, or leave a part of it. Records that were
acknowledged in it are lost, as in a log of Apache Kafka, which does not fsync either. What is left looks as if someone
had deleted or changed objects, for which partitions go offline.
"""

from collections.abc import Mapping
from contextlib import aclosing

import structlog

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.intake.format import IntakeHeader, Kind, parse
from kafscale.objects.interface import MAX_KEYS, ObjectStore
from services.storage.intake.known import runs_with_intakes

log = structlog.get_logger()


async def cut_after_power_failure(objects: ObjectStore, namespace: str) -> None:
    """Delete intake objects that do not count. No other process may use the store. Raises Unavailable, Refused."""
    async with aclosing(runs_with_intakes(objects, namespace)) as run_ids:
        async for run_id in run_ids:
            await _cut(objects, namespace, run_id)


async def _cut(objects: ObjectStore, namespace: str, run_id: str) -> None:
    headers = await _headers(objects, namespace, run_id)
    # For each whole object of records the checkpoint that it names.
    checkpoints = {
        number: header.checkpoint
        for number, header in headers.items()
        if header is not None and header.kind is Kind.RECORDS
    }
    end = _last_that_counts(checkpoints)
    following = headers.get(end + 1)
    if following is not None and following.kind is Kind.SEAL:
        return
    doubtful = sorted(number for number in headers if number > end)
    if all(_is_seal(headers[number]) for number in doubtful):
        return
    log.warning("intake cut off, its last records were lost in a power failure", run=run_id, objects=len(doubtful))
    for first in range(0, len(doubtful), MAX_KEYS):
        numbers = doubtful[first : first + MAX_KEYS]
        await objects.delete_many(paths.intake_key(namespace, run_id, number) for number in numbers)


def _is_seal(header: IntakeHeader | None) -> bool:
    return header is not None and header.kind is Kind.SEAL


def _last_that_counts(checkpoints: Mapping[int, int]) -> int:
    """Return the last number for which all objects from its checkpoint on are there; 0 if there is none."""
    last = first = 0
    for number in sorted(checkpoints):
        first = first if number - 1 in checkpoints else number
        if checkpoints[number] >= first:
            last = number
    return last


async def _header(objects: ObjectStore, key: str, run_id: str, number: int) -> IntakeHeader | None:
    try:
        one = parse((await objects.get(key)).body)
    except CorruptData:
        return None
    return one.header if (one.header.number, one.run_id) == (number, run_id) else None


async def _headers(objects: ObjectStore, namespace: str, run_id: str) -> dict[int, IntakeHeader | None]:
    """Return the headers of all objects by number; None for an object that is not whole."""
    found: dict[int, IntakeHeader | None] = {}
    prefix = after = paths.intake_prefix(namespace, run_id)
    while page := await objects.list_from(prefix, after):
        for info in page:
            after, key = info.key, paths.parse_intake_key(info.key)
            if key is None or key.number is None:
                continue
            # A second read, because one bad read is no proof of damage.
            header = await _header(objects, info.key, run_id, key.number)
            found[key.number] = header or await _header(objects, info.key, run_id, key.number)
        if len(page) < MAX_KEYS:
            break
    return found
