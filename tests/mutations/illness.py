"""Code that makes too much, or too little, of stores that are ill."""

from tests.mutations.mutation import Mutation

_HEALTH = "tests/unit/objects/test_health.py::"
_ILLNESS = "tests/unit/storage/test_illness.py::"
_REFUSED = "tests/unit/gateway/test_refused_by_etcd.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    # What throttles while a process starts ends it.
    Mutation(
        (8,),
        "services/storage/cluster_mark.py",
        "except Unavailable as error:\n            log.warning",
        "except ZeroDivisionError as error:\n            log.warning",
        _ILLNESS + "test_pitfall_08_throttling_during_start_and_take_over_is_waited_for",
    ),
    # Large segments are taken for slow answers.
    Mutation(
        (9,),
        "kafscale/objects/health.py",
        "return seconds - request.size / _SLOWEST_BYTES_PER_SECOND",
        "return seconds",
        _HEALTH + "test_pitfall_09_slow_large_puts_and_a_few_late_answers_are_no_illness",
    ),
    # Whoever reads old segments pushes the tail out of the cache.
    Mutation(
        (20,),
        "services/storage/reader.py",
        "self.segments.put(key, found, read_back=True)",
        "self.segments.put(key, found)",
        _ILLNESS + "test_pitfall_20_lagging_readers_do_not_delay_produce",
    ),
    # What readers bring back counts as much as what was written.
    Mutation(
        (20,),
        "services/storage/cache.py",
        "self._read_back.bytes > self._capacity // _READ_BACK_SHARE or",
        "self._read_back.bytes > self._capacity or",
        _ILLNESS + "test_pitfall_20_a_cold_scan_does_not_push_out_the_tail",
    ),
    _breaking(
        "a new run waits for the metadata store",
        "kafscale/metadata/membership.py",
        "            except STORE_FAILURES as error:\n                await outage.pause(error)\n            else:\n",
        "            except STORE_FAILURES:\n                raise\n            else:\n",
        _ILLNESS + "test_a_lease_that_is_lost_while_etcd_goes_away_again_ends_nothing",
    ),
    _breaking(
        "an outage of S3 and its end are seen at once",
        "kafscale/objects/health.py",
        "if self._alike >= _FEWEST_ALIKE and now",
        "if False and now",
        _HEALTH + "test_an_outage_and_its_end_are_seen_in_seconds_without_anybody_asking",
    ),
    _breaking(
        "S3 is probed while there is doubt",
        "kafscale/objects/health.py",
        "(self._in_doubt or quiet",
        "(quiet",
        _HEALTH + "test_an_outage_and_its_end_are_seen_in_seconds_without_anybody_asking",
    ),
    _breaking(
        "an S3 that is silent is seen before its requests time out",
        "kafscale/objects/health.py",
        "if silence >= limits.latency_crit + _ALIKE_SECONDS:",
        "if False:",
        _HEALTH + "test_a_store_that_does_not_answer_at_all_is_seen_before_any_timeout",
    ),
    _breaking(
        "a process that stops is not ready",
        "kafscale/service/health.py",
        "return not (self._starting or self._stopping)",
        "return not self._starting",
        "tests/unit/service/test_health.py::test_readyz_follows_the_life_of_the_process_and_its_stores",
    ),
    _breaking(
        "what etcd refuses is no bug of the gateway",
        "services/gateway/apis/init_producer_id.py",
        "except STORE_FAILURES:",
        "except STORE_FAILURES[:1]:",
        _REFUSED + "test_what_the_store_refuses_is_retriable_and_one_line_of_the_log",
    ),
    _breaking(
        "what etcd refuses is no bug of the gateway",
        "services/gateway/apis/metadata.py",
        "except STORE_FAILURES:",
        "except STORE_FAILURES[:1]:",
        _REFUSED + "test_what_the_store_refuses_is_retriable_and_one_line_of_the_log",
    ),
    _breaking(
        "what etcd refuses is no bug of the gateway",
        "services/gateway/topic_changes.py",
        "except STORE_FAILURES as error:",
        "except STORE_FAILURES[:1] as error:",
        _REFUSED + "test_what_the_store_refuses_is_retriable_and_one_line_of_the_log",
    ),
    _breaking(
        "a refusal that goes on is said once",
        "kafscale/metadata/outage.py",
        "if str(error) != self._told:",
        "if True:",
        _REFUSED + "test_what_the_store_refuses_is_retriable_and_one_line_of_the_log",
    ),
)
