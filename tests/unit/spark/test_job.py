"""Common parts of the jobs: arguments, and topics that they refuse to read."""

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType

import pytest

from jobs import archive, audit, replay, rollup
from kafscale.errors import ConfigError
from kafscale_spark import job


def _args(*argv: str) -> argparse.Namespace:
    parser = job.parser("test", None)
    job.add_topics(parser)
    return parser.parse_args(["--endpoints", "storage-0:9200", *argv])


def test_the_connection_uses_the_arguments() -> None:
    args = _args("--topics", "t", "--option", "kafscale.callTimeout=5s")
    assert job.connection(args) == {"kafscale.endpoints": "storage-0:9200", "kafscale.callTimeout": "5s"}
    connection = job.storage(args)
    assert (connection.endpoints, connection.call_seconds) == (("storage-0:9200",), 5.0)


@pytest.mark.parametrize("option", ["foo", "=x"])
def test_an_option_without_a_value_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _args("--topics", "t", "--option", option)
    assert ended.value.code == 2
    assert f"{option!r} is not NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--topics", "orders, dead"), "--topics names it"),
        (("--pattern", "d"), "--pattern matches it"),
        (("--pattern", "^(?<x>.).*"), "--pattern matches it"),
        (("--pattern", "("), "--pattern: not a valid pattern of Python's re"),
    ],
)
def test_a_job_does_not_read_its_own_output(argv: tuple[str, ...], words: str) -> None:
    args = _args(*argv)
    with pytest.raises(ConfigError, match=words):
        job.reading(args, writes="dead")


@pytest.mark.parametrize("argv", [("--topics", "orders"), ("--pattern", "^orders"), ("--pattern", "^(?!dead$)")])
def test_other_topics_are_read(argv: tuple[str, ...]) -> None:
    args = _args(*argv)
    assert job.reading(args, writes="dead") == job.reading(args)


def test_an_internal_error_does_not_look_like_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(_: Sequence[str]) -> int:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(sys, "argv", ["job"])
    with pytest.raises(SystemExit) as ended:
        job.main_of(main)
    assert ended.value.code == 2
    assert "ZeroDivisionError: a fault" in capsys.readouterr().err


@pytest.mark.parametrize("work", [archive, audit, replay, rollup])
def test_every_job_refuses_unknown_arguments(work: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, status in ((["--help"], 0), (["--endpoints", "a:1", "--option", "foo"], 2), (["--endpoint", "a:1"], 2)):
        with pytest.raises(SystemExit) as ended:
            work.main(argv)
        assert ended.value.code == status
    assert "'foo' is not NAME=VALUE" in capsys.readouterr().err
