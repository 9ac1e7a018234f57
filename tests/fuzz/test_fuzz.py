"""A short run of the fuzzer of decoders. `python -m tests.fuzz` runs all of them for longer."""

import time

from tests.fuzz import codecs
from tests.fuzz.cases import all_cases

SECONDS = 5.0
SEED = 7


def test_decoders_raise_only_documented_errors() -> None:
    end, iteration = time.monotonic() + SECONDS, 0
    # Each decoder is tried, on a slow machine too.
    while iteration < 3 * len(all_cases()) or time.monotonic() < end:
        found = codecs.attempt(SEED, iteration)
        assert found is None, f"python -m tests.fuzz --only codecs --seed {SEED} --first {iteration} --count 1"
        iteration += 1


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again = ([codecs.input_of(SEED, number)[1] for number in range(300)] for _ in range(2))
    assert first == again
