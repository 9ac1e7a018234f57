"""Python frameworks in a separate virtual environment in the cache.

``python/requirements.lock`` pins them. They may need other versions of aiokafka, confluent-kafka and protobuf than the
tests.
"""

from pathlib import Path

from tests.servers.virtualenv import installed_python

PROGRAMS = Path(__file__).parents[1] / "ecosystem" / "python"
LOCK = PROGRAMS / "requirements.lock"


def frameworks_python() -> Path:
    """Return the interpreter of the environment. Create the environment if it is not in the cache."""
    return installed_python("frameworks", LOCK, "Faust and Quix Streams")
