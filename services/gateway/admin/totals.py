"""Reports what the processes of a cluster have done since their start."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import trio

from kafscale.errors import KafscaleError
from kafscale.metadata.members import LiveMember, Members
from kafscale.rpc.generated import ProcessClient
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.process_pb2 import ProcessTotals, TotalsRequest

_SECONDS = 3.0
"""The timeout of a request to a process."""

ConnectProcess = Callable[[LiveMember], AbstractAsyncContextManager[ProcessClient]]


class TotalsReport:
    """``members``: the registered members, by service. ``address``: that of this process. ``own``: its totals."""

    def __init__(
        self, members: Mapping[str, Members], address: str, own: Callable[[], ProcessTotals], connect: ConnectProcess
    ) -> None:
        self._members = members
        self._address = address
        self._own = own
        self._connect = connect

    async def report(self) -> pb.ClusterTotalsReply:
        """Ask all registered processes at the same time. A process that runs several services is asked once."""
        services: defaultdict[str, list[str]] = defaultdict(list)
        asked: dict[str, LiveMember] = {}
        for service, members in self._members.items():
            for live in members.view.present:
                services[live.address].append(service)
                # Two runs have the same address if the lease of a former one has not expired yet.
                asked[live.address] = live
        reply = pb.ClusterTotalsReply()
        async with trio.open_nursery() as nursery:
            for address in sorted(services):
                entry = reply.instances.add(address=address, services=sorted(set(services[address])))
                nursery.start_soon(self._ask, asked[address], entry)
        return reply

    async def _ask(self, live: LiveMember, entry: pb.InstanceTotals) -> None:
        if live.address in ("", self._address):
            entry.totals.CopyFrom(self._own())
            return
        try:
            async with self._connect(live) as process:
                entry.totals.CopyFrom(await process.totals(TotalsRequest(), timeout=_SECONDS))
        except KafscaleError as error:
            entry.error = str(error)
