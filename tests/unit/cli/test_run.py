"""`kafscale run` hands over to the one-process mode."""

import pytest
from click.testing import CliRunner

from services.cli.main import main
from services.dev import main as dev


@pytest.mark.parametrize("status", [0, 1, 2])
def test_run_exits_with_the_status_of_the_process(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(dev, "run_dev", lambda: status)

    assert CliRunner().invoke(main, ["run"]).exit_code == status
