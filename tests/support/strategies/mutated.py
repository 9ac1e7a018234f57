"""Damaged variants of byte strings."""

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, sources: list[bytes]) -> bytes:
    """Generate one of ``sources`` with changed bytes, removed or copied ranges, or a truncated or repeated end."""
    data = bytearray(draw(st.sampled_from(sources)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["change", "change", "change", "number", "cut", "copy", "truncate", "insert"]))
        if kind == "change" and at < len(data):
            data[at] ^= draw(st.integers(1, 255))
        elif kind == "number":
            number = draw(
                st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4), b"\xfe\xff\xff\xff\x0f"])
            )
            data[at : at + len(number)] = number
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        elif kind == "copy":
            start = draw(st.integers(0, len(data)))
            data[at:at] = data[start : start + draw(st.integers(1, 40))]
        elif kind == "truncate":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=20))
    return bytes(data)
