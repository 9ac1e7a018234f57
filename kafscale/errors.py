"""The error kinds that more than one part knows, chosen by what the caller must do."""


class KafscaleError(Exception):
    """Any error that KafScale raises on purpose."""


class CorruptData(KafscaleError):
    """Bytes break their format: a batch, a segment, an index, a request. Never retried, never skipped."""


class ConfigError(KafscaleError):
    """A setting is wrong; the message names it. The process must not start."""


class Unavailable(KafscaleError):
    """A store did not answer, its answer was lost, or it is full: the outcome is unknown, repeating may help."""


class Refused(KafscaleError):
    """A store answers and refuses for good (credentials, missing bucket, read-only disk)."""
