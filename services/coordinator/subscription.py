"""The subscribed topics in a consumer's metadata, the first part of all versions of the consumer protocol."""

from struct import Struct, error

from kafscale.errors import CorruptData

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the subscribed topics. Raises CorruptData if ``metadata`` is not that of a consumer."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            raise CorruptData(f"invalid subscription: version {version}, {count} topics")
        topics = set()
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                raise CorruptData(f"invalid subscription: a topic of {length} bytes")
            topics.add(metadata[position : position + length].decode())
            position += length
    except (error, UnicodeDecodeError) as problem:
        raise CorruptData(f"invalid subscription: {problem}") from problem
    return frozenset(topics)
