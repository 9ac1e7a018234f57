"""When the intake may put an object. Times are in seconds."""

from services.storage.intake.pace import Pace


def test_puts_take_tokens_and_a_large_one_takes_none() -> None:
    pace = Pace(10, 2, gather=0.02, now=0.0)
    pace.began(0.0, large=False, gathered=True)
    pace.began(0.0, large=True, gathered=True)
    assert pace.delay(0.0, others=False, large=False, gathered=True) == 0.0
    pace.began(0.0, large=False, gathered=True)
    assert pace.delay(0.0, others=False, large=False, gathered=True) == 0.1
    pace.began(0.0, large=False, gathered=True)
    pace.began(0.0, large=False, gathered=True)
    assert pace.tokens(0.0) == -1.0, "at most one put is owed"
    assert pace.delay(0.0, others=False, large=True, gathered=True) == 0.0
    assert pace.delay(0.15, others=False, large=False, gathered=True) == 0.05
    assert pace.tokens(100.0) == 2.0


def test_what_arrives_during_a_put_shares_the_next_one() -> None:
    pace = Pace(10, 100, gather=0.02, now=0.0)
    pace.ended(0.01)
    pace.began(1.0, large=False, gathered=True)
    assert round(pace.delay(1.005, others=True, large=False, gathered=True), 6) == 0.015, (
        "until twice the duration of a put after it began"
    )
    assert pace.delay(1.005, others=False, large=False, gathered=True) == 0.0
    assert round(pace.delay(1.005, others=True, large=True, gathered=True), 6) == 0.015
    assert pace.delay(1.02, others=True, large=False, gathered=True) == 0.0
    for _ in range(100):
        pace.ended(5.0)
    assert round(pace.delay(1.02, others=True, large=False, gathered=True), 6) == 0.03, "at most 50 ms"


def test_puts_without_a_limit_never_wait() -> None:
    pace = Pace(0, 1, gather=0.02, now=0.0)
    pace.ended(5.0)
    for _ in range(10):
        pace.began(0.0, large=False, gathered=True)
        assert pace.delay(0.0, others=True, large=False, gathered=True) == 0.0


def _gathering() -> Pace:
    pace = Pace(10, 100, gather=0.02, now=0.0)
    pace.ended(0.01)
    pace.began(1.0, large=False, gathered=True)
    return pace


def test_a_put_waits_for_the_producers_that_were_acknowledged() -> None:
    pace = _gathering()
    pace.acknowledged(1.01, 5, waiting=2, seconds=0.01)
    assert pace.expected == 7
    assert round(pace.delay(1.012, others=False, large=True, gathered=False), 6) == 0.008, (
        "as long as the last put took"
    )
    assert pace.delay(1.012, others=False, large=False, gathered=True) == 0.0
    pace.began(1.012, large=False, gathered=True)
    pace.acknowledged(2.0, 7, waiting=0, seconds=0.9)
    assert round(pace.delay(2.0, others=False, large=False, gathered=False), 6) == 0.02, "at most gather"
    assert pace.delay(2.02, others=False, large=False, gathered=False) == 0.0


def test_puts_do_not_wait_for_a_while_after_producers_did_not_come() -> None:
    pace, waited, now = _gathering(), list[bool](), 1.0
    for _ in range(12):
        now += 0.01
        pace.acknowledged(now, 5, waiting=0, seconds=0.01)
        waited.append(pace.delay(now, others=False, large=True, gathered=pace.expected <= 1) > 0)
        now += 0.02
        pace.began(now, large=True, gathered=pace.expected <= 1)
    assert waited == [True, False, True, False, False, False, True] + 5 * [False]


def test_puts_without_a_limit_do_not_gather() -> None:
    pace = Pace(0, 1, gather=0.02, now=0.0)
    pace.acknowledged(0.0, 5, waiting=0, seconds=1.0)
    assert pace.expected == 0
