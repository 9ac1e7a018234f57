"""When the intake may put an object. Times are in seconds."""

from services.storage.intake.pace import Pace


def test_puts_take_tokens_and_a_large_one_takes_none() -> None:
    pace = Pace(10, 2, now=0.0)
    pace.began(0.0, large=False)
    pace.began(0.0, large=True)
    assert pace.delay(0.0, others=False, large=False) == 0.0
    pace.began(0.0, large=False)
    assert pace.delay(0.0, others=False, large=False) == 0.1
    pace.began(0.0, large=False)
    pace.began(0.0, large=False)
    assert pace.tokens(0.0) == -1.0, "at most one put is owed"
    assert pace.delay(0.0, others=False, large=True) == 0.0
    assert pace.delay(0.15, others=False, large=False) == 0.05
    assert pace.tokens(100.0) == 2.0


def test_what_arrives_during_a_put_shares_the_next_one() -> None:
    pace = Pace(10, 100, now=0.0)
    pace.ended(0.01)
    pace.began(1.0, large=False)
    assert round(pace.delay(1.005, others=True, large=False), 6) == 0.015, (
        "until twice the duration of a put after it began"
    )
    assert pace.delay(1.005, others=False, large=False) == 0.0
    assert round(pace.delay(1.005, others=True, large=True), 6) == 0.015
    assert pace.delay(1.02, others=True, large=False) == 0.0
    for _ in range(100):
        pace.ended(5.0)
    assert round(pace.delay(1.02, others=True, large=False), 6) == 0.03, "at most 50 ms"


def test_puts_without_a_limit_never_wait() -> None:
    pace = Pace(0, 1, now=0.0)
    pace.ended(5.0)
    for _ in range(10):
        pace.began(0.0, large=False)
        assert pace.delay(0.0, others=True, large=False) == 0.0
