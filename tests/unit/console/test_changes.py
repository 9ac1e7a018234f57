"""What operators send becomes a call, or is refused without a trace of secrets."""

from typing import Any

import pytest

from kafscale.rpc.admin import DELETE_ACLS, SET_USER_CREDENTIALS
from kafscale.security.scram import Mechanism, salted_password
from services.console.api.changes import change_for
from services.console.requests import WrongRequest

_ACL = {
    "resource_type": "TOPIC",
    "pattern_type": "LITERAL",
    "name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


def test_a_password_becomes_credentials_of_all_mechanisms() -> None:
    found = change_for("POST", "/api/users/a%2Fb", {"password": "secret"})
    assert found is not None
    method, message = found
    request: Any = message
    assert (method, request.name) == (SET_USER_CREDENTIALS, "a/b")
    for each, mechanism in zip(request.credentials, Mechanism, strict=True):
        assert each.mechanism == mechanism.value
        assert each.salted_password == salted_password(mechanism, b"secret", each.salt, each.iterations)
    first, second = request.credentials
    assert first.salt != second.salt
    assert b"secret" not in request.SerializeToString()


@pytest.mark.parametrize(
    "body", [{}, {"password": ""}, {"password": 7, "x": 1}, {"password": ["hush"]}, {"password": "hush\ud800"}]
)
def test_a_refused_password_is_not_in_the_error(body: dict[str, Any]) -> None:
    with pytest.raises(WrongRequest) as refused:
        change_for("POST", "/api/users/a", body)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("changed", [{"name": ""}, {"pattern_type": "MATCH"}, {"host": None}])
def test_only_a_single_acl_is_deleted_at_once(changed: dict[str, Any]) -> None:
    found = change_for("DELETE", "/api/acls", {"filter": _ACL})
    assert found is not None
    assert found[0] is DELETE_ACLS
    wrong: list[dict[str, Any]] = [{}, {"filter": {}}, {"filter": _ACL | changed}]
    for body in wrong:
        with pytest.raises(WrongRequest, match="all fields"):
            change_for("DELETE", "/api/acls", body)
