"""Stores objects that are derived from other objects. Every process derives the same bytes."""

from kafscale.objects.interface import Body, ObjectStore, PreconditionFailed


async def put_derived(store: ObjectStore, key: str, body: Body) -> None:
    """Create the object, or replace it if it exists with other bytes, which are then damaged or outdated.

    Raises PreconditionFailed and ObjectNotFound if it is written or deleted concurrently; Unavailable, Refused.
    """
    try:
        await store.put_if_absent(key, body)
    except PreconditionFailed:
        there = await store.get(key)
        if there.body != body:
            await store.replace_if_match(key, body, there.etag)
