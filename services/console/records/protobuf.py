"""Decodes Protobuf by schemas that a registry has compiled, of values and schemas that nobody vouches for. No IO.

The number of values, and what the names of the schema add to them, are bounded.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_KNOWN: tuple[FileDescriptor, ...] = tuple(
    each.DESCRIPTOR
    for each in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
)
_MOST_VALUES = 100_000
_MOST_NAMES = 8 << 20
"""Characters of the names of fields and enum values in one value: a short value can repeat them."""
_MOST_INDEXES = 32
_LONGEST_VARINT = 5


class WrongProtobuf(Exception):
    """The schema or the value cannot be decoded. The message says why."""


class ProtobufSchema:
    """A file with messages. ``files`` are descriptors in base64 with the names by which they are imported.

    Each file follows those that it imports, so that the last one is the schema itself. Raises WrongProtobuf.
    """

    def __init__(self, files: Sequence[tuple[str, str]]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._file = FileDescriptorProto()
        try:
            for known in _KNOWN:
                self._pool.AddSerializedFile(known.serialized_pb)
            for name, text in files:
                self._file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
                self._file.name = name
                self._pool.Add(self._file)
            self._pool.FindFileByName(self._file.name)
        except (ValueError, TypeError, KeyError, DecodeError) as error:
            raise WrongProtobuf(f"the registry does not return a compiled schema that can be used: {error}") from None

    def decode(self, data: bytes) -> Any:
        """Return the fields of the message that ``data`` names first, by indexes. Raises WrongProtobuf."""
        indexes, start = _indexes(data)
        kind: type[Message] = GetMessageClass(self._message(indexes))
        try:
            message = kind.FromString(data[start:])
            _check(message)
            return MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, JsonError, ValueError, TypeError, RecursionError) as error:
            raise WrongProtobuf(f"the value is not a {kind.DESCRIPTOR.full_name}: {error}") from None

    def _message(self, indexes: Sequence[int]) -> Descriptor:
        name = self._file.package
        messages: Sequence[DescriptorProto] = self._file.message_type
        for index in indexes:
            if not 0 <= index < len(messages):
                raise WrongProtobuf(f"the schema has no message {'.'.join(map(str, indexes))}")
            name = f"{name}.{messages[index].name}".lstrip(".")
            messages = messages[index].nested_type
        found: Descriptor = self._pool.FindMessageTypeByName(name)
        return found


def _check(message: Message) -> None:
    """Raise WrongProtobuf if a message has too many values, or their names too many characters."""
    values = names = 0
    pending = [message]
    while pending:
        for field, value in pending.pop().ListFields():
            found, kind = _items(field, value)
            values += len(found)
            if values > _MOST_VALUES:
                raise WrongProtobuf(f"more than {_MOST_VALUES} values")
            for name in _names(field, kind, found):
                names += len(name)
                if names > _MOST_NAMES:
                    raise WrongProtobuf(f"the names of fields and enum values have more than {_MOST_NAMES} characters")
            pending += [each for each in found if isinstance(each, Message)]


def _names(field: FieldDescriptor, kind: FieldDescriptor, found: Sequence[Any]) -> Iterator[str]:
    """Yield the names in the result for a field with these values."""
    yield field.full_name if field.is_extension else field.name
    if kind.enum_type is not None:
        symbols = kind.enum_type.values_by_number
        yield from (symbols[each].name for each in found if each in symbols)


def _items(field: FieldDescriptor, value: Any) -> tuple[Sequence[Any], FieldDescriptor]:
    """Return the values of a field, and the field that says of which type they are."""
    if not field.is_repeated:
        return [value], field
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return list(value.values()), field.message_type.fields_by_name["value"]
    return value, field


def _indexes(data: bytes) -> tuple[list[int], int]:
    """Return which message a value is, from the outermost one on, and where it begins. No indexes mean the first."""
    count, position = _number(data, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise WrongProtobuf(f"{count} indexes of messages")
    found = []
    for _ in range(count):
        index, position = _number(data, position)
        found.append(index)
    return found or [0], position


def _number(data: bytes, position: int) -> tuple[int, int]:
    found = 0
    for shift, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        found |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position + shift + 1
    raise WrongProtobuf("the value ends within the indexes of its message")
