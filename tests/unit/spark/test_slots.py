"""How many tasks run at a time, as far as a session's settings tell."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafscale_spark.slots import slots_of, tell_planners, told_slots


def _context(master: str, parallelism: int, settings: dict[str, str]) -> Any:
    given = {f"spark.{name}": value for name, value in settings.items()}
    return SimpleNamespace(master=master, defaultParallelism=parallelism, getConf=lambda: given)


@pytest.mark.parametrize(
    ("master", "settings", "slots"),
    [
        ("local[6]", {}, 6),
        ("local[6]", {"task.cpus": "2"}, 3),
        ("yarn", {"executor.instances": "5", "executor.cores": "4"}, 20),
        ("yarn", {"executor.instances": "5", "executor.cores": "4", "task.cpus": "2"}, 10),
        ("yarn", {"executor.instances": "5", "executor.cores": "4", "dynamicAllocation.enabled": "true"}, 0),
        ("spark://h:7077", {"cores.max": "12", "executor.cores": "4"}, 12),
        ("spark://h:7077", {"executor.cores": "4"}, 0),
        # Before its executors are there, a cluster's parallelism is 2.
        ("spark://h:7077", {}, 0),
    ],
)
def test_what_is_known_of_slots(master: str, settings: dict[str, str], slots: int) -> None:
    assert slots_of(_context(master, 6 if master.startswith("local") else 2, settings)) == slots


@pytest.mark.parametrize(("told", "slots"), [("", 0), ("12", 12), ("0", 0), ("many", 0), ("-3", 0)])
def test_what_planners_are_told(monkeypatch: pytest.MonkeyPatch, told: str, slots: int) -> None:
    monkeypatch.setenv("KAFSCALE_SPARK_SLOTS", told)
    assert told_slots() == slots


def test_a_session_of_spark_connect_has_nobody_to_tell() -> None:
    tell_planners(cast(Any, SimpleNamespace()))
