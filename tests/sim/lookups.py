"""Simulated lookups by topic name: offsets by time, log starts and ends, and ends of leader epochs."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from tests.sim import wire
from tests.sim.client import Connection, ConnectionLost, connected
from tests.sim.view import Partition, View

_SECONDS = 1.5
_LATEST, _EARLIEST, _NEWEST = -1, -2, -3
_PASSING = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)


class Lookups:
    """The lookups of a partition until its topic is being deleted, because the name may then be the next topic's."""

    def __init__(self, view: View, partition: Partition, name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._partition = partition
        self._name = name
        self._acts: dict[str, Callable[[Connection], Awaitable[bool]]] = {
            "by time": self._by_time,
            "latest": partial(self._end, _LATEST),
            "earliest": partial(self._end, _EARLIEST),
            "newest": self._newest,
            "epoch": self._epoch,
        }
        # The lookups without an answer since the faults stopped.
        self._unanswered = list(self._acts)

    @property
    def unanswered(self) -> list[str]:
        """Return the unanswered lookups, which must all succeed once the faults stop."""
        return [] if self._partition.doomed else [f"{self._name}'s lookup, {what}" for what in self._unanswered]

    async def run(self) -> None:
        while not self._partition.doomed:
            try:
                async with connected(self._view.gateways, self._faults) as connection:
                    while not self._partition.doomed and self._faults.dice.random() > 0.1:
                        urgent = self._view.at_ease and self._unanswered
                        await trio.sleep(0.05 if urgent else self._faults.between(0.2, 1.0))
                        what = self._faults.one_of(self._unanswered if urgent else list(self._acts))
                        at_ease = self._view.at_ease
                        if await self._acts[what](connection) and at_ease and what in self._unanswered:
                            self._unanswered.remove(what)
            except* ConnectionLost:
                pass

    @property
    def _shown(self) -> dict[int, int]:
        """The times of the records that the owner has shown, by offset."""
        return {at: time for at, time in self._partition.times.items() if at < self._partition.shown_end}

    async def _by_time(self, connection: Connection) -> bool:
        times = self._partition.times
        since = self._faults.one_of(list(times.values())) if times else self._view.now_ms()
        known = [offset for offset, time in self._shown.items() if time >= since]
        answer = await self._asked_offset(connection, since)
        if answer is not None:
            self._view.first_at(self._partition, self._name, since, known, answer.offset, none=-1)
        return answer is not None

    async def _end(self, which: int, connection: Connection) -> bool:
        asked = trio.current_time()
        answer = await self._asked_offset(connection, which)
        if answer is None:
            return False
        if which == _LATEST:
            self._view.ends(self._partition, start=-1, end=answer.offset, asked=asked)
        else:
            self._view.ends(self._partition, start=answer.offset, end=-1, asked=asked)
        return True

    async def _newest(self, connection: Connection) -> bool:
        known = self._shown
        answer = await self._asked_offset(connection, _NEWEST)
        if answer is None:
            return False
        newer = [offset for offset, time in known.items() if answer.offset < 0 or time > answer.timestamp]
        if newer:
            self._view.leaves_out(
                self._partition,
                max(newer),
                f"{self._name}: {answer.offset} with {answer.timestamp} was returned as newest; {max(newer)} is newer",
            )
        return True

    async def _epoch(self, connection: Connection) -> bool:
        log = self._partition.log
        known, epoch = self._view.checker.known_end(log), self._faults.dice.randint(1, 8)
        asked = wire.part(
            wire.LEADER_EPOCH_ENDS,
            "OffsetForLeaderPartition",
            partition=self._partition.index,
            current_leader_epoch=-1,
            leader_epoch=epoch,
        )
        topic = wire.part(
            wire.LEADER_EPOCH_ENDS, "OffsetForLeaderTopic", topic=self._partition.topic, partitions=(asked,)
        )
        answer = await self._answer(connection, wire.LEADER_EPOCH_ENDS, replica_id=-1, topics=(topic,))
        if answer is not None and answer.end_offset >= 0:
            if answer.leader_epoch > epoch:
                self._complain("epochs", f"requested epoch {epoch}, received {answer.leader_epoch}")
            self._view.checker.epoch_ends(log, answer.leader_epoch, answer.end_offset, known)
        return answer is not None

    async def _asked_offset(self, connection: Connection, timestamp: int) -> Any:
        asked = wire.part(
            wire.LIST_OFFSETS,
            "ListOffsetsPartition",
            partition_index=self._partition.index,
            current_leader_epoch=-1,
            timestamp=timestamp,
        )
        topic = wire.part(wire.LIST_OFFSETS, "ListOffsetsTopic", name=self._partition.topic, partitions=(asked,))
        return await self._answer(connection, wire.LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=(topic,))

    async def _answer(self, connection: Connection, api_key: int, **values: Any) -> Any:
        """Return the partition's answer, or None if it has no information."""
        body = wire.request(api_key, **values)
        reply = wire.response(api_key, await connection.ask(api_key, body, timeout=_SECONDS))
        answer = reply.topics[0].partitions[0]
        error = answer.error_code
        if self._partition.doomed:
            return None
        if error is ErrorCode.kafka_storage_error:
            # An unavailable store gives the same error. If it persists, the log is damaged.
            if self._view.at_ease:
                self._complain("damaged", f"a lookup failed with {error.name}")
        elif error is not ErrorCode.none and not error.retriable and error not in _PASSING:
            self._complain("refused", f"a lookup failed with {error.name}")
        return answer if error is ErrorCode.none else None

    def _complain(self, kind: str, detail: str) -> None:
        self._view.complain(kind, self._partition, f"{self._name}: {detail}")
