"""Naive code for every pitfall that this release has to avoid, code that breaks other rules, and the tests of them."""

from tests.mutations import gateway, producers, rules, storage, stores
from tests.mutations.mutation import Mutation

REQUIRED = frozenset(
    {
        1,
        2,
        3,
        4,
        6,
        7,
        10,
        11,
        12,
        15,
        16,
        18,
        19,
        *range(21, 28),
        *range(36, 42),
        48,
        *range(51, 55),
        57,
        58,
        63,
        64,
        66,
    }
)
"""Numbers of pitfalls. The others are of parts that do not exist yet."""

MUTATIONS: tuple[Mutation, ...] = (
    *storage.MUTATIONS,
    *stores.MUTATIONS,
    *gateway.MUTATIONS,
    *producers.MUTATIONS,
    *rules.MUTATIONS,
)
