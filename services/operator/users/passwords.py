"""Passwords of users, and the Secrets that contain them. This module does no IO, but it rolls dice."""

import binascii
import hashlib
import secrets
import string
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

from kafscale.errors import KafscaleError
from kafscale.security.scram import SALT_BYTES, Mechanism, salted_password
from kafscale.v1 import admin_pb2 as pb
from services.operator.resources import MANAGER, SECRET, USER, Object, name_of
from services.operator.users.desired import PASSWORD_KEY, Desired, PasswordSource
from services.operator.users.plan import Known

_CHARACTERS = string.ascii_letters + string.digits
_LENGTH = 32
_MOST_BYTES = 1024


class InvalidSecret(KafscaleError):
    """A Secret has no usable password. The message names the Secret and not its content."""


@dataclass(frozen=True, slots=True)
class Password:
    """``version`` identifies the Secret and its last change."""

    value: bytes = field(repr=False)
    version: str

    def known(self, mechanism: str, iterations: int) -> Known:
        """Return what a gateway reports if it has the credential of this password.

        The salt is derived from the version, so that a changed Secret and a password that others set are both noticed.
        Salts are no secrets, and a salt must only differ from others.
        """
        digest = hashlib.sha256(f"{self.version}/{mechanism}".encode()).digest()
        return Known(iterations, digest[:SALT_BYTES])

    def credential(self, mechanism: str, known: Known) -> pb.NewCredential:
        """Return the credential to set. Takes milliseconds of CPU time."""
        salted = salted_password(Mechanism(mechanism), self.value, known.salt, known.iterations)
        return pb.NewCredential(
            mechanism=mechanism, iterations=known.iterations, salt=known.salt, salted_password=salted
        )


def generated_secret(resource: Object, desired: Desired, source: PasswordSource) -> Object:
    """Return a Secret with a new password of 190 bits, which is deleted with the resource."""
    password = "".join(secrets.choice(_CHARACTERS) for _ in range(_LENGTH))
    login = f'username="{_quoted(desired.user)}" password="{password}"'
    jaas = f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};"
    data = {"username": desired.user, PASSWORD_KEY: password, "sasl.jaas.config": jaas}
    owner = {
        "apiVersion": USER.api,
        "kind": USER.name,
        "name": name_of(resource),
        "uid": resource["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": {
            "name": source.name,
            "labels": {"app.kubernetes.io/managed-by": MANAGER, "app.kubernetes.io/part-of": "kafscale"},
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "data": {name: b64encode(value.encode()).decode() for name, value in data.items()},
    }


def owner_of(secret: Object) -> Object:
    """Return the reference to the KafscaleUser whose Secret it is, empty if it is not one of the operator's."""
    references = secret["metadata"].get("ownerReferences", [])
    return next((each for each in references if each["kind"] == USER.name and each["apiVersion"] == USER.api), {})


def password_in(secret: Object, source: PasswordSource) -> Password:
    """Return the password in a Secret. Raises InvalidSecret."""
    where = f"the key {source.key} of the Secret {source.name}"
    encoded = secret.get("data", {}).get(source.key)
    if encoded is None:
        raise InvalidSecret(f"the Secret {source.name} has no key {source.key}")
    try:
        value = b64decode(encoded, validate=True)
        text = value.decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidSecret(f"{where} is not UTF-8 text") from None
    if not value:
        raise InvalidSecret(f"{where} is empty")
    if len(value) > _MOST_BYTES:
        raise InvalidSecret(f"{where} has more than {_MOST_BYTES} bytes")
    if not text.isprintable():
        raise InvalidSecret(f"{where} has a line break or another character that is not printable")
    metadata = secret["metadata"]
    return Password(value, f"{metadata['uid']}/{metadata['resourceVersion']}")


def _quoted(name: str) -> str:
    """Return a name as it is within quotes in a JAAS configuration."""
    return name.replace("\\", "\\\\").replace('"', '\\"')
