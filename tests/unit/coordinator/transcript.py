"""Replay a scenario of groups, and write the effects of each step as text.

A line is ``@milliseconds verb words``; lines that begin with ``>`` are its effects, ``#`` is a comment. Between two
steps the due timers fire, each written as ``@milliseconds timer``. Tickets are numbers in the order of
requests; a name after ``as`` stands for the member id of the reply to that request, in this and later lines.
"""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kafscale.paths import GroupKeys
from kafscale.v1 import coordinator_pb2 as pb
from services.coordinator.effects import Effects, Record
from tests.support.coordinator.harness import GROUP, LIMITS, World, subscription


class Transcript(World):
    """A world that records its effects as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, str] = {}  # member id -> name
        self.awaited: dict[int, str] = {}  # ticket -> name of the member whose JoinGroup it is
        super().__init__(LIMITS)

    def done(self, group: str, effects: Effects) -> Effects:
        for reply in effects.replies:
            if (
                isinstance(reply.message, pb.JoinGroupReply)
                and reply.message.member_id
                and reply.ticket in self.awaited
            ):
                self.names.setdefault(reply.message.member_id, self.awaited[reply.ticket])
        for record in effects.stage:
            self.write(f"stage {self._record(record)}")
        for record in effects.commit:
            self.write(f"commit {self._record(record)}")
        for reply in effects.replies:
            self.write(f"reply {reply.ticket} {_text(reply.message)}")
        for key in effects.sweep:
            self.write(f"sweep {self._short(key)}")
        for timer, deadline in effects.timers.items():
            name = " ".join([timer.kind.value, *([timer.member_id] if timer.member_id else [])])
            self.write(f"timer {name} {'off' if deadline is None else f'at {deadline}'}")
        super().done(group, effects)
        state = self.groups[group].state.value if group in self.groups else "gone"
        self.write(state)
        return effects

    def write(self, text: str) -> None:
        self.lines.append(f"> {self._renamed(text)}".rstrip())

    def member(self, name: str) -> str:
        return next((member_id for member_id, known in self.names.items() if known == name), name)

    def pass_until(self, moment: int) -> None:
        """Fire due timers, each on its own line."""
        while (due := self.next_timer()) is not None and self.deadlines[due] <= moment:
            timer = due[1]
            line = f"@{self.deadlines[due]} timer {timer.kind.value} {timer.member_id}"
            self.lines.append(self._renamed(line).rstrip())
            self.fire(due)
        self.advance(moment - self.now_ms)

    def step(self, verb: str, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        steps: dict[str, Callable[[list[str], dict[str, str]], object]] = {
            "join": self._join,
            "sync": self._sync,
            "heartbeat": lambda p, o: self.beat(self.member(p[0]), int(p[1]), o.get("instance")),
            "leave": lambda p, o: self.leave(*(self._leaving(name) for name in p)),
            "commit": self._commit,
            "fetch": lambda p, o: self.fetch(),
            "describe": lambda p, o: self.describe(),
            "delete-offset": lambda p, o: self.delete_offsets((p[0], int(p[1]))),
            "delete-group": lambda p, o: self.delete(),
            "expire-offsets": lambda p, o: self.expire_offsets(*p),
            "new-coordinator": lambda p, o: self._replace(),
        }
        steps[verb](plain, options)

    def _join(self, plain: list[str], options: dict[str, str]) -> None:
        name = plain[0]
        self.awaited[self.tickets + 1] = options.get("as", name)
        fields = {
            "instance_id": options.get("instance"),
            "metadata": subscription(*options.get("topics", "t").split(",")),
            "names": tuple(options.get("protocols", "range").split(",")),
            "member_id_required": "id-first" in plain,
            "skips_assignment": "v9" in plain,
            "client_id": name,
        }
        self.join(self.member(name) if self.member(name) != name and "without-id" not in plain else "", **fields)

    def _sync(self, plain: list[str], options: dict[str, str]) -> None:
        assignments = {self.member(name): text.encode() for name, text in options.items()}
        self.sync(self.member(plain[0]), int(plain[1]), assignments)

    def _commit(self, plain: list[str], options: dict[str, str]) -> None:
        offsets = {}
        for key, value in options.items():
            topic, partition = key.rsplit("-", 1)
            offsets[topic, int(partition)] = int(value)
        if plain:
            self.commit(offsets, self.member(plain[0]), int(plain[1]))
        else:
            self.commit(offsets)

    def _leaving(self, name: str) -> str | tuple[str, str]:
        return ("", name.removeprefix("instance:")) if name.startswith("instance:") else self.member(name)

    def _replace(self) -> None:
        other = Transcript()
        other.lines, other.names, other.tickets = self.lines, self.names, self.tickets
        other.now_ms, other.store, other.revision = self.now_ms, self.store, self.revision + 1000
        self.deadlines = {}
        other.done(GROUP, other.groups.load(GROUP, list(self.store.items()), other.revision, other.now))
        self.groups, self.deadlines, self.revision = other.groups, other.deadlines, other.revision

    def _record(self, record: Record) -> str:
        return f"{self._short(record.key)} {'deleted' if record.value is None else _text(record.value)}"

    def _short(self, key: str) -> str:
        return key.removeprefix(GroupKeys("ns", GROUP).prefix)

    def _renamed(self, text: str) -> str:
        for member_id, name in self.names.items():
            text = text.replace(member_id, f"<{name}>")
        return text


def _text(message: Message) -> str:
    return " ".join(f"{name}={value}" for name, value in _fields(message))


def _fields(message: Message) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.name != "format":
            many = not isinstance(value, str | bytes | Message) and hasattr(value, "__len__")
            values = [_value(field, item) for item in (value if many else [value])]
            yield field.name, f"[{', '.join(values)}]" if many else values[0]


def _value(field: FieldDescriptor, value: Any) -> str:
    if isinstance(value, Message):
        return f"{{{_text(value)}}}"
    if isinstance(value, bytes):
        return repr(value)[1:]
    return field.enum_type.values_by_number[value].name if field.enum_type is not None else str(value)


def replay(text: str) -> str:
    """Return the scenario in ``text`` with its effects."""
    transcript = Transcript()
    for line in text.splitlines():
        if line.startswith(">") or line.split()[1:2] == ["timer"]:
            continue
        if line.startswith("@"):
            moment, verb, *words = line[1:].split()
            transcript.pass_until(int(moment))
            transcript.lines.append(line)
            if verb != "end":
                transcript.step(verb, words)
        else:
            transcript.lines.append(line)
    return "\n".join(transcript.lines) + "\n"
