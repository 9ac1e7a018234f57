"""The number of tasks that run at a time, as far as a session's settings determine it."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kafscale.errors import ConfigError
from kafscale_spark.slots import SLOTS, configured_slots, pass_slots_to_planners, slots_of


def _context(master: str, settings: dict[str, str]) -> Any:
    given = {f"spark.{name}": value for name, value in settings.items()}
    # As in Spark: the setting, or a local master's cores, or 2 before a cluster's executors have registered.
    parallelism = int(given.get("spark.default.parallelism", 8 if master == "local[*]" else 2))
    return SimpleNamespace(master=master, defaultParallelism=parallelism, getConf=lambda: given)


_YARN = {"executor.instances": "5", "executor.cores": "4"}


@pytest.mark.parametrize(
    ("master", "settings", "slots"),
    [
        ("local", {}, 1),
        ("local[6]", {}, 6),
        ("local[6,3]", {"default.parallelism": "200"}, 6),
        ("local[6]", {"task.cpus": "2"}, 3),
        ("local[*]", {}, 8),
        ("local[*]", {"default.parallelism": "200"}, 0),
        ("local-cluster[2,4,1024]", {}, 0),
        ("yarn", _YARN, 20),
        ("yarn", _YARN | {"task.cpus": "2"}, 10),
        ("yarn", _YARN | {"executor.cores": "3", "task.cpus": "2"}, 5),
        ("yarn", _YARN | {"dynamicAllocation.enabled": "true"}, 0),
        ("spark://h:7077", _YARN | {"cores.max": "12"}, 12),
        ("spark://h:7077", {"cores.max": "12", "executor.cores": "4"}, 12),
        ("spark://h:7077", {"executor.cores": "4"}, 0),
        ("spark://h:7077", {}, 0),
    ],
)
def test_slots_are_derived_from_master_and_settings(master: str, settings: dict[str, str], slots: int) -> None:
    assert slots_of(_context(master, settings)) == slots


@pytest.mark.parametrize(("value", "slots"), [("", 0), ("12", 12), ("0", 0)])
def test_planners_read_the_number_of_slots(monkeypatch: pytest.MonkeyPatch, value: str, slots: int) -> None:
    monkeypatch.setenv(SLOTS, value)
    assert configured_slots() == slots


@pytest.mark.parametrize("value", ["many", "-3", "1.5"])
def test_the_number_of_slots_must_be_a_number(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(SLOTS, value)
    with pytest.raises(ConfigError, match=f"KAFSCALE_SPARK_SLOTS is '{value}'"):
        configured_slots()


def test_a_spark_connect_session_is_not_changed() -> None:
    session = MagicMock()
    pass_slots_to_planners(session)
    assert session.mock_calls == []
