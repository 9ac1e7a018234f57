"""An issuer of tokens for tests: it signs tokens and publishes its keys."""

import base64
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

ISSUER, AUDIENCE = "https://issuer.test/realm", "kafscale"
_CURVES: dict[str, Any] = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


@cache
def private_key(algorithm: str = "ES256", name: str = "") -> Any:
    """Return a new private key for this algorithm; the same one for the same name."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm]())
    if algorithm == "EdDSA":
        return ed448.Ed448PrivateKey.generate() if name == "448" else ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


class Issuer:
    """Signs with one key. ``keys`` are those that it publishes, which tests may change."""

    def __init__(self, key_id: str = "first", algorithm: str = "ES256", key: Any = None) -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.key = key or private_key(algorithm, key_id)
        self.keys = [self.public()]

    def public(self, **others: Any) -> dict[str, Any]:
        """Return the public key as a JSON Web Key."""
        form: Any = RSAAlgorithm
        if self.algorithm in _CURVES:
            form = ECAlgorithm
        elif self.algorithm == "EdDSA":
            form = OKPAlgorithm
        document: dict[str, Any] = form.to_jwk(self.key.public_key(), as_dict=True)
        return {**document, "kid": self.key_id, "use": "sig", **others}

    @property
    def document(self) -> bytes:
        """The JSON Web Key Set."""
        return json.dumps({"keys": self.keys}).encode()

    def token(self, expires_at: float, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token of the user ann. A claim that is None is left out."""
        given = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": expires_at, **claims}
        return self.signed({name: value for name, value in given.items() if value is not None}, headers)

    def signed(self, content: object, headers: dict[str, Any] | None = None) -> str:
        """Return signed content. It is encoded here, because the library refuses some that tests need."""
        message = f"{part({'alg': self.algorithm, 'kid': self.key_id, **(headers or {})})}.{part(content)}"
        signature = get_default_algorithms()[self.algorithm].sign(message.encode(), self.key)
        return f"{message}.{encoded(signature)}"


def part(content: object) -> str:
    """Return a part of a token."""
    return encoded(json.dumps(content).encode())


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
