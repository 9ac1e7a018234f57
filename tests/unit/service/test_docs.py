import importlib
import pkgutil
import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

import kafscale
import services
from kafscale.service.listeners import ListenerSettings
from kafscale.service.network import DEFAULTS
from kafscale.service.settings import documented
from kafscale.service.variables import VARIABLES
from services.cli import docs


def test_the_documents_are_what_the_code_says() -> None:
    assert docs.differences() == []


def test_check_says_what_differs_and_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "_ROOT", tmp_path)
    runner = CliRunner()
    assert runner.invoke(docs.main, ["--check"]).exit_code == 1
    assert runner.invoke(docs.main, []).exit_code == 0
    assert runner.invoke(docs.main, ["--check"]).exit_code == 0
    path = tmp_path / "docs" / "reference" / "configuration.md"
    path.write_text(path.read_text().replace("`4MB`", "`5MB`"))
    result = runner.invoke(docs.main, ["--check"])
    assert result.exit_code == 1
    assert re.search(r"^-.*KAFSCALE_SEGMENT_BYTES.*`5MB`", result.output, re.MULTILINE)
    assert re.search(r"^\+.*KAFSCALE_SEGMENT_BYTES.*`4MB`", result.output, re.MULTILINE)


def test_every_settings_class_is_documented_and_read_by_a_process() -> None:
    found = set()
    for package in (kafscale, services):
        for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(module_info.name)
            for value in vars(module).values():
                if isinstance(value, type) and is_dataclass(value) and value.__name__.endswith("Settings"):
                    found.add(value)
    found -= {ListenerSettings}
    read = {base for classes in docs.READERS.values() for cls in classes for base in cls.__mro__ if base in found}
    assert found == set(docs.SETTINGS.values()) == read


def test_the_defaults_of_addresses_are_told_for_each_service() -> None:
    text = docs.configuration()
    for name in ("RPC", "HTTP"):
        [row] = re.findall(rf"^\| `KAFSCALE_{name}_ADDR` .*$", text, re.MULTILINE)
        for service, addresses in DEFAULTS.items():
            assert f"{service} {getattr(addresses, name.lower())}" in row


def test_what_a_process_warns_of_is_what_none_reads() -> None:
    assert set(VARIABLES) == {s.env for _, settings in documented(docs.SETTINGS.values()) for s in settings}
