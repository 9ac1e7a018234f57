"""Damaged variants of messages. The same random numbers give the same variants."""

from collections.abc import Sequence
from random import Random

_NUMBERS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x0f\xff\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    # Varints: the largest of 32 and of 64 bits, one that never ends, and small ones.
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff" * 12,
    b"\x80\x80\x80\x00",
    b"\xff\x7f",
    b"\x00",
    b"\x01",
)
_TEXTS = (b"\x00", b"\n", b"\x1b[2J", b"../", b"/", b"%00", b"\xc3\x28", b"\xed\xa0\x80", "\u202e".encode(), b"\r\n")
_LONGEST_COPY = 64
_MOST_REPEATS = 2000
_MOST_CHANGES = 4


def mutated(random: Random, source: bytes, *, most: int = 1 << 20) -> bytes:
    """Return ``source`` with one to four changes, at most ``most`` bytes long."""
    data = bytearray(source)
    for _ in range(random.randint(1, _MOST_CHANGES)):
        _change(random, data)
    return bytes(data[:most])


def chosen(random: Random, sources: Sequence[bytes], *, most: int = 1 << 20) -> bytes:
    """Return one of ``sources``, mostly damaged, parts of two of them, or random bytes."""
    kind = random.random()
    if kind < 0.02:
        return random.randbytes(random.randint(0, 300))
    source = random.choice(sources)
    if kind < 0.3:
        return source[:most]
    if kind < 0.5:
        return _with_one_byte(random, source)[:most]
    if kind < 0.6:
        other = random.choice(sources)
        source = source[: random.randint(0, len(source))] + other[random.randint(0, len(other)) :]
    return mutated(random, source, most=most)


def _with_one_byte(random: Random, source: bytes) -> bytes:
    data = bytearray(source)
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randint(0, 255)))
    return bytes(data)


def _change(random: Random, data: bytearray) -> None:
    at = random.randint(0, len(data))
    match random.choice("bbbnnnxctirs"):
        case "b" if at < len(data):
            data[at] ^= random.randint(1, 255)
        case "n":
            number = random.choice(_NUMBERS)
            data[at : at + len(number)] = number
        case "x":
            del data[at : at + random.randint(1, _LONGEST_COPY)]
        case "c":
            start = random.randint(0, len(data))
            data[at:at] = data[start : start + random.randint(1, _LONGEST_COPY)]
        case "t":
            del data[at:]
        case "i":
            data[at:at] = random.randbytes(random.randint(1, 20))
        case "r":
            piece = data[at : at + random.randint(1, 16)]
            data[at:at] = piece * random.randint(1, _MOST_REPEATS)
        case "s":
            data[at:at] = random.choice(_TEXTS)
        case _:
            data.append(random.randint(0, 255))
