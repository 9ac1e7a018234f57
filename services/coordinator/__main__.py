"""``python -m services.coordinator``: a coordinator in a process of its own. It serves no consumer groups yet."""

import sys

import trio

from kafscale.service.cluster import EVERY_SERVICE, Endpoint, check_shared, open_metadata, open_operations, registered
from kafscale.service.process import Loaded, run_process
from kafscale.service.rpc import RpcSettings

SETTINGS = EVERY_SERVICE


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """From etcd to `stopping` and back."""
    async with (
        open_operations(settings, "coordinator", stopping) as operations,
        open_metadata(settings, operations) as metadata,
    ):
        endpoint = await Endpoint.bind("coordinator", settings)
        async with endpoint.serving(), registered(endpoint, metadata, settings, operations):
            endpoint.ready(operations)
            await stopping.wait()


def grace_ms(settings: Loaded) -> int:
    return settings[RpcSettings].drain_timeout_ms


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, service="coordinator", check=check_shared, grace_ms=grace_ms))
