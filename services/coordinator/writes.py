"""The pending writes of one group, in order, and how they are combined into transactions."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from kafscale.metadata.interface import MAX_OPERATIONS, MAX_REQUEST_BYTES, Delete, Put
from services.coordinator.effects import Effects, Record, Reply

# Reserved in a transaction for its compares and the framing of its operations.
_OVERHEAD_BYTES = 200_000
_FRAME_BYTES = 32
_ENTRY_BYTES = 1_000  # the weight of an operation without writes

Write = Put | Delete


@dataclass(slots=True)
class Entry:
    """One operation's effects. ``alone``: it writes a header, and later operations must not be written before it."""

    stage: list[Write]
    commit: list[Write]
    sweep: list[str]
    replies: list[Reply]
    alone: bool
    weight: int = field(init=False)

    def __post_init__(self) -> None:
        self.weight = _ENTRY_BYTES + sum(map(_size, (*self.stage, *self.commit)))

    @classmethod
    def of(cls, effects: Effects, header: str) -> "Entry":
        commit = _writes(effects.commit)
        alone = bool(effects.stage) or any(write.key == header for write in commit)
        return cls(_writes(effects.stage), commit, effects.sweep, effects.replies, alone)


def together(queue: deque[Entry]) -> list[Entry]:
    """Return the first operation and the following ones whose offsets fit into the same transaction."""
    first = queue[0]
    found, sizes = [first], {write.key: _size(write) for write in first.commit}
    size = sum(sizes.values())
    for entry in islice(queue, 1, None):
        for write in entry.commit:
            # Only the last write to each key is stored.
            size += _size(write) - sizes.get(write.key, 0)
            sizes[write.key] = _size(write)
        if entry.alone or len(sizes) > MAX_OPERATIONS or size > MAX_REQUEST_BYTES - _OVERHEAD_BYTES:
            break
        found.append(entry)
    return found


def in_order(batch: list[Entry]) -> Iterator[list[Write]]:
    """Yield the transactions that store a batch: one if it fits, else staged values before what refers to them."""
    stage = [write for entry in batch for write in entry.stage]
    commit = [write for entry in batch for write in entry.commit]
    whole = list(transactions([*stage, *commit]))
    yield from whole if len(whole) == 1 else [*transactions(stage), *transactions(commit)]


def transactions(writes: Iterable[Write]) -> Iterator[list[Write]]:
    """Split writes, in order, into transactions of the largest size allowed. Only the last write to each key counts."""
    last = {write.key: write for write in writes}
    part: list[Write] = []
    size = 0
    for write in last.values():
        if part and (len(part) == MAX_OPERATIONS or size + _size(write) > MAX_REQUEST_BYTES - _OVERHEAD_BYTES):
            yield part
            part, size = [], 0
        part.append(write)
        size += _size(write)
    if part:
        yield part


def written_bytes(writes: Iterable[Write]) -> int:
    return sum(map(_size, writes))


def _writes(records: Iterable[Record]) -> list[Write]:
    return [
        Delete(record.key) if record.value is None else Put(record.key, record.value.SerializeToString())
        for record in records
    ]


def _size(write: Write) -> int:
    return len(write.key) + _FRAME_BYTES + (len(write.value) if isinstance(write, Put) else 0)
