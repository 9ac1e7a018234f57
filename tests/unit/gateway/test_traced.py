"""The traced batches that a group's commit passes."""

from services.gateway.owners.traced import TracedBatches

ONE, OTHER = (b"one-one-one-one-", 0), (b"one-one-one-one-", 1)


class _Counted(tuple[bytes, int]):
    """A partition that counts how often it is compared with another one."""

    compared = 0
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return super().__eq__(other)


def test_a_commit_passes_batches_below_it_once() -> None:
    traced = TracedBatches()
    for key, base_offset in ((ONE, 20), (ONE, 0), (OTHER, 5), (ONE, 10)):
        traced.note(key, base_offset, f"{key[1]}/{base_offset}")
    assert traced.passed(ONE, 0) == []
    assert traced.passed(ONE, 11) == ["0/0", "0/10"]
    assert traced.passed(ONE, 11) == []
    assert traced.passed(OTHER, 6) == ["1/5"]
    assert traced.passed(ONE, 100) == ["0/20"]
    assert traced.passed(ONE, 100) == []


def test_the_oldest_traced_batches_are_forgotten() -> None:
    traced = TracedBatches()
    traced.note(OTHER, 0, "oldest")
    for base_offset in range(1000):
        # A batch that is noted again counts once.
        traced.note(ONE, base_offset, "former")
        traced.note(ONE, base_offset, f"{base_offset}")
    assert traced.passed(OTHER, 1) == []
    assert traced.passed(ONE, 1000) == [str(base_offset) for base_offset in range(1000)]


def test_a_commit_does_not_scan_batches_of_other_partitions() -> None:
    traced = TracedBatches()
    for partition in range(900):
        traced.note(_Counted((b"one-one-one-one-", partition)), 0, "place")
    traced.note(_Counted((b"one-one-one-one-", 900)), 0, "passed")
    _Counted.compared = 0
    assert traced.passed(_Counted((b"one-one-one-one-", 900)), 1) == ["passed"]
    assert _Counted.compared < 20
