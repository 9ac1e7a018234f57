"""Python frameworks in a virtual environment of their own, made once, in the cache.

``python -m tests.ecosystem.python_env`` makes it of ``python/requirements.lock``: what they need of aiokafka,
confluent-kafka and protobuf need not be what the tests have.
"""

from pathlib import Path

from tests.virtualenv import installed_python

PROGRAMS = Path(__file__).parent / "python"
LOCK = PROGRAMS / "requirements.lock"


def frameworks_python() -> Path:
    """Its interpreter, installed first when the cache lacks it."""
    return installed_python("frameworks", LOCK, "Faust and Quix Streams")


if __name__ == "__main__":
    frameworks_python()
