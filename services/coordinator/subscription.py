"""Topics in what a consumer tells its leader: the part that all versions of the consumer protocol begin with."""

from struct import Struct, error

from kafscale.errors import CorruptData

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics subscribed to. Raises CorruptData where it is no consumer's metadata."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            raise CorruptData(f"no subscription: version {version}, {count} topics")
        topics = set()
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                raise CorruptData(f"no subscription: a topic of {length} bytes")
            topics.add(metadata[position : position + length].decode())
            position += length
    except (error, UnicodeDecodeError) as problem:
        raise CorruptData(f"no subscription: {problem}") from problem
    return frozenset(topics)
