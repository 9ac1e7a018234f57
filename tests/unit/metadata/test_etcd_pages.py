"""How large the pages are in which keys are read from etcd, where values are large."""

from typing import Any, cast

import pytest

from kafscale.errors import Refused
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd import EtcdMetadataStore
from kafscale.metadata.etcd_client import EtcdClient
from kafscale.metadata.etcd_errors import ReplyTooLarge

KEYS = [b"large/%04d" % number for number in range(300)]


class _Client:
    """An etcd whose replies below ``large/`` hold so many keys at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[int] = []

    async def call(self, _: Any, request: pb.RangeRequest, *, repeatable: bool) -> pb.RangeResponse:
        assert repeatable
        self.asked.append(request.limit)
        found = [key for key in KEYS if request.key <= key < request.range_end]
        page = found[: request.limit]
        if len(page) > self.most:
            raise ReplyTooLarge("larger than max")
        kvs = [pb.KeyValue(key=key, mod_revision=1, create_revision=1) for key in page]
        return pb.RangeResponse(header=pb.ResponseHeader(revision=1), kvs=kvs, more=len(page) < len(found))


def _store(client: _Client) -> EtcdMetadataStore:
    return EtcdMetadataStore(cast(EtcdClient, client))


async def test_a_listing_goes_on_with_the_page_that_fitted_and_the_next_one_begins_with_large_ones() -> None:
    client = _Client(most=100)
    store = _store(client)
    snapshot = await store.read_prefix("large/")
    assert [item.key.encode() for item in snapshot.items] == KEYS
    assert client.asked == [512, 128, *[32] * 10]
    client.asked.clear()
    assert (await store.read_prefix("other/")).items == ()
    client.most = 1000
    assert len((await store.read_prefix("large/")).items) == len(KEYS)
    assert client.asked == [512, 512]


async def test_pages_that_a_caller_asks_for_one_by_one_go_on_as_well() -> None:
    client = _Client(most=150)
    store = _store(client)
    first = await store.read_page("large/")
    second = await store.read_page("large/", after=first.items[-1].key, revision=first.revision)
    assert client.asked == [512, 128, 128]
    assert [item.key.encode() for item in (*first.items, *second.items)] == KEYS[:256]


async def test_listings_that_are_given_up_are_not_remembered_for_ever() -> None:
    store = _store(_Client(most=-1))
    for number in range(100):
        with pytest.raises(Refused, match="values exceed etcd's default size limit"):
            await store.read_page(f"{number}/")
    assert len(store._limits) == 64
