"""The exceptions that are shared by several packages, one for each way in which a caller must react."""

from collections.abc import Iterator


class KafscaleError(Exception):
    """The base class of all errors that KafScale raises deliberately."""


class CorruptData(KafscaleError):
    """A batch, segment, index or request violates its format. It must be neither retried nor skipped."""


class ConfigError(KafscaleError):
    """A setting is invalid; the message names it. The process must not start."""


class Unavailable(KafscaleError):
    """A store did not answer, its answer was lost, or it is full. The outcome is unknown; a retry may succeed."""


class NotSent(Unavailable):
    """No peer accepted a request, so nothing was done."""


class Refused(KafscaleError):
    """A store answered and refuses permanently (credentials, missing bucket, read-only disk)."""


def reason_of(error: BaseException) -> str:
    """Return what an error of a connection and its cause say, because Trio and httpcore do not repeat the cause."""
    told: BaseException | None = error
    while told is not None and not isinstance(told, OSError):
        told = told.__cause__ or told.__context__
    return f"{type(error).__name__} {told or error}".rstrip()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group and in the groups in it, or the error itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
