"""Storing what is derived from other objects: whoever derives it gets the same bytes."""

from kafscale.objects.interface import Body, ObjectStore, PreconditionFailed


async def put_derived(store: ObjectStore, key: str, body: Body) -> None:
    """Create the object; equal bytes there already are as good, and others are replaced: they are damaged or older.

    Raises PreconditionFailed and ObjectNotFound when others write or delete it at the same time, Unavailable, Refused.
    """
    try:
        await store.put_if_absent(key, body)
    except PreconditionFailed:
        there = await store.get(key)
        if there.body != body:
            await store.replace_if_match(key, body, there.etag)
