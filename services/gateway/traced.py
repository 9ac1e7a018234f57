"""Batches of this gateway that are traced: a group's commit that passes one belongs to its trace."""

from collections import OrderedDict

from services.gateway.commit_view import Key

_MOST = 1000


class TracedBatches:
    """The latest ones, by partition and base offset; each is passed once."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[Key, int], str] = OrderedDict()

    def note(self, key: Key, base_offset: int, place: str) -> None:
        self._places[key, base_offset] = place
        if len(self._places) > _MOST:
            self._places.popitem(last=False)

    def passed(self, key: Key, committed: int) -> list[str]:
        """The places of those that begin below ``committed``, which are forgotten."""
        below = [known for known in self._places if known[0] == key and known[1] < committed]
        return [self._places.pop(known) for known in below]
