"""Why the console does not read or write records."""

from http import HTTPStatus

from kafscale.errors import KafscaleError


class RecordsRefused(KafscaleError):
    """The console does not do it now. ``status`` is that of the answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
