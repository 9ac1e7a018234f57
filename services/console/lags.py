"""The lag of consumer groups in the last hour. No IO."""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafscale.v1.admin_pb2 import DescribeConsumerGroupReply
from services.console.rates import EVERY_SECONDS, KEPT_POINTS, KEPT_SECONDS


class _Point(NamedTuple):
    """``unknown``: the number of partitions whose lag is not in the sum."""

    time_ms: int
    lag: int
    unknown: int


@dataclass(slots=True)
class _Followed:
    watched: float
    points: deque[_Point] = field(default_factory=lambda: deque(maxlen=KEPT_POINTS))


class Lags:
    """The groups that somebody watched in the last hour, of which at most ``most``. Those watched last are kept.

    ``now``: seconds of a monotonic clock.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: OrderedDict[str, _Followed] = OrderedDict()

    def watch(self, group: str, now: float) -> None:
        """Follow the group, because somebody watches it now."""
        self._groups.setdefault(group, _Followed(now)).watched = now
        self._groups.move_to_end(group)
        if len(self._groups) > self._most:
            self._groups.popitem(last=False)

    def followed(self, now: float) -> list[str]:
        """Return the groups to ask for. Those that nobody has watched for an hour are forgotten."""
        self._groups = OrderedDict(
            (name, each) for name, each in self._groups.items() if now - each.watched < KEPT_SECONDS
        )
        return list(self._groups)

    def forget(self, group: str) -> None:
        """Forget a group that does not exist any more."""
        self._groups.pop(group, None)

    def take(self, group: str, reply: DescribeConsumerGroupReply, now_ms: int) -> None:
        """Add the lag of a followed group, at most once in an interval."""
        followed = self._groups.get(group)
        if followed is None:
            return
        points = followed.points
        if points and now_ms - points[-1].time_ms < 800 * EVERY_SECONDS:
            return
        known = [each.lag for each in reply.offsets if each.lag >= 0]
        points.append(_Point(now_ms, sum(known), len(reply.offsets) - len(known)))

    def columns(self, group: str, now_ms: int) -> Mapping[str, list[int]]:
        """Return the lag in the last hour in columns."""
        followed = self._groups.get(group)
        points = [] if followed is None else followed.points
        recent = [each for each in points if now_ms - each.time_ms < 1000 * KEPT_SECONDS]
        return {
            "time_ms": [each.time_ms for each in recent],
            "lag": [each.lag for each in recent],
            "unknown": [each.unknown for each in recent],
        }
