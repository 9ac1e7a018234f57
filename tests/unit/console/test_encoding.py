"""JSON of messages: the same as protobuf's own, and other tasks run while a long list is encoded."""

import json
from typing import Any

import pytest
import trio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kafscale.rpc.admin import SERVICE
from kafscale.v1 import admin_pb2 as pb
from services.console.api.encoding import as_dict, encode

_REPLIES = sorted({method.output_type.full_name: method.output_type for method in SERVICE.methods}.items())


def _filled(descriptor: Descriptor) -> Message:
    """Return a message with every field set, of a oneof the last one."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        target: Any = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            target["key"] = _value(value)
        elif field.message_type is not None and field.is_repeated:
            target.extend([_filled(field.message_type), GetMessageClass(field.message_type)()])
        elif field.message_type is not None:
            target.CopyFrom(_filled(field.message_type))
        elif field.is_repeated:
            target.extend([_value(field)] * 2)
        else:
            setattr(message, field.name, _value(field))
    return message


def _value(field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"\x00\xff"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return '<b>"\u202e\n'
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    return {FieldDescriptor.CPPTYPE_BOOL: True, FieldDescriptor.CPPTYPE_DOUBLE: 2.5}.get(field.cpp_type, 7)


@pytest.mark.parametrize("descriptor", [each for _, each in _REPLIES], ids=[name for name, _ in _REPLIES])
async def test_a_message_has_the_json_of_protobuf(descriptor: Descriptor) -> None:
    for message in (GetMessageClass(descriptor)(), _filled(descriptor)):
        expected = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        assert as_dict(message) == expected
        assert json.loads(await encode(message)) == expected


async def test_other_tasks_run_while_a_long_list_is_encoded() -> None:
    reply = pb.ListTopicsReply(topics=[pb.TopicStatus(name=f"topic-{number}") for number in range(2600)])
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        encoded = await encode(reply)
        nursery.cancel_scope.cancel()
    assert turns >= 4
    assert [each["name"] for each in json.loads(encoded)["topics"]] == [each.name for each in reply.topics]
