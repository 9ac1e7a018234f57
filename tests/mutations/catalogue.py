"""Naive code for every pitfall that this release has to avoid, code that breaks other rules, and the tests of them."""

from tests.mutations import catalogs, etcd, gateway, illness, producers, retention, rules, storage, stores
from tests.mutations.mutation import Mutation

_ALONE = (*range(1, 5), *range(6, 14), 15, 16, 18, 19, 20, 44, 48, 51, 52, 53, 54, 57, 58, 59, 60, 62, 63, 64, 65, 66)
REQUIRED = frozenset((*_ALONE, *range(21, 28), *range(36, 42)))
"""Numbers of pitfalls. The others are of parts that do not exist yet."""

MUTATIONS: tuple[Mutation, ...] = (
    *storage.MUTATIONS,
    *stores.MUTATIONS,
    *catalogs.MUTATIONS,
    *etcd.MUTATIONS,
    *gateway.MUTATIONS,
    *illness.MUTATIONS,
    *producers.MUTATIONS,
    *retention.MUTATIONS,
    *rules.MUTATIONS,
)
