"""A mapping of the offsets of a log to numbers, which needs 8 bytes an offset if most offsets have a number."""

from array import array
from collections.abc import Iterator

_PAGE = 1024
_NONE = -(1 << 63)


class ByOffset:
    """Maps offsets to numbers of 63 bits. An offset far from all others costs 8 KiB."""

    def __init__(self, *others: "ByOffset") -> None:
        """Copy ``others``; the last one that has an offset counts."""
        self._pages: dict[int, array[int]] = {}
        for other in others:
            for offset, number in other.items():
                self[offset] = number

    def get(self, offset: int) -> int | None:
        page = self._pages.get(offset // _PAGE)
        number = _NONE if page is None else page[offset % _PAGE]
        return None if number == _NONE else number

    def __setitem__(self, offset: int, number: int) -> None:
        page = self._pages.get(offset // _PAGE)
        if page is None:
            page = self._pages[offset // _PAGE] = array("q", [_NONE]) * _PAGE
        page[offset % _PAGE] = number

    def setdefault(self, offset: int, number: int) -> int:
        """Return the number at ``offset``, which is ``number`` if it had none."""
        there = self.get(offset)
        if there is None:
            self[offset] = there = number
        return there

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield offsets and numbers in the order of offsets."""
        for page in sorted(self._pages):
            for at, number in enumerate(self._pages[page]):
                if number != _NONE:
                    yield page * _PAGE + at, number

    def descending(self) -> Iterator[tuple[int, int]]:
        """Yield offsets and numbers from the last offset to the first."""
        for page in sorted(self._pages, reverse=True):
            numbers = self._pages[page]
            for at in range(_PAGE - 1, -1, -1):
                if numbers[at] != _NONE:
                    yield page * _PAGE + at, numbers[at]

    def __iter__(self) -> Iterator[int]:
        return (offset for offset, _ in self.items())

    def values(self) -> Iterator[int]:
        return (number for _, number in self.items())
