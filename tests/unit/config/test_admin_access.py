"""The token of the Admin service, from a variable or a file."""

from pathlib import Path

import pytest

from kafscale.config.admin_access import AdminTokenSettings
from kafscale.config.settings import load
from kafscale.errors import ConfigError

TOKEN = "only-operators-know-this"


@pytest.mark.parametrize(
    ("content", "token", "message"),
    [
        (TOKEN.encode() + b"\r\n", "", ""),
        (b"", "", "token is not 16 to 16384"),
        (b"short-secret\n", "", "token is not 16 to 16384"),
        ("sixteen-or-more-é".encode(), "", "token is not 16 to 16384"),
        (None, "", "cannot be read"),
        (TOKEN.encode(), TOKEN, "are both set"),
    ],
)
def test_a_token_file_gives_the_token_or_an_error_without_it(
    tmp_path: Path, content: bytes | None, token: str, message: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    environ = {"KAFSCALE_ADMIN_TOKEN_FILE": str(file)} | ({"KAFSCALE_ADMIN_TOKEN": token} if token else {})
    settings = load(AdminTokenSettings, environ)
    if not message:
        assert settings.token() == TOKEN
        return
    with pytest.raises(ConfigError, match=message) as raised:
        settings.token()
    assert "KAFSCALE_ADMIN_TOKEN_FILE" in str(raised.value)
    assert "short-secret" not in str(raised.value)
    assert TOKEN not in str(raised.value)
