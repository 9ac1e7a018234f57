"""What operators change: one call of the Admin service for each path.

The body of a request is JSON with the fields of the call's message, by the rules of protobuf, except for passwords.
Names in the path replace those in the body.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from kafscale.rpc.admin import (
    ALTER_CONFIGS,
    CANCEL_DRAIN,
    CREATE_ACLS,
    CREATE_TOPIC,
    DELETE_ACLS,
    DELETE_GROUP,
    DELETE_TOPIC,
    DELETE_USER_CREDENTIALS,
    DRAIN_INSTANCE,
    GROW_TOPIC,
    RESET_OFFSETS,
    SET_QUOTAS,
    SET_USER_CREDENTIALS,
)
from kafscale.rpc.methods import Method
from kafscale.security.acls import PatternType
from kafscale.v1.admin_pb2 import AccessRuleFilter
from services.console.api.credentials import credentials
from services.console.requests import WrongRequest, name

_NAME = r"([^/]+)"
_GROUP = r"([^/]*)"
"""The name of a group may be empty."""


_PATTERNS = [each.name for each in PatternType]
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """``field``: the field of the message that the name in the path is for.

    ``translate`` makes the message's JSON from the body, if that is not it already. It raises WrongRequest.
    """

    verb: str
    path: re.Pattern[str]
    method: Method[Any, Any]
    field: str = ""
    translate: Callable[[Body], Body] | None = None


def _one_acl(body: Body) -> Body:
    """Return the body. Raises WrongRequest if its filter might select more than one ACL."""
    wanted = body.get("filter")
    fields = [field.name for field in AccessRuleFilter.DESCRIPTOR.fields]
    if not isinstance(wanted, dict) or not all(map(wanted.get, fields)) or wanted["pattern_type"] not in _PATTERNS:
        raise WrongRequest("the filter must name all fields of the ACL to delete")
    return body


CHANGES = (
    Change("POST", re.compile("/api/topics"), CREATE_TOPIC),
    Change("POST", re.compile(f"/api/topics/{_NAME}/partitions"), GROW_TOPIC, "name"),
    Change("POST", re.compile(f"/api/topics/{_NAME}/configs"), ALTER_CONFIGS, "topic"),
    Change("DELETE", re.compile(f"/api/topics/{_NAME}"), DELETE_TOPIC, "name"),
    Change("POST", re.compile(f"/api/groups/{_GROUP}/offsets"), RESET_OFFSETS, "group"),
    Change("DELETE", re.compile(f"/api/groups/{_GROUP}"), DELETE_GROUP, "group"),
    Change("POST", re.compile(f"/api/users/{_NAME}"), SET_USER_CREDENTIALS, "name", credentials),
    Change("DELETE", re.compile(f"/api/users/{_NAME}"), DELETE_USER_CREDENTIALS, "name"),
    Change("POST", re.compile("/api/acls"), CREATE_ACLS),
    Change("DELETE", re.compile("/api/acls"), DELETE_ACLS, translate=_one_acl),
    Change("POST", re.compile("/api/quotas"), SET_QUOTAS),
    Change("POST", re.compile(f"/api/instances/{_NAME}/drain"), DRAIN_INSTANCE, "instance"),
    Change("DELETE", re.compile(f"/api/instances/{_NAME}/drain"), CANCEL_DRAIN, "instance"),
)


def change_for(verb: str, path: str, body: Body) -> tuple[Method[Any, Any], Message] | None:
    """Return the call for a request, or None if there is none. Raises WrongRequest."""
    for change in CHANGES:
        match = change.path.fullmatch(path) if change.verb == verb else None
        if match is None:
            continue
        content = dict(body if change.translate is None else change.translate(body))
        if change.field:
            content[change.field] = name(match[1])
        try:
            return change.method, ParseDict(content, change.method.request())
        except ParseError as error:
            raise WrongRequest(str(error)) from None
    return None
