"""Decodes Avro's binary form, of values and schemas that nobody vouches for. No IO.

It is not left to a library, because those recurse as deep as the value says, and repeat an item of zero bytes as often
as it says. Here, depth, the number of values, and what the names of the schema add to them are bounded.

A result consists of what JSON has. Bytes are text of the characters 0 to 255, as in Avro's JSON form; decimals are
text; other logical types are the numbers that are stored.
"""

import decimal
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_MOST_DEPTH = 128
_MOST_VALUES = 100_000
_MOST_NAMES = 8 << 20
"""Characters of the names of fields and symbols in one value: a short value can repeat them."""
_LONGEST_NAME = 1000
_MOST_PRECISION = 1000
_LONGEST_VARINT = 10


class WrongAvro(Exception):
    """The schema or the value cannot be decoded. The message says why."""


class _Input:
    """The bytes of a value. ``values``: how many it has contained so far. ``names``: the characters of their names."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self.values = 0
        self.names = 0
        self.depth = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise WrongAvro("the value ends too early")
        found = self._data[self.position : end]
        self.position = end
        return found

    def number(self) -> int:
        found = shift = 0
        for byte in self._data[self.position : self.position + _LONGEST_VARINT]:
            self.position += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise WrongAvro("the value ends within a number")

    def name(self, size: int) -> None:
        """Count the characters of names that become a part of the value."""
        self.names += size
        if self.names > _MOST_NAMES:
            raise WrongAvro(f"the names of fields and symbols have more than {_MOST_NAMES} characters")

    @property
    def rest(self) -> int:
        return len(self._data) - self.position


_Decode = Callable[[_Input], Any]


def _boolean(source: _Input) -> bool:
    return source.take(1) != b"\x00"


def _fraction(form: str) -> _Decode:
    size = struct.calcsize(form)
    return lambda source: struct.unpack(form, source.take(size))[0]


def _bytes(source: _Input) -> bytes:
    return source.take(source.number())


_PRIMITIVES: Mapping[str, _Decode] = {
    "null": lambda _: None,
    "boolean": _boolean,
    "int": _Input.number,
    "long": _Input.number,
    "float": _fraction("<f"),
    "double": _fraction("<d"),
    "bytes": lambda source: _bytes(source).decode("latin-1"),
    "string": lambda source: _bytes(source).decode("utf-8", "backslashreplace"),
}


class AvroSchema:
    """A schema, after the schemas that it refers to. Raises WrongAvro."""

    def __init__(self, text: str, referred: Iterable[str] = ()) -> None:
        self._named: dict[str, _Decode] = {}
        try:
            for each in referred:
                self._compiled(json.loads(each), "")
            self._decode = self._compiled(json.loads(text), "")
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise WrongAvro(f"the schema is not valid: {error!r}") from None

    def decode(self, data: bytes) -> Any:
        """Return the value. Raises WrongAvro."""
        source = _Input(data)
        found = self._decode(source)
        if source.rest:
            raise WrongAvro(f"{source.rest} bytes are left over after the value")
        return found

    def _compiled(self, schema: Any, namespace: str) -> _Decode:
        if isinstance(schema, str):
            return _bounded(self._reference(schema, namespace))
        if isinstance(schema, list):
            return _bounded(_union([self._compiled(each, namespace) for each in schema]))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._compiled(kind, namespace)
        match kind:
            case "array":
                return _bounded(_array(self._compiled(schema["items"], namespace)))
            case "map":
                return _bounded(_map(self._compiled(schema["values"], namespace)))
            case "record" | "error" | "enum" | "fixed":
                return _bounded(self._define(schema, namespace))
        if schema.get("logicalType") == "decimal" and kind == "bytes":
            return _bounded(_decimal(_bytes, schema))
        return _bounded(self._reference(kind, namespace))

    def _reference(self, name: str, namespace: str) -> _Decode:
        primitive = _PRIMITIVES.get(name)
        if primitive is not None:
            return primitive
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._named:
            full = name
        if full not in self._named:
            raise WrongAvro(f"the schema does not define {name}")

        # Looked up when it is needed, because a record may contain itself.
        def decode(source: _Input) -> Any:
            return self._named[full](source)

        return decode

    def _define(self, schema: Mapping[str, Any], namespace: str) -> _Decode:
        name = _name(schema["name"])
        namespace = name.rpartition(".")[0] or _name(schema.get("namespace", namespace) or "")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self._named[full] = _undefined
        match schema["type"]:
            case "enum":
                self._named[full] = _enum([_name(each) for each in schema["symbols"]])
            case "fixed":
                self._named[full] = _fixed(schema)
            case _:
                fields = [(_name(each["name"]), self._compiled(each["type"], namespace)) for each in schema["fields"]]
                self._named[full] = _record(fields)
        return self._named[full]


def _undefined(_: _Input) -> Any:
    raise WrongAvro("the schema uses a type that it does not define")


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError(f"a name is no text of up to {_LONGEST_NAME} characters")
    return value


def _bounded(decode: _Decode) -> _Decode:
    def bounded(source: _Input) -> Any:
        source.values += 1
        if source.values > _MOST_VALUES:
            raise WrongAvro(f"more than {_MOST_VALUES} values")
        source.depth += 1
        if source.depth > _MOST_DEPTH:
            raise WrongAvro(f"nested more than {_MOST_DEPTH} deep")
        found = decode(source)
        source.depth -= 1
        return found

    return bounded


def _record(fields: list[tuple[str, _Decode]]) -> _Decode:
    names = sum(len(field) for field, _ in fields)

    def decode(source: _Input) -> dict[str, Any]:
        source.name(names)
        return {field: decode(source) for field, decode in fields}

    return decode


def _union(branches: list[_Decode]) -> _Decode:
    def decode(source: _Input) -> Any:
        number = source.number()
        if not 0 <= number < len(branches):
            raise WrongAvro(f"the union has no branch {number}")
        return branches[number](source)

    return decode


def _blocks(source: _Input) -> Iterable[int]:
    """Yield the number of items in each block. A negative one is followed by the block's bytes."""
    while count := source.number():
        if count < 0:
            source.number()
        yield abs(count)


def _array(item: _Decode) -> _Decode:
    return lambda source: [item(source) for count in _blocks(source) for _ in range(count)]


def _map(value: _Decode) -> _Decode:
    key = _PRIMITIVES["string"]
    return lambda source: {key(source): value(source) for count in _blocks(source) for _ in range(count)}


def _enum(symbols: list[str]) -> _Decode:
    def decode(source: _Input) -> Any:
        number = source.number()
        if not 0 <= number < len(symbols):
            raise WrongAvro(f"the enum has no symbol {number}")
        source.name(len(symbols[number]))
        return symbols[number]

    return decode


def _fixed(schema: Mapping[str, Any]) -> _Decode:
    size = int(schema["size"])
    if schema.get("logicalType") == "decimal":
        return _decimal(lambda source: source.take(size), schema)
    return lambda source: source.take(size).decode("latin-1")


def _decimal(take: Callable[[_Input], bytes], schema: Mapping[str, Any]) -> _Decode:
    scale = int(schema.get("scale", 0))

    def decode(source: _Input) -> str:
        data = take(source)
        if len(data) > _MOST_PRECISION or not 0 <= scale <= _MOST_PRECISION:
            raise WrongAvro("the decimal is too large")
        return str(decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _CONTEXT))

    return decode


_CONTEXT = decimal.Context(prec=4 * _MOST_PRECISION)
