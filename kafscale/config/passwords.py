"""Passwords in files."""

from pathlib import Path

from kafscale.errors import ConfigError


def read_password(env: str, file: str) -> bytes:
    """Return the password in a file, without a line break at its end, as UTF-8. Raises a ConfigError that names ``env``
    if it cannot be read, or is empty."""
    try:
        found = Path(file).read_bytes().rstrip(b"\r\n")
        found.decode()
    except OSError as error:
        raise ConfigError(f"{env}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        # Without the cause, which contains a part of the file.
        raise ConfigError(f"{env}: {file} is not UTF-8 text") from None
    if not found:
        raise ConfigError(f"{env}: {file} is empty")
    return found
