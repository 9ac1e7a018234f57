"""Code that breaks rules of services in processes of their own: whom they ask, as whom they ask, how they start."""

from tests.mutations.mutation import Mutation

_CREDENTIALS = "tests/unit/service/test_credentials.py::"
_LIST = "tests/unit/storage/test_list_offsets.py::"
_NETWORK = "tests/unit/service/test_network.py::"
_POOL = "tests/unit/rpc/test_pool.py::"
_READ = "tests/unit/storage/test_read_path.py::"
_START = "tests/services/test_start.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    _breaking(
        "an indexer that is silent leaves time to ask another one",
        "kafscale/rpc/pool.py",
        "left / min(len(candidates), 2)",
        "left",
        _POOL + "test_one_that_hangs_takes_only_its_share_of_the_time",
    ),
    _breaking(
        "an indexer that failed is avoided for a while",
        "kafscale/rpc/pool.py",
        " and peer.avoided_until <= now",
        "",
        _POOL + "test_where_all_failed_just_now_the_caller_knows_at_once_too",
    ),
    _breaking(
        "calls go to the indexer that has the fewest",
        "kafscale/rpc/pool.py",
        "(peer.in_flight, peer.last_called)",
        "(peer.last_called,)",
        _POOL + "test_one_that_is_busy_gets_less",
    ),
    _breaking(
        "an indexer that goes finishes what it has in hand",
        "kafscale/rpc/pool.py",
        "if peer.gone and not peer.in_flight and",
        "if peer.gone and",
        _POOL + "test_one_that_is_gone_is_asked_no_more_and_closed_after_its_last_call",
    ),
    _breaking(
        "look-ups by time need no indexer",
        "services/storage/offsets.py",
        "return await self._search(segments)",
        "raise",
        _LIST + "test_pitfall_26_a_time_gives_the_first_record_at_or_after_it",
    ),
    _breaking(
        "a segment without its index is read without an indexer",
        "services/storage/reader.py",
        "            parsed = await self.parsed(view, segment)\n",
        "            parsed = self\n            raise\n",
        _READ + "test_without_any_indexer_a_segment_is_read_whole_where_its_index_is_missing_or_wrong",
    ),
    _breaking(
        "a web identity token is told to nobody else",
        "kafscale/objects/credentials.py",
        '_QUERY.sub("", f"{type(error).__name__}: {error}")',
        'f"{type(error).__name__}: {error}"',
        _CREDENTIALS + "test_a_token_that_is_refused_is_not_told",
    ),
    _breaking(
        "credentials that have ended sign nothing",
        "kafscale/objects/credentials.py",
        "if self._present is None or self._left() <= 0:",
        "if self._present is None:",
        _CREDENTIALS + "test_what_ran_out_signs_nothing_and_comes_back",
    ),
    _breaking(
        "credentials are renewed before they end",
        "kafscale/objects/credentials.py",
        "min(self._left() / 2, _RENEWED_BEFORE_END_SECONDS)",
        "0.0",
        _CREDENTIALS + "test_they_are_renewed_before_they_end",
    ),
    _breaking(
        "a source of credentials that fails is not replaced by another one's identity",
        "kafscale/objects/credentials.py",
        ' or environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):',
        ":",
        _CREDENTIALS + "test_a_source_that_fails_is_asked_again_and_no_other_one",
    ),
    _breaking(
        "nobody is told to connect to all interfaces",
        "kafscale/service/network.py",
        "if advertised is None and self.rpc_addr is not None and self.rpc_addr.anywhere:",
        "if False:",
        _NETWORK + "test_on_all_interfaces_an_advertised_address_must_be_set",
    ),
    _breaking(
        "a process that is stopped while it starts ends at once",
        "kafscale/service/cluster.py",
        "            if operations.health.starting:",
        "            if False:",
        _START + "test_sigterm_while_it_waits_for_etcd_ends_a_process_at_once",
    ),
)
