"""Keys of rewritten objects and roots are built and parsed, and other keys are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale import paths
from kafscale.objects.keys import check_key
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key

NAMESPACES = st.sampled_from(["n", "a/b", "production"])
TOPICS = st.sampled_from(["orders", "roots", "0", "a.b"])
PARTITIONS, EPOCHS, ATTEMPTS = st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1), st.integers(1, 2**32 - 1)
OFFSETS = st.integers(0, 2**63 - 2)

OBJECTS = st.builds(
    lambda base, size, **fields: RewrittenKey(base_offset=base, next_offset=min(base + size, 2**63 - 1), **fields),
    OFFSETS,
    st.integers(1, 2**40),
    namespace=NAMESPACES,
    topic=TOPICS,
    partition=PARTITIONS,
    epoch=EPOCHS,
    attempt=ATTEMPTS,
    kind=st.sampled_from(["kfs", "index"]),
)
ROOTS = st.builds(RootKey, NAMESPACES, TOPICS, PARTITIONS, st.integers(1, 2**63 - 1), EPOCHS, ATTEMPTS)


def test_keys_are_those_of_the_storage_format() -> None:
    assert str(RewrittenKey("a/b", "orders", 12, 7, 50_000, 3, 41)) == (
        "a/b/~rewritten/orders/12/00000000000000000007-00000000000000050000-3-41.kfs"
    )
    assert str(RootKey("n", "orders", 0, 9, 3, 41)) == "n/~rewritten/orders/0/roots/00000000000000000009-3-41"


@given(OBJECTS | ROOTS)
def test_what_is_built_is_parsed_and_is_no_other_key(key: RewrittenKey | RootKey) -> None:
    check_key(str(key))
    assert parse_rewritten_key(str(key)) == key
    assert paths.parse_segment_key(str(key)) is None
    assert paths.parse_catalog_page_key(str(key)) is None


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000007-00000000000000000007-1-1.kfs",
        "00000000000000000007-00000000000000000008-0-1.kfs",
        "00000000000000000007-00000000000000000008-1-0.kfs",
        "00000000000000000007-00000000000000000008-01-1.kfs",
        "00000000000000000007-00000000000000000008-1-1",
        "00000000000000000007-00000000000000000008-1-1.kfs.tmp",
        "00000000000000000007-09223372036854775808-1-1.kfs",
        "00000000000000000007-00000000000000000008-2147483648-1.kfs",
        "00000000000000000007-1-1.kfs",
        "roots/00000000000000000000-1-1",
        "roots/00000000000000000001-1-1.kfs",
        "roots/00000000000000000001-1",
        "../0/00000000000000000007-00000000000000000008-1-1.kfs",
    ],
)
def test_other_keys_are_not_parsed(name: str) -> None:
    assert parse_rewritten_key("n/~rewritten/orders/0/" + name) is None
    assert parse_rewritten_key("n/~catalog/orders/0/" + name) is None
