"""Python frameworks in a virtual environment of their own, made once, in the cache.

``python/requirements.lock`` pins them: the versions of aiokafka, confluent-kafka and protobuf that they need may differ
from those of the tests.
"""

from pathlib import Path

from tests.servers.virtualenv import installed_python

PROGRAMS = Path(__file__).parents[1] / "ecosystem" / "python"
LOCK = PROGRAMS / "requirements.lock"


def frameworks_python() -> Path:
    """Its interpreter, installed first when the cache lacks it."""
    return installed_python("frameworks", LOCK, "Faust and Quix Streams")
