"""Puts of objects that nobody else writes with other bytes, or that replace what others wrote."""

from kafscale.objects.interface import Body, Object, ObjectStore, PreconditionFailed, whole


async def put_own(store: ObjectStore, key: str, body: Body, *, send_seconds: float = 0.0) -> Object | None:
    """Create the object. Return None if it is stored, also by an earlier put of ours, else the other object there.

    ``send_seconds``: see `ObjectStore.put_if_absent`.

    Raises ObjectNotFound if the other object was deleted meanwhile; Unavailable, Refused.
    """
    try:
        await store.put_if_absent(key, body, send_seconds=send_seconds)
    except PreconditionFailed:
        there = await store.get(key)
        return None if there.body == whole(body) else there
    return None


async def put_derived(store: ObjectStore, key: str, body: Body) -> None:
    """Store an object that is derived from other objects. Other bytes at the key are damaged or outdated.

    Raises PreconditionFailed and ObjectNotFound if it is written or deleted concurrently; Unavailable, Refused.
    """
    there = await put_own(store, key, body)
    if there is not None:
        await store.replace_if_match(key, body, there.etag)
