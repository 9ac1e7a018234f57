"""The chain of intake objects of one storage run: find its end, seal it, and read it.

A run R puts the objects 1, 2, 3 ... create-only, and begins object n only when all objects up to n - ``WINDOW`` are
known to be stored. Each object names a checkpoint: the lowest number whose records are needed. R deletes objects only
below a checkpoint that a stored object names. An object counts if all objects from the checkpoint up to it are stored.

When R has ended, or must end, another run seals the chain: it puts a seal at the first missing number. Everything
below the seal counts; nothing at or above it ever does. R cannot overwrite a seal, and ends when it meets one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.intake.format import HEADER_SIZE, CorruptIntake, IntakeHeader, IntakeObject, encode_seal, parse
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, ObjectStore, PreconditionFailed

T = TypeVar("T")

WINDOW = 4
"""How many objects of a chain may be on their way to the store at the same time."""
_STOP_AHEAD = 64
"""A first seal is put this far above the first missing number, so that a run which is still putting stops there."""
_ATTEMPTS = 50
_READS = 4
"""Objects read at the same time, of up to 8 MiB."""


class DamagedChain(CorruptData):
    """An object that must be stored is missing or damaged."""


@dataclass(frozen=True, slots=True)
class Span:
    """The objects of a chain that count and are needed: from number ``start`` up to ``end``, exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Listing:
    """The numbers of the listed objects, and the newest checkpoint that one of them names (1 if there are none)."""

    records: set[int]
    seals: set[int]
    checkpoint: int

    @property
    def first_missing(self) -> int:
        """The first number from the checkpoint on that is not the number of a record object."""
        number = self.checkpoint
        while number in self.records:
            number += 1
        return number


class Chain:
    """The chain of run ``run_id``, for those who read or end it. All methods raise Unavailable and Refused."""

    def __init__(self, objects: ObjectStore, namespace: str, run_id: str, *, now_ms: Callable[[], int]) -> None:
        self._objects = objects
        self._namespace = namespace
        self._run_id = run_id
        self._now_ms = now_ms

    async def span(self) -> Span:
        """Return what counts now, without sealing. More may count later unless the chain is sealed."""
        listing = await self._list()
        return Span(listing.checkpoint, listing.first_missing)

    async def seal(self) -> Span:
        """Seal the chain, unless it is sealed, and return what counts. Raises DamagedChain.

        Any number of callers may do so at the same time, beside the run itself; all return the same end.
        """
        for _ in range(_ATTEMPTS):
            listing = await self._list()
            missing = listing.first_missing
            if missing in listing.seals:
                return Span(listing.checkpoint, missing)
            if any(number >= missing + WINDOW for number in listing.records):
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

    async def pages(self) -> AsyncIterator[list[int]]:
        """Yield the numbers of all record objects, at most 1000 at a time."""
        numbers = sorted((await self._list()).records)
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

    async def _list(self) -> _Listing:
        """List the chain, and read the newest checkpoint. A seal is known by its size, which no record object has."""
        prefix = paths.intake_prefix(self._namespace, self._run_id)
        for _ in range(_ATTEMPTS):
            listed: dict[int, int] = {}
            after, full = "", True
            while full:
                page = await self._objects.list_from(prefix, after)
                full = len(page) == MAX_KEYS
                for info in page:
                    after, parsed = info.key, paths.parse_intake_key(info.key)
                    if parsed is not None and parsed.number is not None:
                        listed[parsed.number] = info.size
            seals = {number for number, size in listed.items() if size == len(self._seal(number))}
            records = listed.keys() - seals
            try:
                return _Listing(records, seals, await self._checkpoint(max(records)) if records else 1)
            except ObjectNotFound:
                # The run has put a newer one since.
                continue
        raise Unavailable(f"the intake of run {self._run_id} keeps changing")

    async def _checkpoint(self, number: int) -> int:
        """Return the checkpoint that an object names. Raises ObjectNotFound, DamagedChain."""
        key = paths.intake_key(self._namespace, self._run_id, number)

        async def attempt() -> int:
            return IntakeHeader.parse(await self._objects.get_range(key, 0, HEADER_SIZE)).checkpoint

        return await _verified(key, attempt)

    async def _check_missing(self, number: int) -> None:
        """Raise DamagedChain if object ``number`` is gone although the run knew that it was stored.

        The caller has seen an object that the run began after that. The run deletes only below a named checkpoint.
        """
        try:
            await self._objects.head(paths.intake_key(self._namespace, self._run_id, number))
        except ObjectNotFound:
            if (await self._list()).checkpoint <= number:
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
