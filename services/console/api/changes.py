"""What operators change: one call of the Admin service for each path.

The body of a request is JSON with the fields of the call's message, by the rules of protobuf. Names in the path replace
those in the body.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from kafscale.rpc.admin import (
    ALTER_CONFIGS,
    CANCEL_DRAIN,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DRAIN_INSTANCE,
    GROW_TOPIC,
    RESET_OFFSETS,
)
from kafscale.rpc.methods import Method
from services.console.api.reads import WrongRequest

_NAME = r"([^/]+)"
_GROUP = r"([^/]*)"
"""The name of a group may be empty."""


@dataclass(frozen=True, slots=True)
class Change:
    """``field``: the field of the message that the name in the path is for."""

    verb: str
    path: re.Pattern[str]
    method: Method[Any, Any]
    field: str = ""


CHANGES = (
    Change("POST", re.compile("/api/topics"), CREATE_TOPIC),
    Change("POST", re.compile(f"/api/topics/{_NAME}/partitions"), GROW_TOPIC, "name"),
    Change("POST", re.compile(f"/api/topics/{_NAME}/configs"), ALTER_CONFIGS, "topic"),
    Change("DELETE", re.compile(f"/api/topics/{_NAME}"), DELETE_TOPIC, "name"),
    Change("POST", re.compile(f"/api/groups/{_GROUP}/offsets"), RESET_OFFSETS, "group"),
    Change("DELETE", re.compile(f"/api/groups/{_GROUP}"), DELETE_GROUP, "group"),
    Change("POST", re.compile(f"/api/instances/{_NAME}/drain"), DRAIN_INSTANCE, "instance"),
    Change("DELETE", re.compile(f"/api/instances/{_NAME}/drain"), CANCEL_DRAIN, "instance"),
)


def change_for(verb: str, path: str, body: Mapping[str, Any]) -> tuple[Method[Any, Any], Message] | None:
    """Return the call for a request, or None if there is none. Raises WrongRequest."""
    for change in CHANGES:
        match = change.path.fullmatch(path) if change.verb == verb else None
        if match is None:
            continue
        content = dict(body)
        if change.field:
            try:
                content[change.field] = unquote(match[1], errors="strict")
            except UnicodeDecodeError:
                raise WrongRequest("the path is not UTF-8") from None
        try:
            return change.method, ParseDict(content, change.method.request())
        except ParseError as error:
            raise WrongRequest(str(error)) from None
    return None
