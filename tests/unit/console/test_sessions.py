"""Sessions of browsers."""

from services.console.sessions import COOKIE, CSRF_HEADER, Sessions, allows_change, set_cookie


def _sent(name: str) -> dict[str, str]:
    return {"cookie": f'other={{"x":1}}; {COOKIE}={name}'}


def test_a_session_is_found_by_its_cookie_until_it_expires_or_ends() -> None:
    now = 100.0
    sessions = Sessions(most=10, seconds=60.0, clock=lambda: now)
    first, session = sessions.begin("a", may_change=True)
    second, _ = sessions.begin("b", may_change=True)
    assert sessions.find(_sent(first)) == session
    assert sessions.find({}) is sessions.find(_sent("x")) is sessions.find({"cookie": "\x00=;;="}) is None
    sessions.end(_sent(second))
    assert sessions.find(_sent(second)) is None
    now = 160.0
    assert sessions.find(_sent(first)) is None


def test_at_the_limit_the_session_unused_for_the_longest_time_ends() -> None:
    sessions = Sessions(most=2, seconds=60.0, clock=lambda: 0.0)
    first, second = (sessions.begin(token, may_change=True)[0] for token in "ab")
    assert sessions.find(_sent(first)) is not None
    third, _ = sessions.begin("c", may_change=True)
    assert [sessions.find(_sent(name)) is not None for name in (first, second, third)] == [True, False, True]


def test_a_change_needs_the_token_that_only_the_page_knows() -> None:
    sessions = Sessions(most=2, seconds=60.0, clock=lambda: 0.0)
    _, session = sessions.begin("a", may_change=True)
    _, other = sessions.begin("b", may_change=True)
    assert allows_change(session, {CSRF_HEADER: session.csrf})
    for wrong in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: other.csrf}, {CSRF_HEADER: "\xff"}):
        assert not allows_change(session, wrong)


def test_scripts_cannot_read_the_cookie_and_foreign_sites_do_not_send_it() -> None:
    attributes = set_cookie("x", seconds=60.0, secure=True).split("; ")[1:]
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=60"} == set(attributes)
