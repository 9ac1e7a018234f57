"""SCRAM on the client's side: the example of RFC 7677, the server's side, and servers that prove nothing."""

import pytest

from kafscale.security.scram import Mechanism, ScramFailed, ScramServer, credential, salted_password
from kafscale.security.scram_client import ScramClient

NONCE, THEIRS = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={NONCE}{THEIRS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _client() -> ScramClient:
    return ScramClient(Mechanism.SHA_256, "user", b"pencil", NONCE)


def test_the_example_of_rfc_7677() -> None:
    client = _client()
    assert client.first == f"n,,n=user,r={NONCE}".encode()
    proof = b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.final(SERVER_FIRST) == f"c=biws,r={NONCE}{THEIRS}".encode() + proof
    client.finish(SERVER_FINAL)


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_the_server_accepts_only_the_password(mechanism: Mechanism) -> None:
    name, password, salt = "a,b=c \u00fc", "p,=\u00e4".encode(), b"salt" * 6
    known = credential(mechanism, salted_password(mechanism, password, salt, 8192), salt, 8192)
    for given in (password, password + b" "):
        server, client = ScramServer(mechanism, lambda _: known, "server"), ScramClient(mechanism, name, given, "own")
        final = client.final(server.respond(client.first))
        assert server.user_name == name
        if given == password:
            client.finish(server.respond(final))
            assert server.complete
        else:
            with pytest.raises(ScramFailed):
                server.respond(final)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        SERVER_FIRST.replace(NONCE.encode(), b"another"),
        SERVER_FIRST.replace(THEIRS.encode(), b""),
        SERVER_FIRST.replace(b"s=W", b"s==W"),
        SERVER_FIRST.replace(b"s=W22Z", b"s=W22"),
        SERVER_FIRST.replace(b"4096", b"4095"),
        SERVER_FIRST.replace(b"4096", b"1000000000"),
        b"m=ext," + SERVER_FIRST,
        b"e=unknown-user",
    ],
)
def test_an_invalid_first_message_is_refused(answer: bytes) -> None:
    with pytest.raises(ScramFailed):
        _client().final(answer)


@pytest.mark.parametrize("answer", [b"", b"v=AAAA", SERVER_FINAL.replace(b"v=6", b"v=7"), b"e=other-error", b"v="])
def test_a_server_that_does_not_know_the_credential_is_refused(answer: bytes) -> None:
    client = _client()
    with pytest.raises(ScramFailed):
        client.finish(SERVER_FINAL)
    client.final(SERVER_FIRST)
    with pytest.raises(ScramFailed):
        client.finish(answer)
