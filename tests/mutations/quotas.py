"""Quotas that are not enforced, or enforced on the wrong clients."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_QUOTAS = "tests/unit/gateway/test_quotas.py::"
_RATES = "tests/unit/security/test_rates.py::"
_RULES = "tests/unit/security/test_quotas.py::"
_ENFORCEMENT = "services.gateway.quotas.enforcement"

MUTATIONS = (
    Mutation(
        "a second connection of a client has a quota of its own",
        Change(
            _ENFORCEMENT,
            "Charge.produced",
            "        if quota is not None:\n",
            (
                "        if quota is not None:\n"
                "            quota = Applied(quota.entity, quota.rate, (str(id(self._mute.__self__)), ''))\n"
            ),
        ),
        _QUOTAS + "test_every_connection_of_a_client_shares_its_quota",
    ),
    Mutation(
        "a client that does not wait for its throttle time is served",
        Change("services.gateway.clients.connection", "ClientConnection.mute", "max(self._muted_until, until)", "0.0"),
        _QUOTAS + "test_a_producer_over_its_quota_is_answered_at_once_and_muted_for_the_throttle_time",
    ),
    Mutation(
        "requests that have arrived are served although the client is muted",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._start_complete",
            "            while self._muted_until:\n                await self._unmuted()\n",
            "            pass\n",
        ),
        _QUOTAS + "test_requests_that_arrived_before_the_client_was_muted_wait_too",
    ),
    Mutation(
        "records that a throttled fetch did not return are counted",
        Change(_ENFORCEMENT, "Charge.fetched", "self._quotas.record(CONSUMER_BYTE_RATE, quota, -size)", "pass"),
        _QUOTAS + "test_a_fetch_over_the_quota_gets_nothing_and_its_bytes_are_not_counted",
    ),
    Mutation(
        "a batch that exceeds the quota alone is never returned",
        Change(_ENFORCEMENT, "Charge.fetched", "if not throttle_ms or alone:", "if not throttle_ms:"),
        _QUOTAS + "test_a_batch_that_exceeds_the_quota_alone_is_returned",
    ),
    Mutation(
        "each gateway allows the whole quota",
        Change(_ENFORCEMENT, "Quotas.bound", "quota.rate / self._shares", "quota.rate"),
        _QUOTAS + "test_each_gateway_enforces_its_share",
    ),
    Mutation(
        "what a handler does after its response is not charged",
        Change(_ENFORCEMENT, "Charge.paused", "if self._settled:", "if False:"),
        _QUOTAS + "test_only_the_time_in_which_a_handler_runs_is_charged",
    ),
    Mutation(
        "a client has a sensor of its own however many there are",
        Change("services.gateway.quotas.sensors", "Sensors.get", "len(self._sensors) >= MOST", "False"),
        "tests/unit/gateway/test_quota_sensors.py::test_new_clients_share_a_rate_while_as_many_as_can_be_measured_are_active",
    ),
    Mutation(
        "the quota of a client id precedes that of the user",
        Change(
            "kafscale.security.quotas",
            "_by_precedence",
            "        (user, _NOT_NAMED),\n        (None, client_id),\n",
            "        (None, client_id),\n        (user, _NOT_NAMED),\n",
        ),
        _RULES + "test_the_most_specific_quota_applies",
    ),
    Mutation(
        "a first burst is measured over the time that has passed",
        Change(
            "kafscale.security.rates", "Rate._window_ms", "max(0, SAMPLES - 1 - elapsed // SAMPLE_MS) * SAMPLE_MS", "1"
        ),
        _RATES + "test_a_first_burst_counts_as_if_nothing_had_been_recorded_before",
    ),
)
