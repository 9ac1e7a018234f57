"""Settings of the console that would let in more users than was meant."""

import pytest

from kafscale.config.settings import load
from kafscale.errors import ConfigError
from services.console.settings import ConsoleSettings

_TOKEN, _OTHER = "a-token-of-operators", "a-token-of-viewers"


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"KAFSCALE_CONSOLE_ADDR": ":9099"}, "KAFSCALE_CONSOLE_SIGN_IN"),
        (
            {
                "KAFSCALE_CONSOLE_VIEWER_TOKEN": _OTHER,
                "KAFSCALE_ADMIN_TOKEN": _TOKEN,
                "KAFSCALE_CONSOLE_SIGN_IN": "none",
            },
            "KAFSCALE_CONSOLE_SIGN_IN",
        ),
        ({"KAFSCALE_CONSOLE_VIEWER_TOKEN": _OTHER, "KAFSCALE_CONSOLE_SIGN_IN": "token"}, "KAFSCALE_ADMIN_TOKEN"),
        (
            {
                "KAFSCALE_CONSOLE_VIEWER_TOKEN": _TOKEN,
                "KAFSCALE_ADMIN_TOKEN": _TOKEN,
                "KAFSCALE_CONSOLE_SIGN_IN": "token",
            },
            "must be another one",
        ),
        ({"KAFSCALE_CONSOLE_MAX_LIVE": "512"}, "KAFSCALE_CONSOLE_MAX_CONNECTIONS"),
        ({"KAFSCALE_CONSOLE_TLS_CERT_FILE": "cert.pem"}, "KAFSCALE_CONSOLE_TLS_KEY_FILE"),
        ({"KAFSCALE_CONSOLE_ORIGIN": "console.example"}, "KAFSCALE_CONSOLE_ORIGIN"),
        ({"KAFSCALE_CONSOLE_ORIGIN": "https://console.example/kafscale"}, "KAFSCALE_CONSOLE_ORIGIN"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(env: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(ConsoleSettings, env).resolved().viewer_token()


@pytest.mark.parametrize(
    ("env", "secured", "signs_in"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"KAFSCALE_ADMIN_TOKEN": _TOKEN}, False, True),
        ({"KAFSCALE_ADMIN_TOKEN": _TOKEN, "KAFSCALE_CONSOLE_SIGN_IN": "none"}, True, False),
        ({"KAFSCALE_CONSOLE_ADDR": ":9099", "KAFSCALE_CONSOLE_SIGN_IN": "none"}, False, False),
    ],
)
def test_users_sign_in_by_default_if_the_gateways_do_not_accept_everybody(
    env: dict[str, str], secured: bool, signs_in: bool
) -> None:
    assert load(ConsoleSettings, env).resolved(secured=secured).signs_in is signs_in


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ("https://Console.example:443/", "https://console.example"),
        ("https://console.example:8443", "https://console.example:8443"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_is_as_browsers_write_it(origin: str, shown: str) -> None:
    settings = load(ConsoleSettings, {"KAFSCALE_CONSOLE_ORIGIN": origin})
    assert settings.console_origin == shown
    assert settings.origins().accepts(shown.partition("://")[2])
