"""Deletes of a partition's objects, which only its owner may send."""

import trio

from kafscale.metadata.membership import Membership
from kafscale.objects.interface import ObjectStore
from services.storage.log.partition import Partition

DELETED_TOGETHER = 100
"""Objects that are deleted with one proof. A store may need a request for each, and the proof is valid for seconds."""


class OwnerDeletes:
    """Deletes objects while this run can prove that it owns their partition."""

    def __init__(self, objects: ObjectStore, membership: Membership) -> None:
        self._objects = objects
        self._membership = membership

    async def delete(self, partition: Partition, keys: list[str]) -> bool:
        """Delete the objects. Return False if the run cannot prove that it is the owner. Raises KafscaleError."""
        for start in range(0, len(keys), DELETED_TOGETHER):
            if not await self._delete(partition, keys[start : start + DELETED_TOGETHER]):
                return False
        return True

    async def _delete(self, partition: Partition, keys: list[str]) -> bool:
        # Take the date first, so that the store refuses a delete sent by a process that was paused after the check.
        dated = self._objects.now()
        if partition.closed or partition.moving or not self._membership.proven:
            return False
        answered = False
        partition.under_way += 1
        try:
            await self._objects.delete_many(keys, dated=dated)
            answered = True
        finally:
            if not answered:
                partition.last_unknown_request = partition.last_unknown_delete = trio.current_time()
            partition.request_ended()
        return True
