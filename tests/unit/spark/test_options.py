"""Options: values, defaults, and messages for invalid ones."""

import traceback
from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import ConfigError
from kafscale_spark.connection import CONNECTION_OPTIONS, Connection, Tls, Token, connection_of
from kafscale_spark.options import (
    BOOLEAN,
    ENDPOINTS,
    Option,
    choice,
    duration,
    integer,
    option_rows,
    read_options,
    size,
)

_RATE: Option[int] = Option("maxOffsetsPerTrigger", integer(1), 0, "So many.", "streaming")
_LOSS = Option("failOnDataLoss", BOOLEAN, True, "Whether to fail.", "batch, streaming", "true")


def test_names_ignore_case_and_missing_options_have_defaults() -> None:
    options = read_options([_RATE, _LOSS], {"MAXoffsetspertrigger": " 17 "})
    assert (options[_RATE], options[_LOSS]) == (17, True)
    assert (options.is_set(_RATE), options.is_set(_LOSS)) == (True, False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxOffsetPerTrigger": "1"}, "unknown option 'maxOffsetPerTrigger': did you mean 'maxOffsetsPer"),
        ({"failondataloss": "yes"}, "option failOnDataLoss='yes': neither true nor false; expected `true` or `false`"),
        ({"maxoffsetspertrigger": "0"}, "option maxOffsetsPerTrigger='0': not a whole number in this range; expected"),
        ({"x": "1"}, "unknown option 'x': known options are maxOffsetsPerTrigger, failOnDataLoss"),
        ({"kafka.acks": "all"}, "option 'kafka.acks': no Kafka client is used here"),
    ],
)  # fmt: skip
def test_invalid_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_options([_RATE, _LOSS], given, {r"kafka\..*": "no Kafka client is used here"})
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("parser", "text", "value"),
    [
        (size(0, 1 << 40), "64MB", 64 << 20),
        (size(0, 1 << 40), "1 GiB", 1 << 30),
        (size(0, 1 << 40), "17", 17),
        (size(0, 1 << 40), "17b", 17),
        (size(0, 1 << 40), "3k", 3072),
        (size(10, 100), "9", None),
        (size(0, 100), "1.5MB", None),
        (duration(0, 3600), "500ms", 0.5),
        (duration(0, 3600), "15m", 900.0),
        (duration(0, 3600), "2h", None),
        (duration(0, 3600), "15", None),
        (integer(-2), "-2", -2),
        (integer(0), "1_000", None),
        (integer(0), "", None),
        (choice("error", "latest"), "Latest", "latest"),
        (choice("error", "latest"), "first", None),
        (ENDPOINTS, "a:1, [::1]:65535,", ("a:1", "[::1]:65535")),
        (ENDPOINTS, "a", None),
        (ENDPOINTS, "a:0", None),
        (ENDPOINTS, "a:65536", None),
        (ENDPOINTS, "http://a:1", None),
        (ENDPOINTS, " ,", None),
    ],
)
def test_values_are_parsed(parser: Any, text: str, value: object) -> None:
    if value is None:
        with pytest.raises(ValueError, match=r"."):
            parser.read(text)
    else:
        assert parser.read(text) == value


def test_connection_options_are_parsed() -> None:
    options = read_options(
        CONNECTION_OPTIONS,
        {"kafscale.endpoints": "a:1,b:2", "kafscale.TLS.ca": "/ca.pem", "kafscale.tls.servername": "storage"},
    )
    assert connection_of(options) == Connection(("a:1", "b:2"), Tls(Path("/ca.pem"), server_name="storage"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "kafscale.endpoints is required"),
        ({"kafscale.endpoints": "a:1", "kafscale.tls.cert": "/c"}, "must both be set"),
        ({"kafscale.endpoints": "a:1", "kafscale.tls.serverName": "x"}, "require kafscale.tls.ca"),
        ({"kafscale.endpoints": "a:1", "kafscale.token": "t", "kafscale.tokenFile": "/t"}, "cannot both be set"),
    ],
)
def test_invalid_connections_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        connection_of(read_options(CONNECTION_OPTIONS, given))


def test_a_token_is_not_shown() -> None:
    given = {"kafscale.endpoints": "a:1", "kafscale.token": " a.secret.token\n"}
    found = connection_of(read_options(CONNECTION_OPTIONS, given))
    assert found.token == Token("a.secret.token")
    assert "secret" not in repr(found)
    with pytest.raises(ConfigError, match=r"option kafscale\.token \(value not shown\)") as refused:
        read_options(CONNECTION_OPTIONS, {"kafscale.token": " ".join(["a", "hidden", "token"])})
    assert "a hidden token" not in "".join(traceback.format_exception(refused.value))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = Connection(("a:1",), Tls(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match=r"missing\.pem cannot be read"):
        missing.channel("a:1")
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"empty\.pem has no valid certificates"):
        Connection(("a:1",), Tls(tmp_path / "empty.pem")).channel("a:1")


def test_the_documents_rows_match_the_declared_options() -> None:
    assert option_rows([_LOSS]) == [
        ("`failOnDataLoss`", "`true`", "`true` or `false`", "batch, streaming", "Whether to fail.")
    ]
