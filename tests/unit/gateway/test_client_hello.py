"""The host that a client asks for in its first TLS message."""

from pathlib import Path

import pytest
import trio

from kafscale.process.client_hello import ClientHello
from tests.fuzz import hellos
from tests.support.gateway.harness import running_gateway
from tests.unit.gateway.test_tls import Files, connect


def test_the_host_is_found_when_the_message_is_complete() -> None:
    whole = hellos.hello("Kafka.example.org")
    for message in (whole, hellos.in_records(whole, 50), hellos.in_records(whole, 100)):
        assert ClientHello().feed(message) == "kafka.example.org"
        assert {ClientHello().feed(message[:size]) for size in range(len(message))} == {None}
        assert hellos.by_byte(message) == ("kafka.example.org", len(message))
    assert ClientHello().feed(hellos.hello(None)) == ""


def test_a_message_in_many_records_is_left_to_openssl_before_it_is_complete() -> None:
    whole = hellos.hello("kafka.example.org")
    in_single_bytes = hellos.in_records(whole, 1)
    assert ClientHello().feed(in_single_bytes) == ""
    # Sixteen records with a header of five bytes each, and the first byte of the next one.
    assert hellos.by_byte(in_single_bytes) == ("", 16 * 6 + 1)


def test_a_message_that_announces_too_many_bytes_is_left_to_openssl_at_once() -> None:
    assert hellos.by_byte(b"\x16\x03\x01\x3f\xfc\x01" + bytes(16 << 10)) == ("", 5)
    assert hellos.by_byte(b"\x16\x03\x01\x00\x08\x01\x00\x3f\xfd" + bytes(16 << 10)) == ("", 9)


@pytest.mark.parametrize(
    "other",
    [
        b"\x00\x00\x00\x12\x00\x12",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x01\x02",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        hellos.hello("x.example")[:9] + bytes(1000),
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xff" + bytes(16 << 10),
        hellos.with_host(b"\xff\x80"),
    ],
)
def test_other_bytes_are_left_to_openssl(other: bytes) -> None:
    assert ClientHello().feed(other) == ""
    assert hellos.by_byte(other)[0] == ""


async def test_a_host_that_is_not_ascii_causes_no_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = Files.make(tmp_path, "127.0.0.1")
    settings = files.settings(
        listeners="IN://127.0.0.1:0,OUT://127.0.0.1:0",
        advertised_listeners="IN://in.example:9092,OUT://out.example:9192",
        security_protocol_map="IN:SSL,OUT:SSL",
    )
    async with running_gateway(**settings) as harness:
        asking = await harness.connect()
        await asking.stream.send_all(hellos.with_host(b"\xff\x80"))
        with trio.fail_after(5):
            assert await asking.stream.receive_some(5)
        assert (await (await connect(harness, files.client())).ask(18, 0)).error_code == 0
    assert "Traceback" not in capfd.readouterr().err
