"""Intake objects: the golden files, and damage at every byte."""

import pytest

from kafscale.intake.format import CorruptIntake, Kind, parse
from kafscale.records.record import read_records
from tests.support.samples import intake
from tests.support.samples.segments import EPOCH


def test_the_golden_objects_are_written_byte_for_byte() -> None:
    assert intake.golden_object() == intake.RECORDS.read_bytes()
    assert intake.golden_seal() == intake.SEAL.read_bytes()


def test_a_parsed_object_has_the_entries_that_were_written() -> None:
    found = parse(intake.RECORDS.read_bytes())

    assert (found.header.kind, found.header.number, found.header.checkpoint) == (Kind.RECORDS, 17, 12)
    assert found.run_id == intake.RUN
    for entry, written in zip(found.entries, intake.entries(), strict=True):
        assert (entry.partition, entry.epoch, entry.size) == (written.partition, EPOCH, written.size)
        assert (entry.base_offset, entry.next_offset) == (written.base_offset, written.next_offset)
        assert b"".join(entry.batches) == b"".join(written.batches)
        assert list(entry.sinks) == list(written.sinks)
    (batches,) = found.entries[0].batches
    assert [record.value for record in read_records(batches, max_bytes=1000)] == [b"one"]


def test_a_seal_has_no_entries() -> None:
    found = parse(intake.SEAL.read_bytes())
    assert (found.header.kind, found.header.number, found.entries) == (Kind.SEAL, 18, [])


def test_every_damaged_byte_is_detected() -> None:
    for data in (intake.RECORDS.read_bytes(), intake.SEAL.read_bytes()):
        for at, right in enumerate(data):
            for wrong in (right ^ 1, right ^ 0x80, 0, 255):
                if wrong != right:
                    with pytest.raises(CorruptIntake):
                        parse(data[:at] + bytes([wrong]) + data[at + 1 :])
        for end in range(len(data)):
            with pytest.raises(CorruptIntake):
                parse(data[:end])
