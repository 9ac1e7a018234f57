"""The schema registry: what is asked, kept and bounded, and what a page says if it does not answer well."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
import trio

from kafscale.process.http import HttpServer, Request, Response, text
from services.console.records.avro import AvroSchema
from services.console.records.decoding import Decoder
from services.console.records.registry import Registry, SchemaFault
from tests.unit.console.records.fakes import settings

STRING = json.dumps({"schema": '"string"'})


class Answers:
    """A registry that answers with these bodies by path, and remembers what it was asked."""

    def __init__(self, bodies: dict[str, str]) -> None:
        self.bodies = bodies
        self.asked: list[str] = []

    async def answer(self, request: Request) -> Response:
        path = request.path + (f"?{request.query}" if request.query else "")
        self.asked.append(path)
        if path == "/schemas/ids/99":
            await trio.sleep_forever()
        body = self.bodies.get(path)
        return Response(body.encode()) if body is not None else text(HTTPStatus.NOT_FOUND, "none")


@asynccontextmanager
async def registry(bodies: dict[str, str], **values: str) -> AsyncIterator[tuple[Registry, Answers]]:
    answers = Answers(bodies)
    async with trio.open_nursery() as nursery:
        server = HttpServer(answers.answer, setting="KAFSCALE_TEST", max_connections=10)
        port = await nursery.start(server.run, "127.0.0.1", 0)
        yield Registry(settings(REGISTRY_URL=f"http://127.0.0.1:{port}", REGISTRY_MS="2000", **values)), answers
        nursery.cancel_scope.cancel()


def framed(number: int, value: bytes = b"\x02x") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


async def shown(registry: Registry, *values: bytes) -> list[dict[str, Any]]:
    decoder = Decoder(registry, largest=1000)
    await decoder.learn(values)
    return [decoder.shown(value, "auto", 100) for value in values]


async def test_a_schema_is_asked_for_once_and_those_used_last_are_kept() -> None:
    bodies = {f"/schemas/ids/{number}": STRING for number in range(4)}
    async with registry(bodies, REGISTRY_SCHEMAS="2") as (found, answers):
        for _ in range(3):
            assert [each["text"] for each in await shown(found, framed(1), framed(1), framed(2))] == ['"x"'] * 3
        assert sorted(answers.asked) == ["/schemas/ids/1", "/schemas/ids/2"]
        await shown(found, framed(3))
        assert (found.known(3), sum(map(found.known, (1, 2)))) == (True, 1)


async def test_a_fault_is_shown_beside_the_bytes_and_not_asked_for_again_at_once() -> None:
    long = json.dumps({"schema": '"' + "x" * (1 << 20) + '"'})
    wrong = {"1": "[]", "2": long, "3": '{"schemaType": "XML", "schema": ""}', "4": '{"schema": "{}"}', "5": STRING}
    async with registry({f"/schemas/ids/{number}": body for number, body in wrong.items()}) as (found, answers):
        values = [framed(number) for number in (1, 2, 3, 4, 6, 99)] + [framed(5, b"\xff")]
        faults = await shown(found, *values)
        assert [each["text"] for each in faults] == [value.hex(" ") for value in values]
        expected = ("not a JSON object", "longer than", "unknown type", "not valid", "answers 404", "within 2 s", "")
        for each, part in zip(faults, expected, strict=True):
            assert part in each["fault"]
        before = len(answers.asked)
        await shown(found, *values)
        assert len(answers.asked) == before


async def test_one_request_asks_for_so_many_schemas_only() -> None:
    async with registry({}) as (found, answers):
        found_faults = await shown(found, *(framed(number) for number in range(100, 200)))
        assert len(answers.asked) == 20
        assert sum("too many schemas" in each["fault"] for each in found_faults) == 80


async def test_what_a_schema_refers_to_comes_from_the_registry_alone() -> None:
    part = {"type": "record", "name": "other.Part", "fields": [{"name": "n", "type": "int"}]}
    reference = {"name": "http://evil.example/", "subject": "../../other?x=http://evil.example", "version": 3}
    at = "/subjects/..%2F..%2Fother%3Fx%3Dhttp%3A%2F%2Fevil.example/versions/3"
    bodies = {
        "/schemas/ids/1": json.dumps({"schema": '"other.Part"', "references": [reference]}),
        at: json.dumps({"schema": json.dumps(part), "references": [reference]}),
    }
    async with registry(bodies) as (found, answers):
        (first,) = await shown(found, framed(1, b"\x0a"))
        assert (first["form"], first["text"]) == ("Avro", '{"n": 5}')
        assert answers.asked == ["/schemas/ids/1", at]


@pytest.mark.parametrize(
    "references",
    [
        7,
        {"name": "n"},
        ["n"],
        [{"name": "n", "subject": "s", "version": float("inf")}],
        [{"name": "n", "subject": "\ud800", "version": 1}],
    ],
)
async def test_references_that_are_none_are_a_fault(references: Any) -> None:
    body = json.dumps({"schema": '"int"', "references": references})
    async with registry({"/schemas/ids/1": body}) as (found, _):
        (each,) = await shown(found, framed(1, b"\x0a"))
        assert "invalid reference" in each["fault"]


async def test_a_value_that_breaks_its_decoder_is_shown_with_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: AvroSchema, data: bytes) -> Any:
        raise AssertionError(data)

    monkeypatch.setattr(AvroSchema, "decode", broken)
    async with registry({"/schemas/ids/1": STRING}) as (found, _):
        (each,) = await shown(found, framed(1))
        assert "cannot be decoded" in each["fault"]


async def test_references_are_bounded() -> None:
    def schema(number: int) -> str:
        return json.dumps(
            {"schema": '"int"', "references": [{"name": f"n{number}", "subject": "s", "version": number}]}
        )

    bodies = {"/schemas/ids/1": schema(0)}
    bodies |= {f"/subjects/s/versions/{number}": schema(number + 1) for number in range(200)}
    async with registry(bodies) as (found, answers):
        fault = await found.schema(1)
        assert isinstance(fault, SchemaFault)
        assert "more than 50" in str(fault)
        assert len(answers.asked) == 51


async def test_json_schema_protobuf_and_values_without_a_schema() -> None:
    bodies = {
        "/schemas/ids/1": '{"schemaType": "JSON", "schema": "{}"}',
        "/schemas/ids/2": '{"schemaType": "PROTOBUF", "schema": "message M {}"}',
        "/schemas/ids/2?format=serialized": '{"schemaType": "PROTOBUF", "schema": "message M {}"}',
    }
    async with registry(bodies) as (found, _):
        json_, protobuf, plain, text_ = await shown(found, framed(1, b'{"a":1}'), framed(2), b"[1]", b"\xffx")
        assert (json_["form"], json_["text"]) == ("JSON Schema", '{"a": 1}')
        assert "does not return a compiled schema" in protobuf["fault"]
        assert (plain["form"], plain["text"], text_["form"], text_["text"]) == ("json", "[1]", "text", "\\xffx")
        deep = b"[" * 900
        assert [each["form"] for each in await shown(found, deep)] == ["text"]


def test_a_certificate_of_another_ca_is_not_accepted_by_default() -> None:
    found = Registry(settings(REGISTRY_URL="https://127.0.0.1:1"))
    assert found._tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://ann:secret@host", "http://host/?a=b", "host:8081", "http://", "http://host:x"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(Exception, match="KAFSCALE_CONSOLE_REGISTRY_URL"):
        settings(REGISTRY_URL=url)
