"""SCRAM (RFC 5802, RFC 7677) on the client's side. No I/O and no dice.

As in Kafka, user names and passwords are not normalised by SASLprep, and there is no channel binding.
"""

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from kafscale.security.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    Mechanism,
    ScramFailed,
    credential,
    salted_password,
)

_BASE64 = rb"[A-Za-z0-9+/]+={0,2}"
_SERVER_FIRST = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>" + _BASE64 + rb"),i=(?P<iterations>[1-9][0-9]{0,9})"
    rb"(?:,[A-Za-z]=[^\x00,]*)*"
)
_SERVER_FINAL = re.compile(rb"v=(?P<signature>" + _BASE64 + rb")(?:,[A-Za-z]=[^\x00,]*)*")
_HEADER = b"n,,"


class ScramClient:
    """One exchange: send `first`, then what `final` returns, and check the last answer with `finish`.

    ``nonce`` is printable ASCII without commas, and new for each exchange.
    """

    def __init__(self, mechanism: Mechanism, user_name: str, password: bytes, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce.encode("ascii")
        name = user_name.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + name + b",r=" + self._nonce
        self._signature = b""

    @property
    def first(self) -> bytes:
        """The first message."""
        return _HEADER + self._bare

    def final(self, answer: bytes) -> bytes:
        """Return the final message for the server's first one. Raises ScramFailed. Takes milliseconds of CPU time.

        The server chooses the number of iterations. One that is not within Kafka's limits is refused: fewer would make
        it easy to guess the password from the message, and more could take any time.
        """
        found = _SERVER_FIRST.fullmatch(answer)
        if found is None:
            raise ScramFailed("the server's first message is invalid")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramFailed("the server's nonce is invalid")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise ScramFailed(f"the server asks for {iterations} iterations")
        salt = _decoded(found["salt"])
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        known = credential(self._mechanism, salted, salt, iterations)
        without_proof = b"c=" + b64encode(_HEADER) + b",r=" + nonce
        signed = self._bare + b"," + answer + b"," + without_proof
        self._signature = hmac.digest(known.server_key, signed, self._mechanism.digest)
        client_key = hmac.digest(salted, b"Client Key", self._mechanism.digest)
        client_signature = hmac.digest(known.stored_key, signed, self._mechanism.digest)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        return without_proof + b",p=" + b64encode(proof)

    def finish(self, answer: bytes) -> None:
        """Raise ScramFailed unless the server's final message proves that it knows the user's credential."""
        found = _SERVER_FINAL.fullmatch(answer)
        if found is None:
            raise ScramFailed("the server's final message is invalid")
        if not self._signature or not hmac.compare_digest(_decoded(found["signature"]), self._signature):
            raise ScramFailed("the server does not know the credential of the user")


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        raise ScramFailed("invalid base64") from None
