"""Code that overreacts or underreacts to unhealthy stores."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_HEALTH = "tests/unit/objects/test_health.py::"
_ILLNESS = "tests/unit/storage/test_failing_stores.py::"
_REFUSED_BY_ETCD = "tests/unit/gateway/test_refused_by_etcd.py::"
_SERVICE_HEALTH = "tests/unit/process/test_health.py::"

MUTATIONS = (
    Mutation(
        "throttling at the start of a process ends it",
        Change(
            "services.storage.owning.cluster_mark",
            "mark_prefix",
            "except Unavailable as error:\n            log.warning",
            "except ZeroDivisionError as error:\n            log.warning",
        ),
        _ILLNESS + "test_startup_and_take_overs_wait_while_s3_throttles",
    ),
    Mutation(
        "large segments count as slow answers",
        Change(
            "kafscale.objects.availability",
            "StoreHealth._lateness",
            "return seconds - request.size / _SLOWEST_BYTES_PER_SECOND",
            "return seconds",
        ),
        _HEALTH + "test_slow_large_puts_and_a_few_late_answers_do_not_degrade_health",
    ),
    Mutation(
        "a reader of old segments evicts the tail from the cache",
        Change(
            "services.storage.reading.reader",
            "Reader._load",
            "self.segments.put(key, found, read_back=True)",
            "self.segments.put(key, found)",
        ),
        _ILLNESS + "test_lagging_readers_do_not_delay_producers",
    ),
    Mutation(
        "segments loaded for readers have the same priority as recently written ones",
        Change(
            "services.storage.reading.cache",
            "LruCache.put",
            "self._read_back.bytes > self._capacity // _READ_BACK_SHARE or",
            "self._read_back.bytes > self._capacity or",
        ),
        _ILLNESS + "test_a_cold_scan_does_not_evict_the_tail",
    ),
    Mutation(
        "a new run waits for the metadata store",
        Change(
            "kafscale.metadata.membership",
            "Membership.join",
            (
                "            except STORE_FAILURES as error:\n"
                "                await outage.pause(error)\n"
                "            else:\n"
            ),
            "            except STORE_FAILURES:\n                raise\n            else:\n",
        ),
        _ILLNESS + "test_the_service_survives_a_lease_lost_during_another_etcd_outage",
    ),
    Mutation(
        "an outage of S3 and its end are detected immediately",
        Change(
            "kafscale.objects.availability",
            "StoreHealth._judge",
            "if self._alike >= _FEWEST_ALIKE and now",
            "if False and now",
        ),
        _HEALTH + "test_an_outage_and_its_end_are_detected_in_seconds_without_other_requests",
    ),
    Mutation(
        "S3 is probed while its state is uncertain",
        Change("kafscale.objects.availability", "StoreHealth.probe", "(self._in_doubt or quiet", "(quiet"),
        _HEALTH + "test_an_outage_and_its_end_are_detected_in_seconds_without_other_requests",
    ),
    Mutation(
        "a silent S3 is detected before its requests time out",
        Change(
            "kafscale.objects.availability",
            "StoreHealth._judge",
            "if silence >= limits.latency_crit + _ALIKE_SECONDS:",
            "if False:",
        ),
        _HEALTH + "test_a_store_that_does_not_answer_at_all_is_detected_before_any_timeout",
    ),
    Mutation(
        "a process that stops is not ready",
        Change(
            "kafscale.process.health",
            "Health.ready",
            "return not (self._starting or self._stopping)",
            "return not self._starting",
        ),
        _SERVICE_HEALTH + "test_readyz_follows_the_life_of_the_process_and_its_stores",
    ),
    Mutation(
        "a refusal by etcd is not a bug of the gateway",
        Change(
            "services.gateway.apis.init_producer_id", "_take", "except STORE_FAILURES:", "except STORE_FAILURES[:1]:"
        ),
        _REFUSED_BY_ETCD + "test_a_refusal_by_the_store_is_retriable_and_logged_once",
    ),
    Mutation(
        "a refusal by etcd is not a bug of the gateway",
        Change("services.gateway.apis.metadata", "_create", "except STORE_FAILURES:", "except STORE_FAILURES[:1]:"),
        _REFUSED_BY_ETCD + "test_a_refusal_by_the_store_is_retriable_and_logged_once",
    ),
    Mutation(
        "a refusal by etcd is not a bug of the gateway",
        Change(
            "services.gateway.topics.changes",
            "_stored",
            "except STORE_FAILURES as error:",
            "except STORE_FAILURES[:1] as error:",
        ),
        _REFUSED_BY_ETCD + "test_a_refusal_by_the_store_is_retriable_and_logged_once",
    ),
    Mutation(
        "a continuing refusal is logged once",
        Change("kafscale.metadata.outage", "Refusal.report", "if str(error) != self._reported:", "if True:"),
        _REFUSED_BY_ETCD + "test_a_refusal_by_the_store_is_retriable_and_logged_once",
    ),
)
