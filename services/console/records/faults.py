"""What went wrong with records, of which a page shows only the first. No IO."""

_MOST = 20


class Faults:
    """Texts for one message or answer: the first 20, and how many more there were."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, text: str) -> None:
        if len(self._texts) < _MOST:
            self._texts.append(text)
        else:
            self._more += 1

    def texts(self) -> list[str]:
        return [*self._texts, f"and {self._more} more"] if self._more else list(self._texts)
