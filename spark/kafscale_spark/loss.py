"""What failOnDataLoss decides about."""

import logging

from kafscale.errors import KafscaleError

_log = logging.getLogger("kafscale_spark")


class DataLoss(KafscaleError):
    """Records that were to be read are not there any more."""


def data_lost(what: str, *, fail: bool) -> None:
    """Raises DataLoss, or logs a warning."""
    if fail:
        raise DataLoss(f"{what}. With the option failOnDataLoss=false what is there is read, and this is a warning.")
    _log.warning("%s; it goes on with what is there, since failOnDataLoss is false", what)
