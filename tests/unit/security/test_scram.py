"""SCRAM on the server's side, with the example of RFC 7677."""

from base64 import b64decode

import pytest

from kafscale.security.scram import Credential, Mechanism, ScramFailed, ScramServer, credential, decoy, has_password
from kafscale.security.scram import salted_password as salted

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
KNOWN = credential(Mechanism.SHA_256, salted(Mechanism.SHA_256, b"pencil", SALT, 4096), SALT, 4096)
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=" + CLIENT_NONCE.encode()
FINAL = b"c=biws,r=" + (CLIENT_NONCE + SERVER_NONCE).encode() + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def _server(known: Credential = KNOWN) -> ScramServer:
    return ScramServer(Mechanism.SHA_256, lambda _: known, SERVER_NONCE)


def test_the_example_of_rfc_7677() -> None:
    server = _server()
    nonces = CLIENT_NONCE + SERVER_NONCE
    assert server.respond(FIRST) == f"r={nonces},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert (server.user_name, server.complete) == ("user", False)
    assert server.respond(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.complete


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (FINAL.replace(b"p=dH", b"p=dG"), "invalid credentials"),
        (FINAL.replace(b",p=dHzb", b",p="), "invalid credentials"),
        (FINAL.replace(SERVER_NONCE.encode(), b"another"), "invalid nonce"),
        # As librdkafka before 2.6.1 does. Kafka refuses it since 4.0.
        (FINAL.replace(b"r=", b"r=" + CLIENT_NONCE.encode()), "invalid nonce"),
        (FINAL.replace(b"c=biws", b"c=cD10bHM="), "channel binding is not supported"),
        (FINAL[:-1] + b"\x00", "invalid final message"),
    ],
)
def test_a_final_message_that_proves_nothing_is_refused(final: bytes, why: str) -> None:
    server = _server()
    server.respond(FIRST)
    with pytest.raises(ScramFailed, match=why):
        server.respond(final)
    assert not server.complete


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=" + b"a" * 600,
    ],
)
def test_a_first_message_that_is_invalid_is_refused(first: bytes) -> None:
    with pytest.raises(ScramFailed):
        _server().respond(first)


def test_names_may_have_commas_and_equals_signs_and_extensions_may_follow() -> None:
    server = _server()
    server.respond(b"n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=abc,t=true")
    assert server.user_name == "a,b=c"


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_a_password_is_checked_against_a_credential(mechanism: Mechanism) -> None:
    known = credential(mechanism, salted(mechanism, b"secret", b"salt", 4096), b"salt", 4096)
    assert has_password(mechanism, known, b"secret")
    assert not has_password(mechanism, known, b"Secret")
    assert "salt" not in repr(known)


def test_an_unknown_user_is_answered_like_a_known_one() -> None:
    first, again, other = (decoy(Mechanism.SHA_512, b"key", name) for name in ("ann", "ann", "bob"))
    assert first == again
    assert first.salt != other.salt
    assert len(first.stored_key) == len(first.server_key) == 64
    assert not has_password(Mechanism.SHA_512, first, b"")
