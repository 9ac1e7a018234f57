"""The page size of reads from etcd if values are large."""

from typing import Any, cast

import pytest

from kafscale.errors import Refused
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd import EtcdMetadataStore
from kafscale.metadata.etcd_client import EtcdClient
from kafscale.metadata.etcd_errors import ReplyTooLarge

KEYS = [b"large/%04d" % number for number in range(300)]


class _Client:
    """An etcd whose replies for ``large/`` have a limited number of keys."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limits: list[int] = []

    async def call(self, _: Any, request: pb.RangeRequest, *, repeatable: bool) -> pb.RangeResponse:
        assert repeatable
        self.limits.append(request.limit)
        found = [key for key in KEYS if request.key <= key < request.range_end]
        page = found[: request.limit]
        if len(page) > self.most:
            raise ReplyTooLarge("larger than max")
        kvs = [pb.KeyValue(key=key, mod_revision=1, create_revision=1) for key in page]
        return pb.RangeResponse(header=pb.ResponseHeader(revision=1), kvs=kvs, more=len(page) < len(found))


def _store(client: _Client) -> EtcdMetadataStore:
    return EtcdMetadataStore(cast(EtcdClient, client))


async def test_a_listing_continues_with_the_page_size_that_fitted_and_the_next_one_starts_with_full_pages() -> None:
    client = _Client(most=100)
    store = _store(client)
    snapshot = await store.read_prefix("large/")
    assert [item.key.encode() for item in snapshot.items] == KEYS
    assert client.limits == [512, 128, *[32] * 10]
    client.limits.clear()
    assert (await store.read_prefix("other/")).items == ()
    client.most = 1000
    assert len((await store.read_prefix("large/")).items) == len(KEYS)
    assert client.limits == [512, 512]


async def test_pages_that_are_requested_one_by_one_also_keep_the_size_that_fitted() -> None:
    client = _Client(most=150)
    store = _store(client)
    first = await store.read_page("large/")
    second = await store.read_page("large/", after=first.items[-1].key, revision=first.revision)
    assert client.limits == [512, 128, 128]
    assert [item.key.encode() for item in (*first.items, *second.items)] == KEYS[:256]


async def test_abandoned_listings_are_not_remembered_forever() -> None:
    store = _store(_Client(most=-1))
    for number in range(100):
        with pytest.raises(Refused, match="values exceed etcd's default size limit"):
            await store.read_page(f"{number}/")
    assert len(store._limits) == 64
