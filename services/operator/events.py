"""Kubernetes Events about the actions of the operator, which `kubectl describe` shows."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import structlog

from kafscale.errors import KafscaleError
from services.operator.counters import OperatorCounters
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import utc_now
from services.operator.resources import EVENT, MANAGER, Object, name_of

_MOST_NAME, _MOST_MESSAGE = 200, 1024
_log = structlog.get_logger(__name__)


class Events:
    """Records events. If the API server rejects one, this is only logged and counted."""

    def __init__(
        self, kubernetes: Kubernetes, counters: OperatorCounters, *, me: str, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._kubernetes = kubernetes
        self._counters = counters
        self._me = me
        self._now = now

    async def record(
        self, resource: Object, reason: str, message: str, *, type_: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """Record an event of a resource. ``reason`` is a CamelCase word."""
        name = name_of(resource)
        _log.info("event", kind=resource["kind"], name=name, reason=reason, message=message)
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": EVENT.api,
            "kind": EVENT.name,
            "metadata": {"generateName": f"{name[:_MOST_NAME]}.", "namespace": self._kubernetes.namespace},
            "involvedObject": {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "namespace": self._kubernetes.namespace,
                "name": name,
                "uid": resource["metadata"]["uid"],
                "resourceVersion": resource["metadata"]["resourceVersion"],
            },
            "type": type_,
            "reason": reason,
            "message": message[:_MOST_MESSAGE],
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": self._me,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            await self._kubernetes.create(EVENT, body)
        except KafscaleError as error:
            self._counters.events_lost += 1
            _log.warning("event lost", name=name, reason=reason, error=str(error))
