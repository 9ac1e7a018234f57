import re
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafscale.config.network import DEFAULTS
from kafscale.config.settings import documented
from kafscale.config.variables import VARIABLES
from kafscale_tools.documents import generate as docs


def test_the_documents_match_the_code() -> None:
    assert docs.differences() == []


def test_check_prints_differences_and_exits_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_documented_settings_are_those_that_processes_read() -> None:
    read = {setting for _, settings in documented(chain(*docs.READERS.values())) for setting in settings}
    assert read == {setting for _, settings in documented(docs.SETTINGS.values()) for setting in settings}


def test_the_default_addresses_of_each_service_are_documented() -> None:
    text = docs.configuration()
    for name in ("RPC", "HTTP"):
        [row] = re.findall(rf"^\| `KAFSCALE_{name}_ADDR` .*$", text, re.MULTILINE)
        for service, addresses in DEFAULTS.items():
            assert f"{service} {getattr(addresses, name.lower())}" in row


def test_the_known_variables_are_those_of_the_settings() -> None:
    assert set(VARIABLES) == {s.env for _, settings in documented(docs.SETTINGS.values()) for s in settings}
