"""What the console remembers of the last hour: rates of the cluster, and the lag of groups that somebody watched.

It asks with its own token, so that there is a past when a page is opened. A user sees a history only if the gateways
let the user's token ask for its present, and each such answer becomes a point too. So there is a history while
somebody watches even if the console's own token may not ask.
"""

import re
from typing import Any

import grpc
import structlog
import trio

from kafscale.clock import wall_clock_ms
from kafscale.errors import Unavailable
from kafscale.rpc.admin import CLUSTER_TOTALS, DESCRIBE_GROUP
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from services.console.gateways import Gateways, as_unavailable
from services.console.lags import Lags
from services.console.rates import EVERY_SECONDS, Rates
from services.console.requests import name
from services.console.settings import ConsoleSettings

_RATES = "/api/rates"
_LAG = re.compile(r"/api/groups/([^/]*)/lag")
_LOGGED_FAILURES = 2
_log = structlog.get_logger()


class Histories:
    """``token``: what the console itself presents to gateways. `run` must be running."""

    def __init__(self, gateways: Gateways, settings: ConsoleSettings, token: str) -> None:
        self._gateways = gateways
        self._settings = settings
        self._token = token
        self._rates = Rates()
        self._lags = Lags(settings.console_lag_groups)
        self._fault = ""
        self._failures = 0
        self._group_faults: dict[str, str] = {}  # by group, of those that could not be described last

    async def run(self) -> None:
        """Ask at each interval until cancelled."""
        while True:
            due = trio.current_time() + EVERY_SECONDS
            await self._follow_rates()
            await self._follow_groups()
            await trio.sleep_until(due)

    async def _follow_rates(self) -> None:
        if not self._rates.due(trio.current_time()):
            return
        fault = ""
        try:
            await self._ask_totals(self._token)
        except (StatusError, Unavailable) as error:
            fault = str(error)
        # One round may fail while the cluster starts.
        self._failures = self._failures + 1 if fault else 0
        if self._failures == _LOGGED_FAILURES:
            _log.warning("rates of the cluster not known", error=fault)
        self._fault = fault

    async def _follow_groups(self) -> None:
        faults = {}
        for group in self._lags.followed(trio.current_time()):
            try:
                self._lags.take(group, await self._describe(group, self._token), wall_clock_ms())
            except (StatusError, Unavailable) as error:
                if isinstance(error, StatusError) and error.code is grpc.StatusCode.NOT_FOUND:
                    self._lags.forget(group)
                    continue
                faults[group] = str(error)
                if faults[group] != self._group_faults.get(group):
                    _log.warning("lag of a group not known", group=group, error=faults[group])
                if as_unavailable(error):
                    # The other groups would wait for the timeout too.
                    break
        self._group_faults = faults

    async def _ask_totals(self, token: str) -> None:
        reply = await self._gateways.read(CLUSTER_TOTALS, pb.ClusterTotalsRequest(), token)
        if self._rates.due(trio.current_time()):
            self._rates.take(reply, trio.current_time(), wall_clock_ms())

    async def _describe(self, group: str, token: str) -> pb.DescribeConsumerGroupReply:
        return await self._gateways.read(DESCRIBE_GROUP, pb.DescribeConsumerGroupRequest(group=group), token)

    async def find(self, path: str, token: str) -> dict[str, Any] | None:
        """Return the history at ``path`` for a user with ``token``, or None if there is none.

        Raises WrongRequest, StatusError, Unavailable.
        """
        if path == _RATES:
            return await self._rates_for(token)
        found = _LAG.fullmatch(path)
        if found is None:
            return None
        group = name(found[1])
        described = await self._describe(group, token)
        self._lags.watch(group, trio.current_time())
        self._lags.take(group, described, wall_clock_ms())
        return {**_times(), "columns": self._lags.columns(group, wall_clock_ms())}

    async def _rates_for(self, token: str) -> dict[str, Any]:
        if token != self._token:
            await self._ask_totals(token)
        return {
            **_times(),
            "fault": self._fault if token == self._token else "",
            "put_price": self._settings.console_put_price,
            "get_price": self._settings.console_get_price,
            "columns": self._rates.columns(wall_clock_ms()),
        }


def _times() -> dict[str, int]:
    return {"now_ms": wall_clock_ms(), "every_ms": 1000 * EVERY_SECONDS}
