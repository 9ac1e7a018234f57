"""`kafscale` finds its commands, and `run` starts the one-process mode."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kafscale_tools.cli.main import main
from services.all_in_one import main as all_in_one


@pytest.mark.parametrize("status", [0, 1, 2])
def test_run_exits_with_the_status_of_the_process(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(all_in_one, "run_all_in_one", lambda: status)

    assert CliRunner().invoke(main, ["run"]).exit_code == status


def test_each_command_exists_under_its_name() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    assert [command.name for name in names if (command := main.get_command(context, name))] == names
    assert main.get_command(context, "topik") is None


def test_a_command_does_not_import_modules_that_only_others_need() -> None:
    program = "import sys; from kafscale_tools.cli.main import main; main(['topic', '--help'], standalone_mode=False)"
    loaded = f"{program}; assert not {{'kio', 'minio', 'services.gateway'}} & sys.modules.keys(), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, timeout=60)
