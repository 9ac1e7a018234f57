"""Avro and Protobuf as a registry describes them, and values that would harm a decoder."""

import base64
import json
import struct
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions

from services.console.records.avro import AvroSchema, WrongAvro
from services.console.records.protobuf import ProtobufSchema, WrongProtobuf


def zigzag(number: int) -> bytes:
    """Return a number as Avro and the indexes of Protobuf messages have it."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def text(value: str) -> bytes:
    return zigzag(len(value.encode())) + value.encode()


LONG = {"type": "record", "name": "R", "fields": [{"name": "x" * 1000, "type": "null"}]}
SYMBOL = {"type": "enum", "name": "E", "symbols": ["x" * 1000]}


def test_avro_of_every_type() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    fields: list[tuple[str, Any]] = [
        ("none", "null"),
        ("yes", "boolean"),
        ("int", "int"),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "bytes"),
        ("text", "string"),
        ("list", {"type": "array", "items": "int"}),
        ("map", {"type": "map", "values": ["null", "string"]}),
        ("enum", {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}),
        ("fixed", {"type": "fixed", "name": "Two", "size": 2}),
        ("again", "Suit"),
        ("money", money),
        ("other", "other.Part"),
        ("more", ["null", "Whole"]),
    ]
    schema = {
        "type": "record",
        "name": "Whole",
        "namespace": "test",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }
    referred = json.dumps({"type": "record", "name": "other.Part", "fields": [{"name": "n", "type": "int"}]})
    value = (
        b"\x01" + zigzag(-3) + zigzag(2**40) + struct.pack("<fd", 0.5, 0.25) + zigzag(2) + b"\xff\x00" + text("\u00e4")
    )
    value += zigzag(-2) + zigzag(2) + zigzag(1) + zigzag(2) + zigzag(1) + zigzag(3) + zigzag(0)
    value += zigzag(1) + text("k") + zigzag(1) + text("v") + zigzag(0)
    value += zigzag(1) + b"\x00\x01" + zigzag(0) + zigzag(2) + (-1234).to_bytes(2, "big", signed=True) + zigzag(9)
    assert AvroSchema(json.dumps(schema), [referred]).decode(value + zigzag(0)) == {
        "none": None,
        "yes": True,
        "int": -3,
        "long": 2**40,
        "float": 0.5,
        "double": 0.25,
        "bytes": "\xff\x00",
        "text": "\u00e4",
        "list": [1, 2, 3],
        "map": {"k": "v"},
        "enum": "SPADES",
        "fixed": "\x00\x01",
        "again": "HEARTS",
        "money": "-12.34",
        "other": {"n": 9},
        "more": None,
    }


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        # A library would recurse a million times, or repeat an empty value without an end.
        ({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}, b"\x02" * 10**6, "deep"),
        ({"type": "array", "items": "null"}, zigzag(10**12) + b"\0", "more than 100000 values"),
        ("string", zigzag(10**9) + b"x", "ends too early"),
        ("string", zigzag(-1), "ends too early"),
        ("long", b"\xff" * 20, "within a number"),
        (["null", "int"], zigzag(2), "no branch 2"),
        ("int", zigzag(1) + b"\0", "left over"),
        ({"type": "bytes", "logicalType": "decimal", "scale": 10**9}, zigzag(1) + b"\1", "too large"),
        # A name costs a value nothing.
        ({"type": "array", "items": LONG}, zigzag(30_000) + b"\0", "names"),
        ({"type": "array", "items": SYMBOL}, zigzag(30_000) + b"\0" * 30_001, "names"),
    ],
)
def test_hostile_avro_is_an_error(schema: Any, value: bytes, message: str) -> None:
    with pytest.raises(WrongAvro, match=message):
        AvroSchema(json.dumps(schema)).decode(value)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{}",
        '"unknown"',
        "[" * 10_000,
        '{"type":"record","name":"N"}',
        "1",
        "null",
        '{"type": "fixed", "name": "F", "size": 1e999}',
        '{"type": "bytes", "logicalType": "decimal", "scale": 1e999}',
        '{"type": "enum", "name": "E", "symbols": [{}]}',
        json.dumps({"type": "record", "name": "N", "fields": [{"name": "x" * 1001, "type": "null"}]}),
    ],
)
def test_an_invalid_avro_schema_is_an_error(schema: str) -> None:
    with pytest.raises(WrongAvro):
        AvroSchema(schema).decode(b"")


def _message(name: str, *fields: tuple[str, int, str], nested: DescriptorProto | None = None) -> DescriptorProto:
    kinds = {"int": FieldDescriptorProto.TYPE_INT64, "string": FieldDescriptorProto.TYPE_STRING}
    message = DescriptorProto(name=name)
    for field, number, kind in fields:
        added = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if kind in kinds:
            added.type = kinds[kind]
        else:
            added.type_name = kind
            added.type = FieldDescriptorProto.TYPE_MESSAGE
    if nested is not None:
        message.nested_type.append(nested)
    return message


def _serialized(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_protobuf_by_the_indexes_of_its_message_with_imports() -> None:
    part = FileDescriptorProto(name="x", package="p", syntax="proto3", message_type=[_message("Part", ("n", 1, "int"))])
    whole = FileDescriptorProto(
        name="y",
        package="w",
        syntax="proto3",
        dependency=["shared/part.proto", "google/protobuf/timestamp.proto"],
        message_type=[
            _message("Zebra", ("part", 1, ".p.Part"), ("at", 2, ".google.protobuf.Timestamp")),
            _message("Ant", nested=_message("Leg", ("name", 3, "string"))),
        ],
    )
    schema = ProtobufSchema([("shared/part.proto", _serialized(part)), ("whole", _serialized(whole))])
    assert schema.decode(b"\x00\x0a\x02\x08\x05\x12\x02\x08\x01") == {"part": {"n": "5"}, "at": "1970-01-01T00:00:01Z"}
    assert schema.decode(zigzag(2) + zigzag(1) + zigzag(0) + b"\x1a\x01z") == {"name": "z"}
    for wrong in (b"", b"\xff", zigzag(1) + zigzag(7), zigzag(1000), b"\x00\x0a\xff"):
        with pytest.raises(WrongProtobuf):
            schema.decode(wrong)
    with pytest.raises(WrongProtobuf):
        ProtobufSchema([("whole", _serialized(whole))])
    with pytest.raises(WrongProtobuf):
        ProtobufSchema([("text", 'syntax = "proto3";')])


def test_hostile_protobuf_is_an_error() -> None:
    symbol, long = "S" * 900_000, "f" * 900_000
    nested = _message("Inner", (long, 1, "int"))
    outer = _message("Outer", ("inner", 1, ".w.Inner"), ("at", 3, ".google.protobuf.Timestamp"))
    outer.field[0].label = FieldDescriptorProto.LABEL_REPEATED
    kinds = FieldDescriptorProto
    outer.field.add(name="e", number=2, label=kinds.LABEL_REPEATED, type=kinds.TYPE_ENUM, type_name=".w.E")
    outer.field.add(name="n", number=4, label=kinds.LABEL_REPEATED, type=kinds.TYPE_INT64)
    entry = DescriptorProto(name="MEntry", options=MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_INT64)
    entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_ENUM, type_name=".w.E")
    outer.field.add(
        name="m", number=5, label=kinds.LABEL_REPEATED, type=kinds.TYPE_MESSAGE, type_name=".w.Outer.MEntry"
    )
    outer.nested_type.append(entry)
    file = FileDescriptorProto(
        name="y",
        package="w",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        message_type=[outer, nested],
    )
    file.enum_type.add(name="E").value.add(name=symbol, number=0)
    schema = ProtobufSchema([("y", _serialized(file))])
    assert schema.decode(b"\x00\x12\x02\x00\x00") == {"e": [symbol, symbol]}
    assert schema.decode(b"\x00\x2a\x04\x08\x01\x10\x00") == {"m": {"1": symbol}}
    packed = b"\x90\x4e" + b"\x00" * 10_000
    repeated = b"".join(b"\x2a\x04\x08" + bytes([key]) + b"\x10\x00" for key in range(100))
    many = b"\xc0\x84\x3d" + b"\x00" * 1_000_000
    for value, message in (
        (b"\x0a\x02\x08\x01" * 20, "names"),
        (b"\x12" + packed, "names"),
        (repeated, "names"),
        (b"\x22" + many, "more than 100000 values"),
        (b"\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f", "is not a w.Outer"),
    ):
        with pytest.raises(WrongProtobuf, match=message):
            schema.decode(b"\x00" + value)
