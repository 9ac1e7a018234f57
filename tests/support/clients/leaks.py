"""What clients leave open."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaking() -> Iterator[None]:
    """A context for a client that leaves sockets open if it cannot connect, as aiokafka does.

    They are collected on exit, so that their warnings do not fail a later test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
