"""Header blocks of HTTP/2: the RFC's examples, blocks of gRPC servers, and invalid blocks."""

import pytest

from kafscale_spark.hpack import BadHeaders, decoded, encoded


def test_decoding_reverses_encoding() -> None:
    headers = {"grpc-status": "13", "grpc-message": "a%20b", "x": ""}
    # Sizes around the bounds of one, two and three bytes for a length; host names have up to 253 characters.
    headers |= {f"size-{size}": "a" * size for size in (126, 127, 253, 254, 255, 20_000)}
    assert decoded(encoded(headers.items())) == headers


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        # RFC 7541, C.6.1: names of the static table and Huffman-coded values, all with indexing.
        (
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            {":status": "302"},
        ),
        # The last value of C.4.1 under a name without Huffman coding.
        ("000161" + "8cf1e3c2e5f23a6ba0ab90f4ff", {"a": "www.example.com"}),
        # Codes of 13 and 19 bits.
        ("000161" + "82ffef", {"a": "~"}),
        ("000161" + "83fffe1f", {"a": "\\"}),
        # A table size of 0, then :status 200, and a name of the static table.
        ("20" + "88" + "5f" + "0161", {":status": "200"}),
        # Never indexed, with a size that needs a second byte.
        ("10" + "0161" + "7f01" + "62" * 128, {"a": "b" * 128}),
        ("", {}),
    ],
)
def test_blocks_of_all_kinds_are_decoded(block: str, expected: dict[str, str]) -> None:
    assert decoded(bytes.fromhex(block)) == expected


@pytest.mark.parametrize(
    "block",
    [
        "be",  # an entry of the empty dynamic table
        "7e0161",  # a name from it
        "00",  # no name
        "000561",  # a truncated name
        "000161",  # no value
        "0001610262",  # a truncated value
        "007fffffffffff7f",  # an endless number
        "000161" + "8100",  # a Huffman-coded text that ends within a symbol, and not with ones
        "000161" + "81fe",  # the start of a symbol that no text has
    ],
)
def test_invalid_blocks_are_refused(block: str) -> None:
    with pytest.raises(BadHeaders):
        decoded(bytes.fromhex(block))
