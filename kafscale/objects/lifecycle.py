"""Checks whether a bucket's lifecycle rules delete or archive objects that KafScale needs.

Amazon S3 applies every rule whose filter matches, and the earliest expiry wins. So a rule for ``{namespace}/`` also
deletes objects under ``{namespace}/~``, and a more specific rule protects nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import trio

from kafscale.errors import Refused, Unavailable
from kafscale.objects.s3_wire import parse_xml
from kafscale.paths import backups_prefix, etcd_snapshots_prefix, probe_key
from kafscale.telemetry import HEALTHY, Finding, State

_PAUSE_SECONDS = 300.0
_FIRST_READ_SECONDS = 5.0
_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects cannot be read before they are restored."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An enabled rule that removes or archives current objects whose key begins with ``prefix``."""

    name: str
    prefix: str
    effect: str


def parse_rules(body: bytes) -> list[Rule]:
    """Return the rules of a GetBucketLifecycleConfiguration reply that can apply to objects that KafScale writes.

    Omits disabled rules, rules that only affect noncurrent versions, delete markers or incomplete uploads, and rules
    that require a tag, which KafScale's objects do not have. Filters by size are ignored, so rules with one count.
    Raises Unavailable if the body is not XML.
    """
    rules = []
    for rule in parse_xml(body).iter("Rule"):
        effect = _effect(rule)
        if rule.findtext("Status") == "Enabled" and effect and rule.find("Filter//Tag") is None:
            prefix = next((text for path in _PREFIXES if (text := rule.findtext(path))), "")
            rules.append(Rule(rule.findtext("ID") or "without ID", prefix, effect))
    return rules


_PREFIXES = ("Filter/Prefix", "Filter/And/Prefix", "Prefix")


def _effect(rule: Element) -> str:
    """Return what the rule does to current objects, or an empty string if that does not matter."""
    if any(rule.find(path) is not None for path in ("Expiration/Days", "Expiration/Date", "AllVersionsExpiration")):
        return "deletes"
    classes = {found.text for found in rule.iterfind("Transition/StorageClass")}
    return "archives" if classes & _ARCHIVES else ""


def dangers(rules: list[Rule], namespace: str) -> list[str]:
    """Return one sentence for each rule that covers objects that only KafScale may delete."""
    reserved = f"{namespace}/~"
    # These may be deleted at any age without harm to the log. How long to keep snapshots is the operator's choice.
    expendable = etcd_snapshots_prefix(namespace), backups_prefix(namespace), probe_key(namespace, "")
    return [
        f"lifecycle rule {rule.name!r} (prefix {rule.prefix!r}) {rule.effect} objects under {reserved}, which KafScale "
        f"needs: limit the rule to a topic, such as {namespace}/TOPIC/"
        for rule in rules
        if reserved.startswith(rule.prefix)
        or (rule.prefix.startswith(reserved) and not rule.prefix.startswith(expendable))
    ]


class LifecycleWatch:
    """The danger of the rules for ``namespace``, as last read. `run` reads them again every five minutes."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._finding = Finding(State.HEALTHY, "not read yet")

    def finding(self) -> Finding:
        return self._finding

    async def run(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Check until cancelled. ``read`` returns the bucket's configuration, empty if it has none.

        Started after the first read or its time limit.
        """
        with trio.move_on_after(_FIRST_READ_SECONDS):
            await self._look(read)
        task_status.started()
        while True:
            await trio.sleep(_PAUSE_SECONDS)
            await self._look(read)

    async def _look(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """Update the finding. A store without rules, or without permission to read them, is healthy. If the store does
        not answer, a previous problem remains."""
        try:
            body = await read()
            found = dangers(parse_rules(body), self._namespace) if body else []
        except Refused as error:
            self._finding = Finding(State.HEALTHY, f"the bucket's lifecycle rules cannot be read: {error}")
        except Unavailable as error:
            if self._finding.state is State.HEALTHY:
                self._finding = Finding(State.HEALTHY, f"the bucket's lifecycle rules cannot be read: {error}")
        else:
            self._finding = Finding(State.DEGRADED, "; ".join(found)) if found else HEALTHY
