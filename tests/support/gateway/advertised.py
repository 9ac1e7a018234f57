"""An exchange for each advertised API, and the log line of a closed connection."""

import trio
from structlog.types import EventDict

from services.gateway.clients.registry import APIS
from tests.support.gateway import (
    absent_exchanges,
    admin_exchanges,
    exchanges,
    group_exchanges,
    security_exchanges,
    topic_exchanges,
)

EXCHANGES = (
    exchanges.EXCHANGES
    | topic_exchanges.EXCHANGES
    | admin_exchanges.EXCHANGES
    | group_exchanges.GROUP_EXCHANGES
    | absent_exchanges.EXCHANGES
    | security_exchanges.EXCHANGES
)


ADVERTISED = [(api.key, version) for api in APIS.values() for version in api.versions]


async def closing_line(said: list[EventDict]) -> EventDict:
    """Return the log entry of the only closed connection."""
    with trio.fail_after(5):
        while not any(line["event"] == "connection closed" for line in said):  # noqa: ASYNC110  the log has no event
            await trio.sleep(0.001)
    (found,) = (line for line in said if line["event"] == "connection closed")
    return found
