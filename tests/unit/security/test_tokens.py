"""Bearer tokens: which are accepted, and which keys verify them."""

import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kafscale.security.tokens import (
    LARGEST_TOKEN,
    KeySet,
    NoKeys,
    ScopeMissing,
    TokenRefused,
    TokenRules,
    UnknownKey,
    Verified,
    verify,
)
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, encoded, part

NOW = 1_700_000_000.0
RULES = TokenRules(issuer=ISSUER, audiences=("other", AUDIENCE))
ISSUES = Issuer()
KEYS = KeySet.parse(ISSUES.document)


def check(token: str, rules: TokenRules = RULES) -> Verified:
    return verify(token, KEYS, rules, NOW)


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
)
@pytest.mark.parametrize("named", [True, False])
def test_a_token_is_accepted_with_each_algorithm(algorithm: str, named: bool) -> None:
    issuer = Issuer("RSA" if algorithm[1] == "S" and algorithm[0] != "E" else "key", algorithm)
    issuer.keys = [issuer.public(**({"alg": algorithm} if named else {}))]
    found = verify(issuer.token(NOW + 60), KeySet.parse(issuer.document), RULES, NOW)
    assert found == Verified("ann", NOW + 60 + RULES.skew_seconds)


def test_the_curve_ed448_is_accepted() -> None:
    issuer = Issuer("448", "EdDSA")
    assert verify(issuer.token(NOW + 60), KeySet.parse(issuer.document), RULES, NOW).user == "ann"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "billing"}, "another audience"),
        ({"aud": ["billing"]}, "another audience"),
        ({"aud": {"kafscale": 1}}, "another audience"),
        ({"aud": None}, "no audience"),
        ({"iss": "https://issuer.test"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"iss": None}, "no issuer"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": None}, "no expiry"),
        ({"exp": str(NOW + 60)}, "time"),
        ({"exp": True}, "time"),
        ({"exp": float("inf")}, "time"),
        ({"exp": float("nan")}, "time"),
        ({"exp": 10**400}, "time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"nbf": "soon"}, "time"),
        ({"sub": None}, "name"),
        ({"sub": ""}, "name"),
        ({"sub": " "}, "name"),
        ({"sub": 7}, "name"),
        ({"sub": "a\nb"}, "name"),
        ({"sub": "\ud800"}, "name"),
        ({"sub": "a" * 1001}, "name"),
        ({"x": "a" * LARGEST_TOKEN}, "longer"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims: dict[str, Any], reason: str) -> None:
    token = ISSUES.token(**{"expires_at": NOW + 60, **claims})
    with pytest.raises(TokenRefused, match=reason):
        check(token)


def test_clocks_may_differ_by_the_skew() -> None:
    assert check(ISSUES.token(NOW - 29)).expires_at == NOW + 1
    assert check(ISSUES.token(NOW + 60, nbf=NOW + 30)).user == "ann"
    with pytest.raises(TokenRefused, match="expired"):
        check(ISSUES.token(NOW), replace(RULES, skew_seconds=0))


def test_an_audience_may_be_one_of_several() -> None:
    assert check(ISSUES.token(NOW + 60, aud=["billing", AUDIENCE])).user == "ann"


def test_the_user_and_the_scope_are_in_the_claims_of_the_rules() -> None:
    rules = replace(RULES, user_claim="client_id", scope="kafka", scope_claim="scp")
    for scopes in ("read kafka", ["kafka"]):
        assert check(ISSUES.token(NOW + 60, client_id="orders", scp=scopes), rules).user == "orders"
    for wrong in ("kafka2 read", ["read"], {"kafka": 1}, None):
        with pytest.raises(ScopeMissing):
            check(ISSUES.token(NOW + 60, client_id="orders", scp=wrong), rules)
    with pytest.raises(TokenRefused, match="name"):
        check(ISSUES.token(NOW + 60, scp="kafka"), rules)


def test_a_token_that_is_not_signed_is_refused() -> None:
    claims = part({"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60})
    for algorithm in ("none", "None", ""):
        with pytest.raises(TokenRefused):
            check(f"{part({'alg': algorithm, 'kid': 'first'})}.{claims}.")


def test_the_public_key_is_not_used_as_a_shared_secret() -> None:
    secret = ISSUES.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60}
    signed = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(claims)}"
    with pytest.raises(TokenRefused, match="algorithm"):
        check(f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}")


def test_a_changed_token_is_refused() -> None:
    head, claims, signature = ISSUES.token(NOW + 60).split(".")
    with pytest.raises(TokenRefused, match="signature"):
        check(f"{head}.{part({'sub': 'root', 'iss': ISSUER, 'aud': AUDIENCE, 'exp': NOW + 60})}.{signature}")
    with pytest.raises(TokenRefused, match="signature"):
        check(f"{head}.{claims}.{ISSUES.token(NOW + 61).split('.')[2]}")
    with pytest.raises(TokenRefused, match="signature"):
        check(Issuer("first", key=Issuer("another").key).token(NOW + 60))


@pytest.mark.parametrize("key_id", ["second", ""])
def test_an_unknown_key_is_refused(key_id: str) -> None:
    with pytest.raises(UnknownKey):
        check(Issuer(key_id).token(NOW + 60))
    with pytest.raises(UnknownKey):
        verify(ISSUES.token(NOW + 60), KeySet(), RULES, NOW)


def test_a_token_needs_the_algorithm_that_its_key_names() -> None:
    issuer = Issuer("RSA", "RS256")
    issuer.keys = [issuer.public(alg="PS256")]
    with pytest.raises(TokenRefused, match="algorithm"):
        verify(issuer.token(NOW + 60), KeySet.parse(issuer.document), RULES, NOW)


def test_a_token_that_requires_an_unknown_extension_is_refused() -> None:
    assert check(ISSUES.token(NOW + 60, {"extension": 1})).user == "ann"
    for headers in ({"crit": ["extension"], "extension": 1}, {"crit": ["b64"], "b64": False}):
        with pytest.raises(TokenRefused, match="not a valid"):
            check(ISSUES.token(NOW + 60, headers))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c",
        f"{part([])}.{part({})}.AAAA",
        f"{part({'alg': 'ES256', 'kid': ['first']})}.{part({})}.AAAA",
        f"{part({'alg': 'ES256', 'kid': None})}.{part({})}.AAAA",
        encoded(b"[" * 9000) + ".e30.AAAA",
        encoded(b'{"a":' + b"1" * 6000 + b"}") + ".e30.AAAA",
    ],
)
def test_what_is_not_a_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        check(token)
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize("signed", [[], "text", 7, None])
def test_signed_content_that_is_not_claims_is_refused(signed: object) -> None:
    with pytest.raises(TokenRefused, match="not a valid"):
        check(ISSUES.signed(signed))


def test_only_keys_that_can_verify_tokens_are_used() -> None:
    weak = Issuer("weak", "RS256", rsa.generate_private_key(65537, 1024))
    usable = Issuer("usable").public(use=None, d="AAAA")
    del usable["use"]
    documents: list[Any] = [
        usable,
        weak.public(),
        Issuer("encrypts").public(use="enc"),
        Issuer("signs").public(key_ops=["sign"]),
        Issuer("other").public(alg="RS256"),
        Issuer("shared").public(alg="HS256"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"},
        {"kty": "EC", "crv": "P-256", "x": 1, "y": "AA", "kid": "broken"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": ["EC"], "kid": "kind"},
        {**Issuer("nameless").public(), "kid": None},
        7,
    ]
    found = KeySet.parse(json.dumps({"keys": documents}).encode())
    assert (list(found.keys), found.unused) == (["usable"], len(documents) - 1)
    assert verify(Issuer("usable").token(NOW + 60), found, RULES, NOW).user == "ann"


@pytest.mark.parametrize(
    "document", [b"", b"\xff", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [{"kty": "EC"}]}', b"[" * 9000]
)
def test_a_document_without_usable_keys_is_an_error(document: bytes) -> None:
    with pytest.raises(NoKeys):
        KeySet.parse(document)
