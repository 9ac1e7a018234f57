"""Rates and token buckets, with the numbers that Kafka's code gives."""

from kafscale.security.rates import Rate, TokenBucket


def test_a_first_burst_counts_as_if_nothing_had_been_recorded_before() -> None:
    rate = Rate()
    rate.record(1000, 5_000)
    # 1000 in ten seconds.
    assert rate.throttle_ms(100, 5_000) == 0
    rate.record(500, 5_000)
    # 150 per second are half as much again as 100, so another half of the window must pass.
    assert rate.throttle_ms(100, 5_000) == 5_000


def test_a_steady_rate_is_never_throttled_and_a_tenfold_one_for_nine_tenths() -> None:
    rate = Rate()
    for now in range(0, 60_000, 100):
        rate.record(10, now)
        assert rate.throttle_ms(101, now) == 0
    now, sent = 100_000, 0
    began = now
    for _ in range(1000):
        rate.record(100, now)
        sent += 100
        now += 100 + rate.throttle_ms(100, now)
    assert abs(sent / (now - began) * 1000 - 100) < 6


def test_the_window_is_ten_to_eleven_samples_long() -> None:
    rate = Rate()
    rate.record(1000, 0)
    for now in range(1_000, 10_001, 1_000):
        rate.record(0, now)
    assert rate.total(10_999) == 1000
    assert rate.total(11_000) == 0
    rate.record(300, 11_500)
    # The oldest sample began at 1,000, so the window has 10.5 seconds.
    assert rate.throttle_ms(20, 11_500) == 4_500


def test_what_was_not_sent_can_be_taken_back() -> None:
    rate = Rate()
    rate.record(700, 0)
    rate.record(700, 500)
    assert rate.throttle_ms(100, 500) > 0
    rate.record(-700, 500)
    assert (rate.total(500), rate.throttle_ms(100, 500)) == (700, 0)


def test_a_rate_is_forgotten_after_eleven_idle_seconds() -> None:
    rate = Rate()
    rate.record(1e9, 0)
    assert rate.throttle_ms(1, 10_999) > 0
    assert rate.throttle_ms(1, 11_000) == 0


def test_a_token_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket()
    bucket.take(55, 5, 1_000)
    assert bucket.throttle_ms(5, 1_000) == 0
    bucket.take(60, 5, 1_000)
    # Twelve seconds until 60 tokens have come in, as in the example in Kafka's code.
    assert bucket.throttle_ms(5, 1_000) == 12_000
    assert bucket.throttle_ms(5, 12_999) == 1
    assert bucket.throttle_ms(5, 13_000) == 0
    bucket.take(1, 5, 13_000)
    assert bucket.throttle_ms(5, 13_000) == 200


def test_a_token_bucket_holds_what_comes_in_within_eleven_seconds() -> None:
    bucket = TokenBucket()
    bucket.take(0, 2, 0)
    bucket.take(23, 2, 1_000_000)
    assert bucket.throttle_ms(2, 1_000_000) == 500
    # A changed rate holds from now on.
    assert bucket.throttle_ms(1, 1_000_000) == 1_000
