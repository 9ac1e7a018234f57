"""How often to try what may be of no use. No I/O."""


class Attempts:
    """After failed attempts, opportunities are left out: ``factor`` - 1 after the first, then ``factor`` ** 2 - 1.

    At most ``most`` after further ones. A success makes the next opportunity due again.
    """

    def __init__(self, *, factor: int, most: int) -> None:
        self._factor = factor
        self._most = most
        self._pause = 0
        self._left_out = 0

    def is_due(self) -> bool:
        """Whether to try this opportunity. Each call counts as one."""
        if self._left_out:
            self._left_out -= 1
            return False
        return True

    def failed(self) -> None:
        self._pause = min((self._pause + 1) * self._factor - 1, self._most)
        self._left_out = self._pause

    def succeeded(self) -> None:
        self._pause = 0
