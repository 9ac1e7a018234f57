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
        ({"KAFSCALE_CONSOLE_VIEWER_TOKEN": _OTHER, "KAFSCALE_ADMIN_TOKEN": _TOKEN}, "KAFSCALE_CONSOLE_SIGN_IN"),
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
    ],
)
def test_settings_that_contradict_each_other_are_refused(env: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(ConsoleSettings, env).viewer_token()


def test_signing_in_is_optional_on_a_loopback_address_only() -> None:
    assert not load(ConsoleSettings, {}).signs_in
    assert not load(ConsoleSettings, {"KAFSCALE_CONSOLE_ADDR": ":9099", "KAFSCALE_CONSOLE_SIGN_IN": "none"}).signs_in
