from dataclasses import dataclass

import pytest

from kafscale.config.settings import (
    GIB,
    KIB,
    MIB,
    Parser,
    boolean,
    choice,
    documented,
    integer,
    load,
    milliseconds,
    optional,
    seconds,
    setting,
    size,
    text,
    warn_unknown,
    within,
)
from kafscale.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    segment_bytes: int = setting("KAFSCALE_SEGMENT_BYTES", default=4 * MIB, parse=within(size, KIB), doc="Size.")
    bucket: str | None = setting("KAFSCALE_S3_BUCKET", default=None, parse=optional(text), doc="Bucket.")
    secret: str | None = setting("KAFSCALE_S3_SECRET_KEY", default=None, parse=optional(text), doc="Key.", secret=True)
    code: int | None = setting("KAFSCALE_CODE", default=None, parse=optional(integer(0, 9)), doc="Code.", secret=True)
    create: bool = setting("KAFSCALE_AUTO_CREATE_TOPICS", default=True, parse=boolean, doc="Create.")


KNOWN = [declared.env for _, settings in documented([Settings]) for declared in settings]


def test_unset_and_empty_variables_have_the_default() -> None:
    assert load(Settings, {}) == Settings()
    assert load(Settings, {"KAFSCALE_SEGMENT_BYTES": "", "KAFSCALE_S3_BUCKET": "  "}) == Settings()


def test_set_variables_are_read() -> None:
    environ = {"KAFSCALE_SEGMENT_BYTES": "8MB", "KAFSCALE_S3_BUCKET": "b", "KAFSCALE_AUTO_CREATE_TOPICS": "no"}
    settings = load(Settings, environ)
    assert (settings.segment_bytes, settings.bucket, settings.create) == (8 * MIB, "b", False)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("4MB", 4194304),
        ("4MiB", 4194304),
        ("4mb", 4194304),
        ("4M", 4194304),
        ("4 MB", 4194304),
        ("256MB", 256 * MIB),
        ("1GB", GIB),
        ("2TB", 2048 * GIB),
        ("64K", 65536),
        ("4194304", 4194304),
        ("12B", 12),
        ("0", 0),
    ],
)
def test_sizes_accept_every_unit_as_powers_of_two(written: str, value: int) -> None:
    assert size.parse(written) == value


@pytest.mark.parametrize(
    ("parser", "written"),
    [
        (size, "4XB"),
        (size, "-1"),
        (size, "1.5GB"),
        (size, "MB"),
        (size, "4iB"),
        (size, "4 M B"),
        (size, "\u0664MB"),
        (integer(), "1e3"),
        (integer(), "0x10"),
        (integer(), "1_000"),
        (integer(1, 3), "0"),
        (integer(1, 3), "4"),
        (milliseconds, "-1"),
        (milliseconds, "1.5"),
        (seconds, "nan"),
        (seconds, "-1"),
        (seconds, "1s"),
        (boolean, "on"),
        (boolean, "2"),
        (choice("snappy", "lz4"), "zip"),
        (within(size, KIB, MIB), "1"),
        (within(size, KIB, MIB), "2MB"),
    ],
)
def test_invalid_values_are_refused(parser: Parser[object], written: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parser.parse(written)


def test_values_at_the_bounds_are_accepted() -> None:
    assert [integer(1, 3).parse(written) for written in ("1", "3")] == [1, 3]
    assert [within(size, KIB, MIB).parse(written) for written in ("1KB", "1MB")] == [KIB, MIB]


@pytest.mark.parametrize("written", ["true", "TRUE", "1", "Yes"])
def test_booleans_are_parsed(written: str) -> None:
    assert boolean.parse(written) is True
    assert boolean.parse({"true": "false", "TRUE": "FALSE", "1": "0", "Yes": "No"}[written]) is False


def test_a_choice_is_case_insensitive_and_returned_as_declared() -> None:
    assert choice("LogAppendTime").parse("logappendtime") == "LogAppendTime"


def test_an_invalid_setting_stops_the_start_and_is_named() -> None:
    environ = {"KAFSCALE_SEGMENT_BYTES": "4 megs", "KAFSCALE_AUTO_CREATE_TOPICS": "maybe", "KAFSCALE_S3_BUCKET": "b"}
    with pytest.raises(ConfigError) as caught:
        load(Settings, environ)
    message = str(caught.value)
    assert "\n" not in message
    for expected in (
        "KAFSCALE_SEGMENT_BYTES = '4 megs'",
        "at least 1KB",
        "KAFSCALE_AUTO_CREATE_TOPICS = 'maybe'",
        "true",
    ):
        assert expected in message


def test_a_secret_is_printed_neither_in_errors_nor_in_repr() -> None:
    with pytest.raises(ConfigError, match="KAFSCALE_CODE") as caught:
        load(Settings, {"KAFSCALE_CODE": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(load(Settings, {"KAFSCALE_S3_SECRET_KEY": "hunter2"}))


def test_a_failed_check_of_several_fields_is_a_config_error() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Both(Settings):
        def __post_init__(self) -> None:
            if self.secret and not self.bucket:
                raise ConfigError("KAFSCALE_S3_SECRET_KEY is set without KAFSCALE_S3_BUCKET")

    with pytest.raises(ConfigError, match="without KAFSCALE_S3_BUCKET"):
        load(Both, {"KAFSCALE_S3_SECRET_KEY": "x"})


def test_a_warning_about_an_unknown_variable_names_the_nearest_known_one() -> None:
    environ = {"KAFSCALE_SEGMENT_BYTE": "1", "KAFSCALE_XYZZY": "1", "KAFSCALE_S3_BUCKET": "b", "PATH": "/bin"}
    assert warn_unknown(KNOWN, environ) == [
        "KAFSCALE_SEGMENT_BYTE is set, but not used; did you mean KAFSCALE_SEGMENT_BYTES?",
        "KAFSCALE_XYZZY is set, but not used",
    ]


def test_variables_that_kubernetes_injects_for_services_are_ignored() -> None:
    injected = {
        "KAFSCALE_SERVICE_HOST": "10.0.0.1",
        "KAFSCALE_PORT": "tcp://10.0.0.1:9092",
        "KAFSCALE_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "KAFSCALE_GATEWAY_SERVICE_PORT": "9092",
        "KAFSCALE_GATEWAY_SERVICE_PORT_KAFKA": "9092",
        "KAFSCALE_GATEWAY_PORT": "tcp://10.0.0.1:9092",
        "KAFSCALE_GATEWAY_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KAFSCALE_GATEWAY_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    assert warn_unknown(KNOWN, injected) == []
    assert len(warn_unknown(KNOWN, {"KAFSCALE_ADVERTISED_PORT": "9092"})) == 1


def test_the_documented_settings_are_those_that_are_read() -> None:
    [(cls, settings)] = documented([Settings])
    assert cls is Settings
    assert [(s.env, s.default_text, s.secret) for s in settings] == [
        ("KAFSCALE_SEGMENT_BYTES", "4MB", False),
        ("KAFSCALE_S3_BUCKET", None, False),
        ("KAFSCALE_S3_SECRET_KEY", None, True),
        ("KAFSCALE_CODE", None, True),
        ("KAFSCALE_AUTO_CREATE_TOPICS", "true", False),
    ]
