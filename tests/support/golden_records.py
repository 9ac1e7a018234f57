"""The records in the golden files, as the clients sent them and as the tests expect them."""

from pathlib import Path

from kafscale.records.record import Record

HERE = Path(__file__).parents[1] / "golden" / "records"
T0 = 1_700_000_000_000

SMALL = (
    Record(0, T0, b"key-0", b"value-0"),
    Record(1, T0 + 1, None, b"null key"),
    Record(2, T0 + 2, b"null-value", None),
    Record(3, T0 + 3, b"empty-value", b""),
    Record(4, T0 + 1000, b"", b"empty key"),
    Record(
        5,
        T0 + 1001,
        b"headers",
        b"five of them",
        (
            ("trace", b"\x00\x01\xff"),
            ("nothing", None),
            ("empty", b""),
            ("trace", b"again"),
            ("schl\u00fcssel", b"utf-8"),
        ),
    ),
    Record(6, T0 - 86_400_000, b"a day older", b"than the record before it"),
    Record(7, T0 + 1002, None, b"compressible " * 40),
)

# More than one block in every codec's framing: Java's snappy uses blocks of 32 KiB, lz4 of 64 KiB.
LARGE = tuple(
    Record(number, T0 + number, b"large-%d" % number, b"".join(b"%d-%d," % (number, i % 50) for i in range(12_000)))
    for number in range(3)
)

RECORDS = {"small": SMALL, "large": LARGE}


def golden(name: str) -> bytes:
    """Return the record set in the golden file ``name``."""
    return (HERE / f"{name}.bin").read_bytes()


def without_headers(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return ``records`` without headers, as in magic 0 and 1. Magic 0 has no timestamps either."""
    return tuple(record._replace(headers=()) for record in records)
