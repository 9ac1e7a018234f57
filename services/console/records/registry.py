"""Schemas of a schema registry, by the API of Confluent's. Nothing but the registry of the settings is ever asked."""

import base64
import json
import ssl
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import certifi
import httpcore
import trio

from kafscale.errors import ConfigError
from services.console.records.avro import AvroSchema, WrongAvro
from services.console.records.protobuf import ProtobufSchema, WrongProtobuf
from services.console.records.settings import RecordsSettings

_MOST_BYTES = 1 << 20
_MOST_REFERENCES = 50
_CONNECTIONS = 4
_FAULT_SECONDS = 10.0
"""How long a failed request is not repeated."""
_BROKEN = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError)
_AVRO, _PROTOBUF, _JSON = "AVRO", "PROTOBUF", "JSON"


class SchemaFault(Exception):
    """There is no schema to decode by. The message says why."""


class Decoding(Protocol):
    def decode(self, data: bytes) -> Any:
        """Return the value as JSON has it."""


class _Json:
    def decode(self, data: bytes) -> Any:
        return json.loads(data)


@dataclass(frozen=True, slots=True)
class Schema:
    """``kind`` is its name for users. `decode` raises SchemaFault."""

    kind: str
    _by: Decoding

    def decode(self, data: bytes) -> Any:
        try:
            return self._by.decode(data)
        except (WrongAvro, WrongProtobuf) as error:
            raise SchemaFault(str(error)) from None
        except (ValueError, RecursionError):
            raise SchemaFault("the value is not valid JSON") from None
        except Exception as error:  # noqa: BLE001  whatever a value does to its decoder is the value's fault
            raise SchemaFault(f"the value cannot be decoded: {error!r}") from None


class Registry:
    """The schemas by their ids. Those that were used last are kept."""

    def __init__(self, settings: RecordsSettings) -> None:
        self._url = settings.registry_url
        self._seconds = settings.registry_ms / 1000
        self._most = settings.registry_schemas
        self._headers = [(b"accept", b"application/vnd.schemaregistry.v1+json, application/json")]
        if settings.registry_user is not None:
            login = settings.registry_user.encode() + b":" + settings.registry_password()
            self._headers.append((b"authorization", b"Basic " + base64.b64encode(login)))
        self._limiter = trio.CapacityLimiter(_CONNECTIONS)
        self._known: OrderedDict[int, Schema | SchemaFault] = OrderedDict()
        self._faults: dict[int, float] = {}
        try:
            self._tls = ssl.create_default_context(cafile=settings.registry_ca_file or certifi.where())
        except OSError as error:
            raise ConfigError(
                f"KAFSCALE_CONSOLE_REGISTRY_CA_FILE: {settings.registry_ca_file} cannot be used: {error}"
            ) from None

    @property
    def used(self) -> bool:
        """Whether there is a registry."""
        return self._url is not None

    def known(self, number: int) -> bool:
        """Whether `schema` answers without a request."""
        return number in self._known and self._faults.get(number, float("inf")) > time.monotonic()

    async def schema(self, number: int) -> Schema | SchemaFault:
        """Return the schema with this id, or why there is none."""
        if not self.known(number):
            async with self._limiter:
                found: Schema | SchemaFault
                try:
                    found = await self._fetched(number)
                    self._faults.pop(number, None)
                except SchemaFault as fault:
                    found = fault
                    self._faults[number] = time.monotonic() + _FAULT_SECONDS
            self._known[number] = found
            if len(self._known) > self._most:
                self._faults.pop(self._known.popitem(last=False)[0], None)
        self._known.move_to_end(number)
        return self._known[number]

    async def _fetched(self, number: int) -> Schema:
        path = f"/schemas/ids/{number}"
        found = await self._ask(path)
        kind = found.get("schemaType") or _AVRO
        if kind == _JSON:
            return Schema("JSON Schema", _Json())
        suffix = "?format=serialized" if kind == _PROTOBUF else ""
        referred: dict[str, str] = {}
        await self._follow(found, suffix, referred)
        try:
            if kind == _AVRO:
                return Schema("Avro", AvroSchema(_text(found), referred.values()))
            if kind == _PROTOBUF:
                compiled = _text(await self._ask(path + suffix))
                return Schema("Protobuf", ProtobufSchema([*referred.items(), ("kafscale-console-schema", compiled)]))
        except (WrongAvro, WrongProtobuf) as error:
            raise SchemaFault(str(error)) from None
        raise SchemaFault(f"the schema is of an unknown type: {kind}")

    async def _follow(self, found: dict[str, Any], suffix: str, referred: dict[str, str]) -> None:
        """Add the schemas that one refers to, each behind those that it needs itself."""
        pending = [(each, False) for each in _references(found)]
        asked: dict[str, dict[str, Any]] = {}
        while pending:
            reference, complete = pending.pop()
            try:
                name, subject = str(reference["name"]), quote(str(reference["subject"]), safe="")
                version = int(reference["version"])
            except (TypeError, KeyError, ValueError, OverflowError):
                raise SchemaFault("the registry's answer has an invalid reference") from None
            if complete:
                referred.setdefault(name, _text(asked[name]))
            elif name not in asked:
                if len(asked) >= _MOST_REFERENCES:
                    raise SchemaFault(f"the schema refers to more than {_MOST_REFERENCES} others")
                asked[name] = await self._ask(f"/subjects/{subject}/versions/{version}{suffix}")
                pending.append((reference, True))
                pending += [(each, False) for each in _references(asked[name])]

    async def _ask(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path of the registry. Raises SchemaFault."""
        body = bytearray()
        try:
            with trio.fail_after(self._seconds):
                async with (
                    httpcore.AsyncConnectionPool(ssl_context=self._tls, max_connections=1) as pool,
                    pool.stream("GET", f"{self._url}{path}", headers=self._headers) as response,
                ):
                    # Read to the end, because httpcore's generators need it; the time is bounded.
                    async for piece in response.aiter_stream():
                        body += piece[: _MOST_BYTES + 1 - len(body)]
        except trio.TooSlowError:
            raise SchemaFault(f"the registry did not answer within {self._seconds:g} s") from None
        except _BROKEN as error:
            raise SchemaFault(f"the registry does not answer: {type(error).__name__}") from None
        if response.status != 200:
            raise SchemaFault(f"the registry answers {response.status}")
        if len(body) > _MOST_BYTES:
            raise SchemaFault(f"the registry's answer is longer than {_MOST_BYTES} bytes")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise SchemaFault("the registry's answer is not a JSON object")
        return content


def _references(found: dict[str, Any]) -> list[Any]:
    """Return the references of a schema, the last one first."""
    references = found.get("references") or []
    if not isinstance(references, list):
        raise SchemaFault("the registry's answer has invalid references")
    return references[::-1]


def _text(found: dict[str, Any]) -> str:
    text = found.get("schema")
    if not isinstance(text, str):
        raise SchemaFault("the registry's answer has no schema")
    return text
