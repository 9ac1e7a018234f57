"""Find the intakes in the bucket, and those that the metadata does not know, which shows that it was rolled back."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from kafscale import paths
from kafscale.metadata.interface import MetadataStore
from kafscale.objects.interface import ObjectNotFound, ObjectStore


async def runs_with_intakes(objects: ObjectStore, namespace: str) -> AsyncGenerator[str, None]:
    """Yield the ids of all runs that have intake objects, by one short listing for each. Raises Unavailable."""
    prefix, after = paths.intakes_prefix(namespace), ""
    while page := await objects.list_from(prefix, after, 1):
        run_id = page[0].key.removeprefix(prefix).split("/")[0]
        # "~" sorts above all names below a run's prefix.
        after = f"{paths.intake_prefix(namespace, run_id)}~"
        yield run_id


async def unknown_intake(objects: ObjectStore, metadata: MetadataStore, namespace: str) -> str:
    """Return a run that has intake objects, but no register and no mark that its intake was removed; "" if none has.

    A register is written before the first object, and deleted after the mark was put. Raises Unavailable, Refused.
    """
    async with aclosing(runs_with_intakes(objects, namespace)) as run_ids:
        async for run_id in run_ids:
            if await metadata.get(paths.intake_register_key(namespace, run_id)) is not None:
                continue
            try:
                await objects.head(str(paths.IntakeKey(namespace, run_id, None)))
            except ObjectNotFound:
                # All may have been removed since the listing.
                if await objects.list_from(paths.intake_prefix(namespace, run_id), limit=1):
                    return run_id
    return ""
