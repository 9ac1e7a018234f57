"""SCRAM (RFC 5802, RFC 7677) on the server's side: credentials, and the exchange of messages. No I/O and no dice.

As in Kafka, user names and passwords are not normalised by SASLprep, and there is no channel binding.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kafscale.errors import KafscaleError

LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
"""Kafka's limits of iterations."""
SALT_BYTES = 24
_LONGEST_NONCE = 512


class Mechanism(Enum):
    """A SCRAM mechanism by its SASL name. ``code`` is Kafka's, ``digest`` the name of its hash in hashlib."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def code(self) -> int:
        return 1 if self is Mechanism.SHA_256 else 2

    @property
    def digest(self) -> str:
        return "sha256" if self is Mechanism.SHA_256 else "sha512"


class ScramFailed(KafscaleError):
    """The exchange failed. The message does not say whether the user or the password was wrong."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a server stores of a password. The password cannot be computed from it, except by guessing."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def salted_password(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return RFC 5802's SaltedPassword. Takes milliseconds of CPU time."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password, salt, iterations)


def credential(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential for a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return Credential(salt, iterations, stored_key, _hmac(mechanism, salted, b"Server Key"))


def has_password(mechanism: Mechanism, known: Credential, password: bytes) -> bool:
    """Return whether ``known`` is the credential of ``password``. Takes milliseconds of CPU time."""
    salted = salted_password(mechanism, password, known.salt, known.iterations)
    found = credential(mechanism, salted, known.salt, known.iterations)
    return hmac.compare_digest(found.stored_key, known.stored_key)


def decoy(mechanism: Mechanism, secret: bytes, user_name: str) -> Credential:
    """Return a credential that no password has, for a user that does not exist. It is always the same for a name.

    With it, a server answers for an unknown user as for a wrong password.
    """
    name = user_name.encode()
    size = hashlib.new(mechanism.digest).digest_size
    salt = hmac.digest(secret, b"salt " + name, "sha512")[:SALT_BYTES]
    return Credential(salt, LEAST_ITERATIONS, bytes(size), hmac.digest(secret, b"key " + name, mechanism.digest))


class ScramServer:
    """One exchange. ``lookup`` returns the credential of a user; for one that does not exist, its `decoy`.

    ``nonce`` is the server's part, printable ASCII without commas.
    """

    def __init__(self, mechanism: Mechanism, lookup: Callable[[str], Credential], nonce: str) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._own_nonce = nonce
        self._nonce = ""
        self._first = b""
        self._known: Credential | None = None
        self.user_name = ""
        """The user, after the first message."""
        self.complete = False
        """Whether the client has proved that it knows the password."""

    def respond(self, message: bytes) -> bytes:
        """Return the answer to the client's next message. Raises ScramFailed."""
        if self.complete:
            raise ScramFailed("the exchange is complete")
        return self._respond_first(message) if self._known is None else self._respond_final(message, self._known)

    def _respond_first(self, message: bytes) -> bytes:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise ScramFailed("invalid first message")
        name, nonce = _unescaped(found["name"]), found["nonce"].decode()
        if len(nonce) > _LONGEST_NONCE:
            raise ScramFailed("invalid first message")
        if found["authzid"] and _unescaped(found["authzid"]) != name:
            raise ScramFailed("a client cannot act for another user")
        self.user_name = name
        self._known = self._lookup(name)
        self._nonce = nonce + self._own_nonce
        salt = b64encode(self._known.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._known.iterations}".encode()
        self._first = found["bare"] + b"," + first
        return first

    def _respond_final(self, message: bytes, known: Credential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            raise ScramFailed("invalid final message")
        if found["binding"] not in (b"biws", b"eSws") and not _is_plain_header(found["binding"]):
            raise ScramFailed("channel binding is not supported")
        if not hmac.compare_digest(found["nonce"], self._nonce.encode()):
            raise ScramFailed("invalid nonce")
        signed = self._first + b"," + found["without_proof"]
        signature = _hmac(self._mechanism, known.stored_key, signed)
        proof = _decoded(found["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored = hashlib.new(self._mechanism.digest, client_key).digest()
        if len(proof) != len(signature) or not hmac.compare_digest(stored, known.stored_key):
            raise ScramFailed("invalid credentials")
        self.complete = True
        return b"v=" + b64encode(_hmac(self._mechanism, known.server_key, signed))


_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_VALUE = rb"[^\x00=,]*(?:=(?:2C|3D)[^\x00=,]*)*"
_EXTENSIONS = rb"(?:,[A-Za-z]=[^\x00,]*)*"
_CLIENT_FIRST = re.compile(
    rb"[ny],(?:a=(?P<authzid>" + _VALUE + rb"))?,"
    rb"(?P<bare>n=(?P<name>" + _VALUE + rb"),r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb")"
)
_CLIENT_FINAL = re.compile(
    rb"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/]+={0,2}),r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb")"
    rb",p=(?P<proof>[A-Za-z0-9+/]+={0,2})"
)


def _is_plain_header(binding: bytes) -> bool:
    """Return whether the client repeats a header without channel binding, such as ``n,a=name,``."""
    return re.fullmatch(rb"[ny],(?:a=" + _VALUE + rb")?,", _decoded(binding)) is not None


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64 as error:
        raise ScramFailed("invalid base64") from error


def _unescaped(name: bytes) -> str:
    try:
        return name.decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError as error:
        raise ScramFailed("a user name is not UTF-8") from error


def _hmac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.digest)
