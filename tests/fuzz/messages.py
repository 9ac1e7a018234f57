"""Protobuf messages and JSON values with unusual content."""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

_SIGNED = {Field.CPPTYPE_INT32: 31, Field.CPPTYPE_INT64: 63}
_UNSIGNED = {Field.CPPTYPE_UINT32: 32, Field.CPPTYPE_UINT64: 64}
_DEEPEST = 4
_JSON: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    10**400,
    1.5,
    float("nan"),
    "",
    "x" * 300,
    "\ud800",
    [],
    {},
    [[]],
    "..",
)


class Messages:
    """Makes messages. ``texts`` and ``blobs`` are values for strings and bytes beside unusual ones."""

    def __init__(self, texts: Sequence[str] = (), blobs: Sequence[bytes] = ()) -> None:
        self._texts = (*texts, "", ".", "..", "../../x", "a/b", "\x00", "a\nb", "\x1b[2J", "\u202e", "x" * 300)
        self._likely = texts or self._texts
        self._blobs = (*blobs, b"", bytes(16), b"\xff" * 17)

    def random(self, random: Random, kind: type[M], *, depth: int = 0) -> M:
        """Return a message in which most fields are set."""
        made = kind()
        for field in made.DESCRIPTOR.fields:
            if random.random() < 0.85 and depth < _DEEPEST:
                self._set(random, made, field, depth)
        return made

    def changed(self, random: Random, message: M) -> M:
        """Return a copy in which one to three fields have other values, at any depth."""
        copy = type(message)()
        copy.CopyFrom(message)
        for _ in range(random.randint(1, 3)):
            self._change(random, copy)
        return copy

    def _change(self, random: Random, message: Message) -> None:
        field: Any = random.choice(message.DESCRIPTOR.fields)
        value = getattr(message, field.name)
        if field.message_type is not None and random.random() < 0.8:
            if field.is_repeated:
                if len(value) and not field.message_type.GetOptions().map_entry:
                    self._change(random, random.choice(value))
                return
            if message.HasField(field.name):
                self._change(random, value)
                return
        if field.is_repeated and random.random() < 0.3:
            message.ClearField(field.name)
        else:
            self._set(random, message, field, 2)

    def _set(self, random: Random, message: Message, field: Any, depth: int) -> None:
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(random.choice((0, 1, 2))):
                key = self._scalar(random, field.message_type.fields_by_name["key"])
                described = field.message_type.fields_by_name["value"]
                if described.message_type is None:
                    target[key] = self._scalar(random, described)
            return
        times = random.choice((0, 1, 1, 2)) if field.is_repeated else 1
        for _ in range(times):
            if field.message_type is not None:
                kind = type(target.add()) if field.is_repeated else type(target)
                made = self.random(random, kind, depth=depth + 1)
                (target[-1] if field.is_repeated else target).CopyFrom(made)
            elif field.is_repeated:
                target.append(self._scalar(random, field))
            else:
                setattr(message, field.name, self._scalar(random, field))

    def _scalar(self, random: Random, field: Any) -> Any:
        kind = field.cpp_type
        if kind in _SIGNED:
            half = 1 << _SIGNED[kind]
            return random.choice((0, 0, 0, 1, -1, 3, 1000, half - 1, -half))
        if kind in _UNSIGNED:
            return random.choice((0, 0, 1, 3, 1000, (1 << _UNSIGNED[kind]) - 1))
        if kind == Field.CPPTYPE_ENUM:
            return random.choice((*(value.number for value in field.enum_type.values), 99))
        if kind == Field.CPPTYPE_BOOL:
            return random.random() < 0.5
        if kind in (Field.CPPTYPE_DOUBLE, Field.CPPTYPE_FLOAT):
            return random.choice((0.0, -1.0, float("nan"), float("inf")))
        if field.type == Field.TYPE_BYTES:
            return random.choice(self._blobs)
        return random.choice(self._likely if random.random() < 0.7 else self._texts)


def odd_json(random: Random, value: Any) -> Any:
    """Return a JSON value in which one value, at any depth, is replaced or missing."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice(sorted(value))
        if random.random() < 0.1:
            return {key: each for key, each in value.items() if key != name}
        return {**value, name: odd_json(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], odd_json(random, value[place]), *value[place + 1 :]]
    return random.choice(_JSON)
