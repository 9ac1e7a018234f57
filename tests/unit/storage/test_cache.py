"""Read caches stay within their capacity and evict the least recently used value first."""

from services.storage.reading.cache import LruCache, SegmentId


def _id(base: int) -> SegmentId:
    return SegmentId(b"topic", 0, base, 1)


def test_a_cache_never_exceeds_its_capacity() -> None:
    cache: LruCache[bytes] = LruCache(100, len)
    for base in range(50):
        cache.put(_id(base), bytes(base % 40))
        assert cache.used_bytes == sum(base % 40 for base in range(50) if _id(base) in cache) <= 100
    assert _id(49) in cache
    assert _id(0) not in cache
    cache.put(_id(50), bytes(101))
    assert _id(50) not in cache
    cache.put(_id(51), bytes(100))
    assert (len(cache), cache.used_bytes) == (1, 100)


def test_the_least_recently_used_value_is_evicted_first() -> None:
    cache: LruCache[bytes] = LruCache(100, len)
    for base in (1, 2, 3):
        cache.put(_id(base), bytes(30))
    assert cache.get(_id(1)) is not None
    cache.put(_id(4), bytes(30))
    assert [base for base in (1, 2, 3, 4) if _id(base) in cache] == [1, 3, 4]


def test_a_replaced_value_counts_once() -> None:
    cache: LruCache[bytes] = LruCache(100, len)
    for size in (60, 30, 70):
        cache.put(_id(1), bytes(size))
        assert (len(cache), cache.used_bytes) == (1, size)
    cache.discard(_id(1))
    assert (len(cache), cache.used_bytes) == (0, 0)
