"""What is shown of keys, values and headers: text, JSON, hex, or what a schema says. No bytes are hidden.

Everything returned is JSON. `Decoder.learn` does the only IO.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from services.console.records.registry import Registry, Schema, SchemaFault

AUTO, TEXT, JSON, HEX = "auto", "text", "json", "hex"
FORMS = (AUTO, TEXT, JSON, HEX)
_FRAMED = 5
"""The bytes before a value of a schema: a zero, and the schema's id."""
_MOST_LOOKUPS = 20
_LONGEST_FAULT = 500
# Control and format characters (Unicode's categories Cc and Cf), and separators of lines.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


def escaped(data: bytes) -> str:
    """Return text with escapes for invalid UTF-8, and as `visible` does."""
    return visible(data.decode("utf-8", "backslashreplace"))


def visible(text: str) -> str:
    """Return text with escapes for characters that are not visible."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode-escape").decode(), text)


class Decoder:
    """Decodes for one request. ``largest``: longer data is neither decoded as JSON nor by a schema."""

    def __init__(self, registry: Registry, *, largest: int) -> None:
        self._registry = registry
        self._largest = largest
        self._schemas: dict[int, Schema | SchemaFault] = {}

    async def learn(self, found: Iterable[bytes | None]) -> None:
        """Get the schemas that these values name, of which only so many are asked for in a request."""
        if not self._registry.used:
            return
        for number in {_schema_id(data) for data in found if data is not None and _is_framed(data)}:
            if number in self._schemas:
                continue
            if len(self._schemas) >= _MOST_LOOKUPS and not self._registry.known(number):
                self._schemas[number] = SchemaFault("too many schemas in one request")
            else:
                self._schemas[number] = await self._registry.schema(number)

    def document(self, data: bytes | None) -> tuple[bool, Any]:
        """Return whether a value is JSON or has a schema, and what it then is."""
        if data is None or len(data) > self._largest:
            return False, None
        try:
            schema = self._schema(data)
            return True, json.loads(data) if schema is None else schema.decode(data[_FRAMED:])
        except (ValueError, RecursionError, SchemaFault):
            return False, None

    def shown(self, data: bytes | None, form: str, most: int, *, pretty: bool = False) -> dict[str, Any]:
        """Return a key or value for a page, of up to ``most`` characters. ``form`` is one of `FORMS`."""
        if data is None:
            return {"size": -1, "form": "null", "text": "", "cut": False}
        found: dict[str, Any] = {"size": len(data)}
        text, kind = "", form
        try:
            text, kind = self._text(data, form, most, pretty=pretty)
        except SchemaFault as fault:
            found |= {"schema": _schema_id(data), "fault": visible(str(fault)[:_LONGEST_FAULT])}
            text, kind = data[:most].hex(" "), HEX
        if kind in (TEXT, HEX):
            cut = len(data) > most or len(text) > most
        else:
            cut = len(text) > most
            if form == AUTO and kind != JSON:
                found["schema"] = _schema_id(data)
        return {**found, "form": kind, "text": text[:most], "cut": cut}

    def _text(self, data: bytes, form: str, most: int, *, pretty: bool) -> tuple[str, str]:
        if form == HEX:
            return data[:most].hex(" "), HEX
        if form in (AUTO, JSON) and len(data) <= self._largest:
            schema = self._schema(data) if form == AUTO else None
            if schema is not None:
                return _of_schema(schema, data, most, pretty=pretty), schema.kind
            if form == JSON or data[:1] in (b"{", b"["):
                try:
                    return _as_json(json.loads(data), most, pretty=pretty), JSON
                except (ValueError, RecursionError):
                    return escaped(data[:most]), TEXT
        return escaped(data[:most]), TEXT

    def _schema(self, data: bytes) -> Schema | None:
        """Return the schema that a value names, or None if it names none. Raises SchemaFault."""
        if not self._registry.used or not _is_framed(data):
            return None
        found = self._schemas.get(_schema_id(data), SchemaFault("the schema has not been asked for"))
        if isinstance(found, SchemaFault):
            raise found
        return found


def _is_framed(data: bytes) -> bool:
    return len(data) >= _FRAMED and data[0] == 0


def _schema_id(data: bytes) -> int:
    return int.from_bytes(data[1:_FRAMED], "big")


def _of_schema(schema: Schema, data: bytes, most: int, *, pretty: bool) -> str:
    try:
        return _as_json(schema.decode(data[_FRAMED:]), most, pretty=pretty)
    except RecursionError:
        raise SchemaFault("the value is nested too deep") from None


def _as_json(value: Any, most: int, *, pretty: bool) -> str:
    """Return a value as JSON. It ends where it is longer than ``most``."""
    encoder = json.JSONEncoder(ensure_ascii=False, indent=2 if pretty else None)
    parts, size = [], 0
    # Not as a whole, because the indentation of a deep value is much longer than the value.
    for part in encoder.iterencode(value):
        parts.append(part)
        size += len(part)
        if size > most:
            break
    return visible("".join(parts)[: most + 1])
