"""Take-over of one partition, and the wait for its release.

Safety depends on the order: seal and read the intake of a dead owner, fence (one transaction that raises the epoch),
check the objects above the end of the segments, record the epoch in the history. Nothing is uploaded before the last
step is known to be applied. Segments above the end that the state names are never adopted, because they are not
committed; what the intake has from there on is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.intake.tail import Tail, TailContradicts
from kafscale.metadata.interface import Compacted, Event, Get, KeyValue, MetadataStore, Put, Unchanged
from kafscale.metadata.members import Members
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.metadata.topic_values import INTAKE_STATE_FORMAT, NEWEST_STATE_FORMAT
from kafscale.objects.interface import ObjectStore
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import EpochHistory, IntakeTail, PartitionState, Topic
from services.storage.intake.recovery import IntakeRecovery
from services.storage.intake.register import Register, RegisterMissing, StillMember
from services.storage.log.partition import (
    history_of,
    leader_offsets_of,
    settled,
    whole_history,
)
from services.storage.log.rewritten import RewrittenLog
from services.storage.owning.stored import contradiction, read_stored

_FORMATS = range(1, NEWEST_STATE_FORMAT + 1)
_ATTEMPTS = 8
_WATCH_PAUSE = 0.05
_RELEASE_PAUSE = 0.5
_LONGEST_RELEASE_PAUSE = 2.0


class NotAvailable(KafscaleError):
    """The partition cannot be served here now. ``status``: the reason; ``owner``: the run that may serve it."""

    def __init__(self, status: Status, detail: str, owner: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.owner = owner


class IntakeUnknown(NotAvailable):
    """The metadata does not know an intake that is in the bucket, so nothing may be taken over."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            Status.DAMAGED,
            f"the metadata was rolled back: it does not know the intake of run {run_id}. Rebuild it from the bucket",
        )


class StillOwned(NotAvailable):
    """Another live run owns the partition: its state has ``state_revision``, its member key revision ``seen_at``."""

    def __init__(self, owner: str, state_revision: int, seen_at: int) -> None:
        super().__init__(Status.NOT_OWNER, f"run {owner} owns the partition", owner)
        self.state_revision = state_revision
        self.seen_at = seen_at


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The state as written, its revision, and the settled history.

    ``unclean``: the former owner did not release the partition, or had requests in progress. ``leftovers``: objects at
    or above the end of the segments. ``tail``: durable records that are not in segments. ``rewritten``: the part of the
    log that was rewritten.
    """

    topic: Topic
    state: PartitionState
    state_revision: int
    history: list[tuple[int, int]]
    offline: str | None
    unclean: bool
    leftovers: list[paths.SegmentKey]
    tail: Tail
    rewritten: RewrittenLog | None
    leader_offsets: dict[int, int] = field(default_factory=dict)


class _Fenced(NamedTuple):
    """The state as written by this run, and what else was read with the state before it. See `TakenOver`."""

    topic: Topic
    state: PartitionState
    revision: int
    unclean: bool
    tail: Tail
    history: KeyValue | None


async def take_over(
    metadata: MetadataStore,
    objects: ObjectStore,
    *,
    namespace: str,
    register: Register,
    intakes: IntakeRecovery,
    ref: PartitionRef,
    fencing: Callable[[], None],
) -> TakenOver:
    """Become the owner of a live topic's partition. Raises NotAvailable, Unavailable.

    ``fencing`` is called before the state is written. From then on this run may be the owner, even if this raises.
    """
    fenced = await _fence(metadata, namespace=namespace, register=register, intakes=intakes, ref=ref, fencing=fencing)
    topic, state, revision, unclean, tail, history_kv = fenced
    stored = await read_stored(objects, namespace=namespace, ref=ref, state=state)
    leftovers = [key for key, _ in stored.above]
    offline = await contradiction(
        objects,
        stored,
        state=state,
        settled_epoch=_settled_epoch(history_kv, topic),
        floor=topic.epoch_floor,
    )
    if offline is not None:
        now = await metadata.get(paths.partition_state_key(namespace, ref.topic, ref.partition))
        if now is None or now.mod_revision != revision:
            # The objects are from a later owner.
            raise NotAvailable(Status.NOT_OWNER, "taken over by another run")
        return TakenOver(topic, state, revision, [], offline, unclean, leftovers, tail, stored.rewritten)
    history, leader_offsets = await _settle(
        metadata,
        history_kv,
        namespace=namespace,
        ref=ref,
        state=state,
        state_revision=revision,
        leader_offset=tail.end,
    )
    if stored.rewritten is not None:
        history = whole_history(stored.rewritten, history)
        leader_offsets |= leader_offsets_of(stored.rewritten.epochs)
    return TakenOver(topic, state, revision, history, None, unclean, leftovers, tail, stored.rewritten, leader_offsets)


async def _fence(
    metadata: MetadataStore,
    *,
    namespace: str,
    register: Register,
    intakes: IntakeRecovery,
    ref: PartitionRef,
    fencing: Callable[[], None],
) -> _Fenced:
    run_id = register.run_id
    topic_key = paths.topic_key(namespace, ref.topic)
    state_key = paths.partition_state_key(namespace, ref.topic, ref.partition)
    history_key = paths.epoch_history_key(namespace, ref.topic, ref.partition)
    for _ in range(_ATTEMPTS):
        reads = (await metadata.txn((), [Get(topic_key), Get(state_key), Get(history_key)])).reads
        topic_kv, state_kv, history_kv = reads
        topic = checked_topic(topic_kv, ref)
        before = PartitionState.FromString(state_kv.value) if state_kv else _first_state(topic)
        if before.topic_id != topic.id:
            raise NotAvailable(Status.UNAVAILABLE, "the state of a deleted topic still exists")
        if before.format not in _FORMATS:
            raise NotAvailable(
                Status.UNAVAILABLE, f"its state has format {before.format}, this release supports {_FORMATS[-1]}"
            )
        compares = [
            Unchanged(topic_key, topic_kv.mod_revision if topic_kv else 0),
            Unchanged(state_key, state_kv.mod_revision if state_kv else 0),
            # The former owner may write its history after its state.
            Unchanged(history_key, history_kv.mod_revision if history_kv else 0),
            Unchanged(register.key, register.revision),
        ]
        if before.owner and before.owner != run_id:
            member_key = paths.member_key(namespace, "storage", before.owner)
            member = await metadata.get(member_key)
            if state_kv is not None and member is not None:
                raise StillOwned(before.owner, state_kv.mod_revision, member.mod_revision)
            compares.append(Unchanged(member_key, 0))
        tail = await _tail(intakes, register, before, ref)
        after = PartitionState()
        after.CopyFrom(before)
        after.owner, after.epoch, after.unclean = run_id, before.epoch + 1, False
        after.format = max(before.format, register.state_format)
        if tail.end > before.high_watermark and not before.HasField("tail"):
            after.tail.CopyFrom(IntakeTail(run_id=before.owner, epoch=before.epoch, end=tail.end))
        fencing()
        try:
            result = await metadata.txn(compares, [Put(state_key, after.SerializeToString())])
        except Unavailable:
            # It may have been applied. Then the next read sees this run as the owner and raises the epoch once more.
            continue
        if result.succeeded:
            return _Fenced(topic, after, result.revision, before.unclean or bool(before.owner), tail, history_kv)
    raise NotAvailable(Status.UNAVAILABLE, "the partition's state keeps changing or the metadata store does not answer")


async def _tail(intakes: IntakeRecovery, register: Register, state: PartitionState, ref: PartitionRef) -> Tail:
    """Return the durable records above the segments of ``state``. Raises NotAvailable, Unavailable.

    A dead owner's intake is sealed first. A state with a tail has an owner that did not append anything in its epoch.
    """
    key, end = (ref.topic_id, ref.partition), state.high_watermark
    if state.format < INTAKE_STATE_FORMAT:
        return Tail([], end, [])
    former = state.tail if state.HasField("tail") else None
    # A run may get back what it released, with its own tail.
    is_own = former is not None and former.run_id == state.owner
    epoch = former.epoch if former is not None and is_own else state.epoch
    try:
        own = Tail([], end, [])
        if state.owner == register.run_id:
            await intakes.quiet(key)
            own = await intakes.of_released(state.owner, key, epoch=epoch, start=end)
        elif state.owner:
            own = await intakes.of_dead_owner(state.owner, key, epoch=epoch, start=end)
        if former is None:
            return own
        if own.end > end and not is_own:
            raise TailContradicts(
                f"run {state.owner} appended records before it had recovered those of its predecessor"
            )
        found = own if is_own else await intakes.of_released(former.run_id, key, epoch=former.epoch, start=end)
        if found.end < former.end:
            raise TailContradicts(f"the intake of run {former.run_id} ends at {found.end}, the state at {former.end}")
        return found
    except StillMember as error:
        raise NotAvailable(Status.NOT_OWNER, str(error), state.owner) from error
    except (CorruptData, RegisterMissing) as error:
        raise NotAvailable(Status.DAMAGED, str(error)) from error


def checked_topic(topic_kv: KeyValue | None, ref: PartitionRef) -> Topic:
    """Return the stored topic. Raises NotAvailable unless it is live and has the partition."""
    if topic_kv is None:
        raise NotAvailable(Status.UNKNOWN_TOPIC, f"no topic {ref.topic}")
    topic = Topic.FromString(topic_kv.value)
    if topic.id != ref.topic_id:
        raise NotAvailable(Status.TOPIC_ID_MISMATCH, f"topic {ref.topic} has a different id")
    if topic.state != Topic.LIVE or not 0 <= ref.partition < topic.partitions:
        raise NotAvailable(Status.UNKNOWN_TOPIC, f"no partition {ref.topic}-{ref.partition}")
    return topic


def _first_state(topic: Topic) -> PartitionState:
    return PartitionState(format=1, topic_id=topic.id, epoch=topic.epoch_floor)


def _settled_epoch(history: KeyValue | None, topic: Topic) -> int:
    """Return the last epoch that may have stored objects, because an epoch stores none before it is settled."""
    entries = history_of(EpochHistory.FromString(history.value)) if history else []
    return entries[-1][0] if entries else topic.epoch_floor


async def _settle(
    metadata: MetadataStore,
    kv: KeyValue | None,
    *,
    namespace: str,
    ref: PartitionRef,
    state: PartitionState,
    state_revision: int,
    leader_offset: int,
) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Record the epoch in the history, of which ``kv`` was read last. Return the history and its leader offsets."""
    state_key = paths.partition_state_key(namespace, ref.topic, ref.partition)
    history_key = paths.epoch_history_key(namespace, ref.topic, ref.partition)
    for attempt in range(_ATTEMPTS):
        try:
            if attempt:
                kv = await metadata.get(history_key)
            stored = EpochHistory.FromString(kv.value) if kv else EpochHistory()
            before, leader_offsets = history_of(stored), leader_offsets_of(stored.entries)
            # The root has the epochs that ended in the rewritten log.
            start = max(state.log_start, state.root.through)
            after = settled(before, epoch=state.epoch, first_offset=state.high_watermark, log_start=start)
            if after == before:
                return after, leader_offsets
            if leader_offset > state.high_watermark:
                leader_offsets[state.epoch] = leader_offset
            value = EpochHistory(
                format=1,
                entries=[
                    EpochHistory.Entry(epoch=epoch, first_offset=first, leader_offset=leader_offsets.get(epoch, 0))
                    for epoch, first in after
                ],
                topic_id=state.topic_id,
                owner=state.owner,
            )
            result = await metadata.txn(
                [Unchanged(state_key, state_revision), Unchanged(history_key, kv.mod_revision if kv else 0)],
                [Put(history_key, value.SerializeToString())],
                [Get(state_key)],
            )
        except Unavailable:
            continue
        if result.succeeded:
            return after, leader_offsets
        now = result.reads[0]
        if now is None or now.mod_revision != state_revision:
            raise NotAvailable(Status.NOT_OWNER, "taken over by another run")
    raise NotAvailable(Status.UNAVAILABLE, "the metadata store does not answer")


async def wait_for_release(metadata: MetadataStore, members: Members, held: StillOwned, *, state_key: str) -> None:
    """Wait until a watch shows that the owner released the partition or left. May return early."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_gone, members, held, nursery.cancel_scope)
            async with metadata.watch(state_key, held.state_revision + 1) as watch:
                while not any(_releases(event, state_key, held.owner) for event in await watch.next()):
                    pass
            nursery.cancel_scope.cancel()
    except* (*STORE_FAILURES, Compacted):
        # The caller reads the state again.
        await trio.sleep(_WATCH_PAUSE)


async def release_abandoned(metadata: MetadataStore, *, namespace: str, run_id: str, ref: PartitionRef) -> None:
    """Release a partition of a deleted topic if this run's take-over got as far as fencing it."""
    key = paths.partition_state_key(namespace, ref.topic, ref.partition)
    outage = Outage("release not answered", first=_RELEASE_PAUSE, longest=_LONGEST_RELEASE_PAUSE)
    while True:
        try:
            kv = await metadata.get(key)
            state = PartitionState.FromString(kv.value) if kv else PartitionState()
            if kv is None or state.topic_id != ref.topic_id or state.owner != run_id:
                return
            # Requests of the former owner may still be in progress.
            state.owner, state.unclean = "", True
            done = await metadata.txn([Unchanged(key, kv.mod_revision)], [Put(key, state.SerializeToString())])
            if done.succeeded:
                return
        except STORE_FAILURES as error:
            await outage.pause(error, partition=f"{ref.topic}-{ref.partition}")


async def _gone(members: Members, held: StillOwned, scope: trio.CancelScope) -> None:
    view = members.view
    # A view older than the member key may not have it yet.
    while view.revision < held.seen_at or held.owner in view.by_run_id:
        view = await members.wait_change(view)
    scope.cancel()


def _releases(event: Event, state_key: str, owner: str) -> bool:
    return event.key == state_key and (
        event.value is None or PartitionState.FromString(event.value.value).owner != owner
    )
