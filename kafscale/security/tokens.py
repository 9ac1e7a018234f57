"""Verification of bearer tokens: JSON Web Tokens (RFC 7519) that an issuer has signed with one of its published keys.

Only signatures by private keys are accepted, never those by a shared secret. A token must name its key by a key id
(``kid``). Its issuer, audience and expiry are always checked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from kafscale.errors import KafscaleError

LARGEST_TOKEN = 16 << 10
"""The size of a token in bytes."""
_LONGEST_NAME = 1000
_LAST_TIME = 253_402_300_800
"""The end of the year 9999, in seconds since 1970."""
_RSA_BITS = range(2048, 8193)
_RSA_ALGORITHMS = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_CURVES = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "EdDSA",
    ("OKP", "Ed448"): "EdDSA",
}
_PUBLIC = ("kty", "crv", "n", "e", "x", "y")
"""The parameters of public keys (RFC 7518, RFC 8037). Others, such as those of private keys, are not used."""
_NAMED_CLAIMS = {"aud": "audience", "iss": "issuer", "exp": "expiry"}


class TokenRefused(KafscaleError):
    """A token is not accepted. The message says why and does not contain what the token says."""


class UnknownKey(TokenRefused):
    """No known key has the key id of the token. The issuer may have a newer one."""


class ScopeMissing(TokenRefused):
    """The token is valid, but not for the required scope."""


class NoKeys(KafscaleError):
    """A document is not a set of keys, or none of its keys can verify tokens."""


@dataclass(frozen=True, slots=True)
class _Key:
    """``key`` is one of the library's. ``algorithms``: those with which it may be used."""

    key: Any
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The public keys of an issuer, by their key ids. ``unused``: how many others a set has."""

    keys: Mapping[str, _Key] = field(default_factory=dict)
    unused: int = 0

    @classmethod
    def parse(cls, document: bytes) -> "KeySet":
        """Parse a JSON Web Key Set (RFC 7517). Keys that cannot verify tokens are left out: those for encryption, of
        unknown kinds, without a key id, and RSA keys of fewer than 2048 or more than 8192 bits. Raises NoKeys."""
        try:
            found = json.loads(document)["keys"]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise NoKeys("the document is not a JSON Web Key Set") from None
        if not isinstance(found, list):
            raise NoKeys("the document is not a JSON Web Key Set")
        keys: dict[str, _Key] = {}
        for each in found:
            name = each.get("kid") if isinstance(each, dict) else None
            key = _parse_key(each) if isinstance(name, str) and name else None
            if key is not None:
                keys.setdefault(str(name), key)
        if not keys:
            raise NoKeys("the JSON Web Key Set has no key that can verify tokens")
        return cls(keys, len(found) - len(keys))


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say. It must be for one of ``audiences``; an empty ``scope`` means that none is required.

    ``user_claim`` and ``scope_claim`` are the claims with the name of the user and with the scopes. ``skew_seconds``:
    by how much the issuer's clock may differ.
    """

    issuer: str
    audiences: tuple[str, ...]
    scope: str = ""
    user_claim: str = "sub"
    scope_claim: str = "scope"
    skew_seconds: int = 30


@dataclass(frozen=True, slots=True)
class Verified:
    """Who has presented a token, and until when it is accepted, in seconds since 1970."""

    user: str
    expires_at: float


def verify(token: str, keys: KeySet, rules: TokenRules, now: float) -> Verified:
    """Return whose token this is. ``now`` is in seconds since 1970. Raises TokenRefused.

    It takes up to a millisecond of CPU time.
    """
    if len(token) > LARGEST_TOKEN:
        raise TokenRefused(f"the token is longer than {LARGEST_TOKEN} bytes")
    claims = _signed_claims(token, keys, rules)
    expires_at = _time(claims, "exp") + rules.skew_seconds
    if expires_at <= now:
        raise TokenRefused("the token has expired")
    if "nbf" in claims and _time(claims, "nbf") - rules.skew_seconds > now:
        raise TokenRefused("the token is not valid yet")
    user = _name(claims.get(rules.user_claim))
    if rules.scope and rules.scope not in _scopes(claims.get(rules.scope_claim)):
        raise ScopeMissing("the token does not have the required scope")
    return Verified(user, expires_at)


def _signed_claims(token: str, keys: KeySet, rules: TokenRules) -> dict[str, Any]:
    """Return the claims once the signature, the issuer and the audience are verified."""
    try:
        key = keys.keys.get(jwt.get_unverified_header(token).get("kid", ""))
        if key is None:
            raise UnknownKey("the token's key id is unknown")
        return jwt.decode(
            token,
            key.key,
            algorithms=sorted(key.algorithms),
            # Times and the name are checked by the caller, because the library compares times with its own clock.
            options={
                "require": ["exp", "iss", "aud"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
            },
            audience=rules.audiences,
            issuer=rules.issuer,
        )
    except jwt.InvalidSignatureError:
        raise TokenRefused("the token's signature is wrong") from None
    except jwt.InvalidAlgorithmError:
        raise TokenRefused("the token's algorithm is not that of its key") from None
    except jwt.InvalidIssuerError:
        raise TokenRefused("the token is of another issuer") from None
    except jwt.InvalidAudienceError:
        raise TokenRefused("the token is for another audience") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenRefused(f"the token has no {_NAMED_CLAIMS[error.claim]}") from None
    except (jwt.PyJWTError, ValueError, RecursionError):
        # The messages of these errors can contain parts of the token.
        raise TokenRefused("the token is not a valid JSON Web Token") from None


def _parse_key(document: dict[str, Any]) -> _Key | None:
    """Return None if the key cannot verify tokens."""
    operations = document.get("key_ops", ["verify"])
    if document.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    algorithms = _algorithms(document)
    if not algorithms:
        return None
    public = {name: document[name] for name in _PUBLIC if isinstance(document.get(name), str)}
    try:
        key = jwt.PyJWK(public, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size not in _RSA_BITS:
        return None
    return _Key(key, algorithms)


def _algorithms(document: dict[str, Any]) -> frozenset[str]:
    """Return with which algorithms a key may be used: the one that it names, or those that it fits."""
    kind, curve = document.get("kty"), document.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return frozenset()
    fitting = _RSA_ALGORITHMS if kind == "RSA" else frozenset(filter(None, [_CURVES.get((kind, curve or ""))]))
    named = document.get("alg")
    return fitting if named is None else fitting & {str(named)}


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LAST_TIME:
        raise TokenRefused("a time in the token is invalid")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_NAME or not value.isprintable():
        raise TokenRefused("the token has no valid name of a user")
    return value


def _scopes(value: object) -> list[object]:
    """Return the scopes of a claim, which is a list, or text with spaces between them."""
    if isinstance(value, str):
        return list(value.split())
    return value if isinstance(value, list) else []
