"""Handles lost records according to failOnDataLoss."""

import logging

from kafscale.errors import KafscaleError

_log = logging.getLogger("kafscale_spark")


class DataLoss(KafscaleError):
    """Records that should be read no longer exist."""


def data_lost(what: str, *, fail: bool) -> None:
    """Raise DataLoss, or log a warning if ``fail`` is false."""
    if fail:
        raise DataLoss(f"{what}. Set failOnDataLoss=false to log a warning instead and read the remaining records.")
    _log.warning("%s; reading the remaining records because failOnDataLoss is false", what)
