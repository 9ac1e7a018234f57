"""The chain of intake objects of one storage run: find its end, seal it, and read it.

When run R has ended, or must end, another run seals its chain: it puts a seal at the first missing number. R cannot
overwrite a seal, and ends when it meets one. `kafscale.intake.listing` says which objects count.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.intake.format import HEADER_SIZE, CorruptIntake, IntakeHeader, IntakeObject, encode_seal, parse
from kafscale.intake.listing import Listing, Span
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, ObjectStore, PreconditionFailed

T = TypeVar("T")

_STOP_AHEAD = 64
"""A first seal is put this far above the first missing number, so that a run which is still putting stops there."""
_ATTEMPTS = 50
_READS = 4
"""Objects read at the same time, of up to 8 MiB."""


class DamagedChain(CorruptData):
    """An object that must be stored is missing or damaged."""


class Chain:
    """The chain of run ``run_id``, for those who read or end it. All methods raise Unavailable and Refused."""

    def __init__(self, objects: ObjectStore, namespace: str, run_id: str, *, now_ms: Callable[[], int]) -> None:
        self._objects = objects
        self._namespace = namespace
        self._run_id = run_id
        self._now_ms = now_ms

    async def listing(self) -> Listing:
        """List the chain, and read the newest checkpoint. Raises DamagedChain if that is unreadable."""
        prefix = paths.intake_prefix(self._namespace, self._run_id)
        for _ in range(_ATTEMPTS):
            listed: dict[int, int] = {}
            removed, after, full = False, "", True
            while full:
                page = await self._objects.list_from(prefix, after)
                full = len(page) == MAX_KEYS
                for info in page:
                    after, parsed = info.key, paths.parse_intake_key(info.key)
                    if parsed is not None and parsed.number is not None:
                        listed[parsed.number] = info.size
                    removed = removed or (parsed is not None and parsed.number is None)
            # A seal is known by its size, which no record object has.
            seals = {number for number, size in listed.items() if size == len(self._seal(number))}
            records = {number: size for number, size in listed.items() if number not in seals}
            try:
                checkpoint = (await self.header(max(records))).checkpoint if records else 1
                return Listing(records, seals, checkpoint, removed)
            except ObjectNotFound:
                # The run has put a newer one since.
                continue
        raise Unavailable(f"the intake of run {self._run_id} keeps changing")

    async def span(self) -> Span:
        """Return what counts now, without sealing. More may count later unless the chain is sealed."""
        return (await self.listing()).span

    async def checked_span(self) -> Span:
        """Return what counts now. Raises DamagedChain also if the object at its end is lost."""
        for _ in range(_ATTEMPTS):
            listing = await self.listing()
            if not listing.has_gap:
                return listing.span
            await self._check_missing(listing.span.end)
        raise Unavailable(f"the intake of run {self._run_id} keeps changing")

    async def seal(self) -> Span:
        """Seal the chain, unless it is sealed, and return what counts. Raises DamagedChain.

        Any number of callers may do so at the same time, beside the run itself; all return the same end.
        """
        for _ in range(_ATTEMPTS):
            listing = await self.listing()
            missing = listing.span.end
            if listing.sealed:
                return listing.span
            if listing.has_gap:
                await self._check_missing(missing)
                continue
            # The end counts only once a later listing shows it, because the run may have stored and deleted the
            # missing object since the listing. A newer checkpoint then lies above the seal.
            if not any(number > missing for number in listing.seals):
                await self._put_seal(max({missing, *listing.records}) + _STOP_AHEAD)
            await self._put_seal(missing)
        raise Unavailable(f"the intake of run {self._run_id} keeps changing")

    async def read(self, span: Span) -> AsyncIterator[IntakeObject]:
        """Yield the objects of the span, in order.

        Raises DamagedChain, and ObjectNotFound if the run, or who removes its chain, has deleted one since.
        """
        for first in range(span.start, span.end, _READS):
            results: dict[int, IntakeObject | KafscaleError] = {}
            async with trio.open_nursery() as nursery:
                for number in range(first, min(first + _READS, span.end)):
                    nursery.start_soon(self._read_into, results, number)
            for _, result in sorted(results.items()):
                if isinstance(result, KafscaleError):
                    raise result
                yield result

    async def header(self, number: int) -> IntakeHeader:
        """Return the header of an object. Raises ObjectNotFound, DamagedChain."""
        key = paths.intake_key(self._namespace, self._run_id, number)

        async def attempt() -> IntakeHeader:
            return IntakeHeader.parse(await self._objects.get_range(key, 0, HEADER_SIZE))

        return await _verified(key, attempt)

    async def pages(self) -> AsyncIterator[list[int]]:
        """Yield the numbers of all record objects, at most 1000 at a time."""
        numbers = sorted((await self.listing()).records)
        for first in range(0, len(numbers), MAX_KEYS):
            yield numbers[first : first + MAX_KEYS]

    async def _read_into(self, results: dict[int, IntakeObject | KafscaleError], number: int) -> None:
        key = paths.intake_key(self._namespace, self._run_id, number)

        async def attempt() -> IntakeObject:
            found = parse((await self._objects.get(key)).body)
            if (found.header.number, found.run_id) != (number, self._run_id):
                raise CorruptIntake(f"it is object {found.header.number} of run {found.run_id}")
            return found

        try:
            results[number] = await _verified(key, attempt)
        except KafscaleError as error:
            results[number] = error

    async def _check_missing(self, number: int) -> None:
        """Raise DamagedChain if object ``number`` is gone although the run knew that it was stored.

        The caller has seen an object that the run began after that. The run deletes only below a named checkpoint.
        """
        try:
            await self._objects.head(paths.intake_key(self._namespace, self._run_id, number))
        except ObjectNotFound:
            if (await self.listing()).checkpoint <= number:
                raise DamagedChain(
                    f"object {number} of the intake of run {self._run_id} is missing, but later ones are there"
                ) from None

    async def _put_seal(self, number: int) -> None:
        with suppress(PreconditionFailed):
            await self._objects.put_if_absent(
                paths.intake_key(self._namespace, self._run_id, number), self._seal(number)
            )

    def _seal(self, number: int) -> bytes:
        return encode_seal(self._namespace, self._run_id, number=number, created_ms=self._now_ms())


async def _verified(key: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what ``attempt`` reads. Raises DamagedChain after two bad reads, because one is no proof of damage."""
    try:
        return await attempt()
    except CorruptData:
        pass
    try:
        return await attempt()
    except CorruptData as error:
        raise DamagedChain(f"{key}: {error}") from error
