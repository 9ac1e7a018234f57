import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest
import structlog

from kafscale.audit import AuditLog
from kafscale.config.settings import load
from kafscale.process.logging import LogSettings, configure_logging
from kafscale.security.acls import Decision
from kafscale.security.asks import READ_TOPIC
from kafscale.security.principals import user


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_one_json_object_without_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    structlog.get_logger("a").info("segment stored", topic="t", partition=3)
    [line] = lines(stream)
    assert line.pop("timestamp")
    assert line == {"event": "segment stored", "topic": "t", "partition": 3, "level": "info"}


def test_every_line_names_its_process() -> None:
    stream = io.StringIO()
    configure_logging("info", stream, who={"service": "storage", "instance": "10.0.0.1:9095"})
    structlog.get_logger("a").info("segment stored")
    logging.getLogger("httpx").warning("slow")
    assert [(line["service"], line["instance"]) for line in lines(stream)] == [("storage", "10.0.0.1:9095")] * 2


def test_names_cannot_control_a_terminal_or_add_lines() -> None:
    terminal = Terminal()
    configure_logging("info", terminal)
    evil = "\x1b[2Jx\x9b1m\u202e\n2026-01-01 [info] fake"
    password = "a " + "secret"
    try:
        raise RuntimeError(evil + password[:1])
    except RuntimeError:
        structlog.get_logger().exception("failed", user=evil, more=[evil])
    logging.getLogger("library").warning("got %s", evil)
    shown = terminal.getvalue()
    for raw in ("\x1b[2J", "\x9b", "\u202e", "\n2026-01-01 [info] fake"):
        assert raw not in shown
    assert "\\x1b[2Jx" in shown
    assert "RuntimeError" in shown
    assert password not in shown


def test_a_traceback_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure_logging("info", stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        structlog.get_logger().exception("flush failed")
    [line] = lines(stream)
    assert "RuntimeError: boom" in str(line["exception"])


def test_a_terminal_gets_colours_and_no_json() -> None:
    stream = Terminal()
    configure_logging("info", stream)
    structlog.get_logger().info("segment stored", topic="t")
    logging.getLogger("httpx").warning("slow")
    assert "\x1b[" in stream.getvalue()
    assert "segment stored" in stream.getvalue()
    assert "{" not in stream.getvalue()


@pytest.mark.parametrize(("level", "events"), [("debug", ["d", "i", "e"]), ("info", ["i", "e"]), ("error", ["e"])])
def test_the_level_filters_lines(level: str, events: list[str]) -> None:
    stream = io.StringIO()
    configure_logging(load(LogSettings, {"KAFSCALE_LOG_LEVEL": level.upper()}).log_level, stream)
    log = structlog.get_logger()
    log.debug("d")
    log.info("i")
    log.error("e")
    assert [line["event"] for line in lines(stream)] == events


def test_libraries_log_from_warning_on_in_the_same_format() -> None:
    stream = io.StringIO()
    configure_logging("debug", stream)
    logging.getLogger("httpx").info("HTTP Request: PUT")
    logging.getLogger("httpx").warning("slow %d", 7)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old thing", stacklevel=1)
    first, second = lines(stream)
    assert (first["event"], first["level"], first["logger"]) == ("slow 7", "warning", "httpx")
    assert "old thing" in str(second["event"])


def test_the_audit_log_is_written_at_every_level() -> None:
    stream = io.StringIO()
    configure_logging("error", stream)
    structlog.get_logger("a").warning("something else")
    audit = AuditLog("denied", 1, clock=lambda: 0.0)
    audit.decided(Decision(allowed=False, rule="no ACL allows it"), user("ann"), "10.0.0.1", READ_TOPIC, "t")
    assert [line["event"] for line in lines(stream)] == ["access"]
