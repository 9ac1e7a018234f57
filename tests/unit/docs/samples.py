"""The objects that docs/reference/storage-format.md shows as examples, as the product writes them."""

from kafscale.catalog.page import build_page, describe
from kafscale.intake.format import Entry, encode
from kafscale.objects.pack_records import record_head
from kafscale.records.record import Record, build_batch
from kafscale.rewritten.object import BuiltObject, ObjectBuilder
from kafscale.rewritten.root import Entry as RootEntry
from kafscale.rewritten.root import Root, build_root
from kafscale.segment.index import build_index
from kafscale.segment.writer import PREFIX_SIZE, build_segment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, SinkManifest
from kafscale_tools.recovery.backup_format import Item, encode_part
from services.storage.log.producers import ProducerTable, SentBatch, Sequenced

CREATED_MS = 1_700_000_000_000
EPOCH = 3
_SEAL = "production/~intake/4f1c2a9be07d/00000000000000000010"
ORDERS = PartitionRef(topic="orders", topic_id=bytes(range(16)), partition=0)

_BATCHES = [
    build_batch(
        [Record(1000, CREATED_MS, b"k", b"one", (("h", b"v"),)), Record(1001, CREATED_MS + 5, None, b"two")],
        base_offset=1000,
        leader_epoch=EPOCH,
        producer_id=4000,
        producer_epoch=0,
        base_sequence=0,
    ),
    build_batch([Record(1002, CREATED_MS + 9, b"k", None)], base_offset=1002, leader_epoch=EPOCH),
]
_BUILT = build_segment(
    [(batch[:PREFIX_SIZE], batch[PREFIX_SIZE:]) for batch in _BATCHES], epoch=EPOCH, created_ms=CREATED_MS + 20
)


def _rewritten() -> BuiltObject:
    builder = ObjectBuilder(1000, epoch=4, attempt=12, created_ms=CREATED_MS + 60_000)
    builder.add(_BATCHES[1])
    built = builder.finish(1005)
    assert built is not None
    return built


_REWRITTEN = _rewritten()


def _root() -> bytes:
    entries = [RootEntry(0, 1000, None), RootEntry(1000, 1005, _REWRITTEN.entry)]
    epochs = [EpochHistory.Entry(epoch=EPOCH, first_offset=0)]
    obsolete = ("production/orders/0/segment-00000000000000001000.kfs",)
    return build_root(Root(ORDERS.topic_id, 2, entries, epochs, first_dirty=1005, obsolete=obsolete))


def _producers() -> bytes:
    table = ProducerTable(10)
    table.add(Sequenced(4000, 0, SentBatch(0, 1, 1000, 1001)), CREATED_MS)
    return table.dump()


def _manifest() -> bytes:
    stage = SinkManifest.StagedObject(key="production/~stages/s/a", size=90, crc=0x01020304, batches=1)
    partition = SinkManifest.Partition(partition=ORDERS, stages=[stage])
    manifest = SinkManifest(format=1, sink="s", epoch=7, partitions=[partition])
    return manifest.SerializeToString(deterministic=True)


SAMPLES: dict[str, bytes] = {
    "segment": _BUILT.data,
    "index": build_index(_BUILT.offsets, _BUILT.positions, 2),
    "catalog page": build_page(ORDERS, EPOCH, [describe(_BUILT.data, _BUILT.positions, _BUILT.next_offset)]),
    "intake object": b"".join(
        encode(
            "production",
            "4f1c2a9be07d",
            number=9,
            checkpoint=7,
            created_ms=CREATED_MS + 20,
            entries=[Entry(ORDERS, EPOCH, 1002, 1003, [_BATCHES[1]])],
        )
    ),
    "pack": record_head(_SEAL, b"seal", CREATED_MS * 1_000_000, 1) + b"seal" + record_head(_SEAL, b"", 0, 1),
    "rewritten object": _REWRITTEN.data,
    "rewritten index": _REWRITTEN.index,
    "root": _root(),
    "producer snapshot": _producers(),
    "sink manifest": _manifest(),
    "backup part": encode_part([Item("cluster", b"\x08\x01"), Item("topics/orders", b"\x08\x01\x20\x01")]),
}


def dump(data: bytes) -> str:
    """As `hexdump -C` prints it."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        digits = " ".join(f"{byte:02x}" for byte in row)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {digits:<47}  |{text}|")
    return "\n".join(lines)
