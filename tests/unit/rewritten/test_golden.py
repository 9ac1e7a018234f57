"""Golden files of rewritten objects, their indexes and roots."""

from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.object import parse_object, verify_object
from kafscale.rewritten.root import parse_root
from kafscale.rewritten.verify import verify_rewritten_index
from tests.support.samples import rewritten


def test_the_golden_files_are_written_byte_for_byte() -> None:
    built = rewritten.golden_object()
    assert built.data == rewritten.OBJECT.read_bytes()
    assert built.index == rewritten.INDEX.read_bytes()
    assert rewritten.golden_root() == rewritten.ROOT.read_bytes()


def test_the_golden_files_are_read() -> None:
    root = parse_root(rewritten.ROOT.read_bytes())
    data = rewritten.OBJECT.read_bytes()
    entry = root.entries[0].found
    assert entry is not None
    assert verify_object(rewritten.KEY, data, check_batches=True) == entry
    assert list(parse_object(entry, data).offsets) == [1002, 1007, 1030]
    index = parse_rewritten_index(rewritten.INDEX.read_bytes())
    assert list(index.offsets) == [1002, 1030, 1100]
    assert verify_rewritten_index(index, parse_object(entry, data)) == []


def test_an_index_of_another_object_is_noticed() -> None:
    entry, data = rewritten.golden_object().entry, rewritten.OBJECT.read_bytes()
    parsed = parse_object(entry, data)
    index = parse_rewritten_index(rewritten.INDEX.read_bytes())
    index.offsets[1] += 1
    index.crcs[0] ^= 1
    faults = verify_rewritten_index(index, parsed)
    assert [fault.split(" ")[0] for fault in faults] == ["checksum", "the"]
    index.offsets[-1] -= 1
    assert len(verify_rewritten_index(index, parsed)) == 1
