"""Naive code for every pitfall that this release has to avoid, code that breaks other rules, and the tests of them."""

from tests.mutations import (
    admin,
    catalogs,
    configs,
    etcd,
    gateway,
    group_apis,
    groups,
    illness,
    metadata,
    moves,
    processes,
    producers,
    recovery,
    retention,
    rules,
    scans,
    sinks,
    spark,
    storage,
    stores,
    streams,
)
from tests.mutations.mutation import Mutation

_ALONE = (*range(1, 21), 44, *range(46, 67))
REQUIRED = frozenset((*_ALONE, *range(21, 42)))
"""Numbers of pitfalls. The others are of parts that do not exist yet."""

MUTATIONS: tuple[Mutation, ...] = (
    *admin.MUTATIONS,
    *storage.MUTATIONS,
    *stores.MUTATIONS,
    *streams.MUTATIONS,
    *catalogs.MUTATIONS,
    *configs.MUTATIONS,
    *etcd.MUTATIONS,
    *gateway.MUTATIONS,
    *group_apis.MUTATIONS,
    *groups.MUTATIONS,
    *illness.MUTATIONS,
    *metadata.MUTATIONS,
    *moves.MUTATIONS,
    *processes.MUTATIONS,
    *producers.MUTATIONS,
    *recovery.MUTATIONS,
    *retention.MUTATIONS,
    *rules.MUTATIONS,
    *scans.MUTATIONS,
    *sinks.MUTATIONS,
    *spark.MUTATIONS,
)
