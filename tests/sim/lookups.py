"""Simulated look-ups by name: offsets by time, ends of logs, and where leader epochs end."""

from typing import Any

import trio
from kio.schema.errors import ErrorCode

from tests.sim import wire
from tests.sim.client import Connection, ConnectionLost, connected
from tests.sim.view import Partition, View

_SECONDS = 1.5
_LATEST, _EARLIEST, _NEWEST = -1, -2, -3
_PASSING = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch, ErrorCode.kafka_storage_error)


class Lookups:
    """Of one partition, until its topic is being deleted: then its name may be the next one's."""

    def __init__(self, view: View, partition: Partition, name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._partition = partition
        self._name = name

    async def run(self) -> None:
        while not self._partition.doomed:
            try:
                async with connected(self._view.gateways, self._faults) as connection:
                    while not self._partition.doomed and self._faults.dice.random() > 0.1:
                        await trio.sleep(self._faults.between(0.2, 1.0))
                        await self._faults.one_of((self._by_time, self._ends, self._newest, self._epoch))(connection)
            except* ConnectionLost:
                pass

    async def _by_time(self, connection: Connection) -> None:
        times = self._partition.times
        since = self._faults.one_of(list(times.values())) if times else self._view.now_ms()
        known = [offset for offset, time in times.items() if time >= since]
        answer = await self._asked_offset(connection, since)
        if answer is not None:
            self._view.first_at(self._partition, self._name, since, known, answer.offset, none=-1)

    async def _ends(self, connection: Connection) -> None:
        asked, which = trio.current_time(), self._faults.one_of((_LATEST, _EARLIEST))
        answer = await self._asked_offset(connection, which)
        if answer is None:
            return
        if which == _LATEST:
            self._view.ends(self._partition, start=-1, end=answer.offset, asked=asked)
        else:
            self._view.ends(self._partition, start=answer.offset, end=-1, asked=asked)

    async def _newest(self, connection: Connection) -> None:
        known = dict(self._partition.times)
        answer = await self._asked_offset(connection, _NEWEST)
        if answer is None:
            return
        newer = [offset for offset, time in known.items() if answer.offset < 0 or time > answer.timestamp]
        if newer:
            self._view.checker.leaves_out(
                self._partition.log,
                max(newer),
                f"{self._name}: {answer.offset} is told as the newest, of {answer.timestamp}; {max(newer)} is newer",
            )

    async def _epoch(self, connection: Connection) -> None:
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
                self._complain("epochs", f"asked for epoch {epoch}, answered {answer.leader_epoch}")
            self._view.checker.epoch_ends(log, answer.leader_epoch, answer.end_offset, known)

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
        """The partition's answer; None: it tells nothing."""
        body = wire.request(api_key, **values)
        reply = wire.response(api_key, await connection.ask(api_key, body, timeout=_SECONDS))
        answer = reply.topics[0].partitions[0]
        error = answer.error_code
        if self._partition.doomed:
            return None
        if error is not ErrorCode.none and not error.retriable and error not in _PASSING:
            self._complain("refused", f"{self._name}: a look-up is answered {error.name}")
        return answer if error is ErrorCode.none else None

    def _complain(self, kind: str, detail: str) -> None:
        self._view.complain(kind, self._partition, f"{self._name}: {detail}")
