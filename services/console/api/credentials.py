"""Passwords of users: what SCRAM makes of them is sent to gateways, never the password itself."""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from kafscale.security.scram import LEAST_ITERATIONS, SALT_BYTES, Mechanism, salted_password
from services.console.requests import WrongRequest

_MOST_CHARACTERS = 1024


def credentials(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the credentials of all mechanisms for ``password``, as JSON of the Admin service. Raises WrongRequest."""
    password = body.get("password")
    if set(body) != {"password"} or not isinstance(password, str) or not 0 < len(password) <= _MOST_CHARACTERS:
        # The message says nothing about what was sent.
        raise WrongRequest(f"a password has 1 to {_MOST_CHARACTERS} characters")
    try:
        encoded = password.encode()
    except UnicodeEncodeError:
        raise WrongRequest("the password is not UTF-8") from None
    return {"credentials": [_credential(mechanism, encoded) for mechanism in Mechanism]}


def _credential(mechanism: Mechanism, password: bytes) -> dict[str, Any]:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, LEAST_ITERATIONS)
    return {
        "mechanism": mechanism.value,
        "iterations": LEAST_ITERATIONS,
        "salt": b64encode(salt).decode(),
        "salted_password": b64encode(salted).decode(),
    }
