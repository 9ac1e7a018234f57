"""What the console remembers of the last hour, and who sees it."""

from typing import Any

import grpc
import pytest
import structlog
import trio
import trio.testing

from kafscale.errors import Unavailable
from kafscale.rpc.admin import CLUSTER_TOTALS
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.process_pb2 import ProcessTotals
from services.console.histories import Histories
from services.console.lags import Lags
from services.console.rates import KEPT_POINTS, Rates
from services.console.settings import ConsoleSettings

_OWN, _USER, _STRANGER = "own", "user", "stranger"


def _report(*totals: ProcessTotals, silent: int = 0) -> pb.ClusterTotalsReply:
    known = [pb.InstanceTotals(totals=each) for each in totals]
    return pb.ClusterTotalsReply(instances=[*known, *(pb.InstanceTotals(error="no answer") for _ in range(silent))])


def _process(name: str, puts: int, uptime: float) -> ProcessTotals:
    return ProcessTotals(process=name, puts=puts, uptime_ms=round(1000 * uptime))


def test_a_restarted_process_counts_from_its_start_and_an_older_new_one_from_now() -> None:
    rates = Rates()
    rates.take(_report(_process("a", 1000, 500)), 10, 10_000)
    rates.take(_report(_process("a", 1007, 510)), 20, 20_000)
    rates.take(_report(_process("a-restarted", 3, 4)), 30, 30_000)
    rates.take(_report(_process("a-restarted", 5, 14), _process("b", 900, 700)), 40, 40_000)
    rates.take(_report(_process("a-restarted", 5, 24), silent=1), 50, 50_000)
    rates.take(_report(_process("a-restarted", 6, 34), _process("b", 909, 720)), 60, 60_000)
    columns = rates.columns(60_000)
    assert columns["puts"] == [7, 3, 2, 0, 10]
    assert columns["silent"] == [0, 0, 0, 1, 0]
    assert columns["time_ms"][0] == 20_000
    assert columns["seconds"] == [10] * 5


def test_only_the_last_hour_is_kept() -> None:
    rates = Rates()
    for number in range(2 * KEPT_POINTS):
        rates.take(_report(_process(f"each-{number}", number, 1)), 10 * number, 10_000 * number)
    assert len(rates.columns(10_000 * number)["puts"]) == KEPT_POINTS
    assert len(rates._known) < 5
    assert rates.columns(10_000 * number + 3_600_000)["puts"] == []


def test_what_happened_in_a_pause_is_in_no_interval() -> None:
    rates = Rates()
    rates.take(_report(_process("a", 1, 500)), 10, 10_000)
    rates.take(_report(_process("a", 3, 510)), 20, 20_000)
    rates.take(_report(_process("a", 9000, 3510), _process("b", 70, 600)), 3020, 3_020_000)
    rates.take(_report(_process("a", 9005, 3520), _process("b", 71, 610)), 3030, 3_030_000)
    columns = rates.columns(3_030_000)
    assert (columns["puts"], columns["seconds"]) == ([2, 6], [10, 10])


def test_a_process_that_was_silent_for_long_is_counted_from_its_next_report() -> None:
    rates = Rates()
    rates.take(_report(_process("a", 1, 500)), 0, 0)
    for number in range(1, 9):
        rates.take(_report(silent=1), 10 * number, 10_000 * number)
    rates.take(_report(_process("a", 5000, 590)), 90, 90_000)
    rates.take(_report(_process("a", 5003, 600)), 100, 100_000)
    assert rates.columns(100_000)["puts"] == [0] * 9 + [3]


def test_the_groups_that_were_watched_last_are_followed() -> None:
    lags = Lags(2)
    described = pb.DescribeConsumerGroupReply(
        offsets=[pb.ConsumerGroupOffset(lag=4), pb.ConsumerGroupOffset(lag=5), pb.ConsumerGroupOffset(lag=-1)]
    )
    for now, group in enumerate(("a", "b", "a", "c")):
        lags.watch(group, now)
        lags.take(group, described, 1000 * now)
    assert lags.followed(4) == ["a", "c"]
    assert lags.columns("a", 4000) == {"time_ms": [0], "lag": [9], "unknown": [1]}
    lags.take("a", described, 10_000)
    assert lags.columns("a", 10_000)["time_ms"] == [0, 10_000]
    assert lags.followed(3602) == ["c"]
    assert lags.columns("a", 10_000)["lag"] == []


class _Cluster:
    """Stands for the gateways. ``may``: the tokens that may ask."""

    def __init__(self, *may: str) -> None:
        self.may = set(may)
        self.asked: list[tuple[str, str]] = []
        self.down = False
        self.no_totals = False
        self.wrong_group = ""

    async def read(self, method: Any, request: Any, token: str) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append((method.path.rpartition("/")[2], token))
        if self.down:
            raise Unavailable("no gateway answers")
        if token not in self.may:
            raise StatusError(grpc.StatusCode.PERMISSION_DENIED, "not you")
        if method is CLUSTER_TOTALS:
            if self.no_totals:
                raise StatusError(grpc.StatusCode.PERMISSION_DENIED, "no totals for you")
            return _report(_process("a", round(trio.current_time()), 1000))
        if request.group == self.wrong_group:
            raise StatusError(grpc.StatusCode.INTERNAL, "this group is damaged")
        return pb.DescribeConsumerGroupReply(offsets=[pb.ConsumerGroupOffset(lag=7)])


async def test_there_is_a_past_when_a_page_is_opened_and_only_for_those_who_may_ask(autojump_clock: object) -> None:
    cluster = _Cluster(_OWN, _USER)
    histories = Histories(cluster, ConsoleSettings(), _OWN)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(histories.run)
        await trio.sleep(65)
        for token in (_OWN, _USER):
            found = await histories.find("/api/rates", token)
            assert found is not None
            assert found["columns"]["puts"] == [10] * 6
        with pytest.raises(StatusError):
            await histories.find("/api/rates", _STRANGER)
        with pytest.raises(StatusError):
            await histories.find("/api/groups/g/lag", _STRANGER)
        cluster.asked.clear()
        await trio.sleep(20)
        assert {name for name, _ in cluster.asked} == {"ClusterTotals"}, "what a stranger asks for is not followed"
        await histories.find("/api/groups/a%2Fb/lag", _USER)
        cluster.down = True
        await trio.sleep(25)
        cluster.down = False
        await trio.sleep(10)
        found = await histories.find("/api/rates", _OWN)
        assert found is not None
        assert max(found["columns"]["seconds"]) == 30, "the gap is one long interval"
        assert await histories.find("/api/nothing", _USER) is None
        nursery.cancel_scope.cancel()


async def test_what_fails_is_logged_once_and_other_groups_are_asked_for(autojump_clock: object) -> None:
    cluster = _Cluster(_OWN)
    histories = Histories(cluster, ConsoleSettings(), _OWN)  # type: ignore[arg-type]
    for group in ("first", "second"):
        await histories.find(f"/api/groups/{group}/lag", _OWN)
    cluster.asked.clear()
    cluster.no_totals, cluster.wrong_group = True, "first"
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(histories.run)
            await trio.sleep(35)
            nursery.cancel_scope.cancel()
    assert [(each["event"], each.get("group")) for each in logs] == [
        ("lag of a group not known", "first"),
        ("rates of the cluster not known", None),
    ]
    assert cluster.asked == [("ClusterTotals", _OWN), *[("DescribeConsumerGroup", _OWN)] * 2] * 4


async def test_without_a_token_of_its_own_the_console_measures_while_somebody_watches(autojump_clock: object) -> None:
    histories = Histories(_Cluster(_USER), ConsoleSettings(), "")  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(histories.run)
        for _ in range(4):
            found = await histories.find("/api/rates", _USER)
            await trio.sleep(10)
        assert found is not None
        assert (found["columns"]["puts"], found["fault"]) == ([10, 10, 10], "")
        nursery.cancel_scope.cancel()
