"""Reads the intakes of storage runs from the bucket, and what the metadata says about them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafscale import paths
from kafscale.clock import wall_clock_ms
from kafscale.errors import KafscaleError, Unavailable
from kafscale.intake.format import Entry
from kafscale.intake.listing import Listing, Span
from kafscale.metadata.interface import MetadataStore
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.v1.metadata_pb2 import IntakeRegister, PartitionState
from services.storage.intake.chain import Chain, DamagedChain
from services.storage.intake.known import runs_with_intakes

Key = tuple[bytes, int]
_ATTEMPTS = 20


class NoIntake(KafscaleError):
    """The run has no intake."""


class State(StrEnum):
    """The state of an intake. Without metadata, an intake is open until it is sealed."""

    LIVE = "live"
    ENDED = "ended"
    OPEN = "open"
    SEALED = "sealed"
    REMOVED = "removed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Intake:
    """The intake of a run.

    ``partitions``: how many states of partitions name the run, -1 without metadata. ``span``: the objects that count
    and are needed. ``objects`` and ``size`` are those of all record objects. ``oldest_ms``: when the first object of
    the span was begun, -1 if there is none. ``fault`` says what is damaged.
    """

    run_id: str
    state: State
    partitions: int
    span: Span
    objects: int
    size: int
    oldest_ms: int
    fault: str


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a partition in an intake, of one epoch: offsets ``start`` up to ``end``, exclusive.

    ``size``: of their batches in bytes. ``not_in_segments``: the number of offsets from the end of the segments on, -1
    if that is unknown.
    """

    topic: str
    partition: int
    epoch: int
    start: int
    end: int
    size: int
    not_in_segments: int


@dataclass(slots=True)
class _Metadata:
    """What the metadata says about intakes.

    ``registers`` has those of runs that may have intakes. ``live`` has the ids of registered runs. ``named`` counts
    the states that name a run. ``ends`` has the offsets at which segments end, by topic id and partition.
    """

    registers: dict[str, IntakeRegister] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    named: Counter[str] = field(default_factory=Counter)
    ends: dict[Key, int] = field(default_factory=dict)


class Intakes:
    """The intakes of a namespace. ``metadata`` is None to use only the bucket. Methods raise Unavailable, Refused."""

    def __init__(self, objects: ObjectStore, metadata: MetadataStore | None, namespace: str) -> None:
        self._objects = objects
        self._metadata = metadata
        self._namespace = namespace

    async def all(self) -> list[Intake]:
        """Return all intakes, sorted by run id."""
        # A register is written before the first object, and removed after the mark that the chain is removed was put.
        async with aclosing(runs_with_intakes(self._objects, self._namespace)) as run_ids:
            runs = {run_id async for run_id in run_ids}
        metadata = await self._read_metadata()
        if metadata is not None:
            runs |= metadata.registers.keys()
        return [await self._intake(run_id, metadata) for run_id in sorted(runs)]

    async def one(self, run_id: str) -> tuple[Intake, list[Records]]:
        """Read and verify the intake of a run, and return it with the records that count. Raises NoIntake."""
        if paths.parse_intake_key(paths.intake_key(self._namespace, run_id, 1)) is None:
            raise NoIntake(f"{run_id!r} is not the id of a run")
        metadata = await self._read_metadata()
        if not await self._objects.list_from(paths.intake_prefix(self._namespace, run_id), "", 1) and (
            metadata is None or run_id not in metadata.registers
        ):
            raise NoIntake(f"run {run_id} has no intake")
        intake = await self._intake(run_id, metadata)
        try:
            entries = await self._entries(run_id)
        except DamagedChain as error:
            return replace(intake, fault=intake.fault or str(error)), []
        return intake, list(_records(entries, metadata.ends if metadata else {}))

    async def _read_metadata(self) -> _Metadata | None:
        if self._metadata is None:
            return None
        found, namespace = _Metadata(), self._namespace
        for item in (await self._metadata.read_prefix(paths.intake_registers_prefix(namespace))).items:
            register = IntakeRegister.FromString(item.value)
            if register.intake:
                found.registers[paths.run_of_intake_register(namespace, item.key)] = register
        members = paths.members_prefix(namespace, "storage")
        found.live = {item.key.removeprefix(members) for item in (await self._metadata.read_prefix(members)).items}
        states = paths.partition_states_prefix(namespace)
        for item in (await self._metadata.read_prefix(states)).items:
            named, state = paths.parse_partition(states, item.key), PartitionState.FromString(item.value)
            if named is not None:
                found.named.update({state.owner, state.tail.run_id} - {""})
                found.ends[state.topic_id, named[1]] = state.high_watermark
        return found

    async def _intake(self, run_id: str, metadata: _Metadata | None) -> Intake:
        chain = self._chain(run_id)
        for _ in range(_ATTEMPTS):
            listing, oldest_ms, fault = Listing({}, set(), 1), -1, ""
            try:
                listing = await chain.listing()
                if listing.span.start < listing.span.end:
                    oldest_ms = (await chain.header(listing.span.start)).created_ms
                if listing.has_gap:
                    await chain.checked_span()
            except ObjectNotFound:
                # The run has moved its checkpoint.
                continue
            except DamagedChain as error:
                fault = str(error)
            return Intake(
                run_id,
                _state(run_id, listing, metadata),
                metadata.named[run_id] if metadata else -1,
                listing.span,
                len(listing.records),
                sum(listing.records.values()),
                oldest_ms,
                fault,
            )
        raise Unavailable(f"the intake of run {run_id} keeps changing")

    async def _entries(self, run_id: str) -> list[Entry]:
        """Read the objects that count and are needed, and return their entries. Raises DamagedChain."""
        chain = self._chain(run_id)
        for _ in range(_ATTEMPTS):
            try:
                return [entry async for one in chain.read(await chain.span()) for entry in one.entries]
            except ObjectNotFound:
                # The run has moved its checkpoint.
                continue
        raise Unavailable(f"the intake of run {run_id} keeps changing")

    def _chain(self, run_id: str) -> Chain:
        return Chain(self._objects, self._namespace, run_id, now_ms=wall_clock_ms)


def _state(run_id: str, listing: Listing, metadata: _Metadata | None) -> State:
    if listing.removed:
        return State.REMOVED
    register = metadata.registers.get(run_id) if metadata else None
    if metadata is not None and register is None:
        return State.UNKNOWN
    if listing.sealed or (register is not None and register.sealed):
        return State.SEALED
    if metadata is None:
        return State.OPEN
    return State.LIVE if run_id in metadata.live else State.ENDED


def _records(entries: Iterable[Entry], ends: Mapping[Key, int]) -> Iterator[Records]:
    """Yield the records of each partition and epoch. Entries that were put twice count once."""
    logs: dict[tuple[str, int, int, bytes], dict[tuple[int, int], int]] = {}
    for entry in entries:
        ref = entry.partition
        sizes = logs.setdefault((ref.topic, ref.partition, entry.epoch, ref.topic_id), {})
        sizes[entry.base_offset, entry.next_offset] = entry.size
    for (topic, partition, epoch, topic_id), sizes in sorted(logs.items()):
        start, end = min(base for base, _ in sizes), max(following for _, following in sizes)
        in_segments = ends.get((topic_id, partition))
        above = -1 if in_segments is None else max(0, end - max(start, in_segments))
        yield Records(topic, partition, epoch, start, end, sum(sizes.values()), above)
