"""Entry point of the Kubernetes operator: ``python -m services.operator``. Of several processes, one is the leader."""

import secrets
import socket
import sys

import structlog
import trio

from kafscale.config.admin_access import AdminTokenSettings
from kafscale.config.calls import RpcSettings
from kafscale.config.network import HttpSettings
from kafscale.process.logging import LogSettings
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded, run_process
from services.operator.clusters.manifests import Manifests
from services.operator.controllers import Operator
from services.operator.counters import OperatorCounters
from services.operator.gateways import Gateways
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import Leadership
from services.operator.monitoring import show
from services.operator.settings import OperatorSettings

SETTINGS = (OperatorSettings, AdminTokenSettings, RpcSettings, HttpSettings, LogSettings)
log = structlog.get_logger()


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Connect to the API server, and reconcile while holding the lease. It can be stopped at any moment."""
    own = settings[OperatorSettings]
    timeout = own.operator_timeout_ms / 1000
    counters = OperatorCounters()
    me = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    token = settings[AdminTokenSettings].token()
    async with (
        Operations.open(settings[HttpSettings], "operator", stopping) as operations,
        Gateways(settings[RpcSettings], token=token, timeout=timeout) as gateways,
    ):
        kubernetes = await Kubernetes.open(own.operator_namespace, counters, timeout=timeout)
        operator = Operator(kubernetes, gateways, counters, own, manifests=Manifests.load(own.operator_image), me=me)
        show(counters, lambda: operator.waiting, operations)
        operations.health.start()
        log.info("serving", namespace=kubernetes.namespace, identity=me)
        leadership = Leadership(kubernetes, counters, me=me, seconds=own.operator_lease_seconds)
        await leadership.run(operator.work, stopping)


def grace_ms(settings: Loaded) -> int:
    """Return the time needed to release the lease."""
    return settings[OperatorSettings].operator_timeout_ms


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, grace_ms=grace_ms))
