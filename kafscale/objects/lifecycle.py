"""Whether a bucket's lifecycle rules delete, or archive, objects that KafScale cannot do without.

Amazon S3 applies every rule whose filter matches, and the earliest expiry wins: a rule for ``{namespace}/`` deletes
what is under ``{namespace}/~`` too, and a more specific rule beside it protects nothing.
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
    """The rules of a GetBucketLifecycleConfiguration reply that can hit objects as KafScale writes them.

    Left out are disabled rules, those that only touch noncurrent versions, delete markers or incomplete uploads, and
    those that ask for a tag, which KafScale's objects do not have. A filter by size is ignored, so such a rule counts.
    Raises Unavailable where the body is not XML.
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
    """What happens to current objects; empty: nothing that matters."""
    if any(rule.find(path) is not None for path in ("Expiration/Days", "Expiration/Date", "AllVersionsExpiration")):
        return "deletes"
    classes = {found.text for found in rule.iterfind("Transition/StorageClass")}
    return "archives" if classes & _ARCHIVES else ""


def dangers(rules: list[Rule], namespace: str) -> list[str]:
    """One sentence for each rule that covers objects that only KafScale may delete; empty: there is none."""
    reserved = f"{namespace}/~"
    # What is here may go at any age without harm to the log: how long snapshots are kept is the operator's choice.
    expendable = etcd_snapshots_prefix(namespace), backups_prefix(namespace), probe_key(namespace, "")
    return [
        f"lifecycle rule {rule.name!r} (prefix {rule.prefix!r}) {rule.effect} objects under {reserved}, which KafScale "
        f"needs: limit the rule to a topic, such as {namespace}/TOPIC/"
        for rule in rules
        if reserved.startswith(rule.prefix)
        or (rule.prefix.startswith(reserved) and not rule.prefix.startswith(expendable))
    ]


class LifecycleWatch:
    """What the rules mean for ``namespace``, as they were read last. `run` reads them again every five minutes."""

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
        """``read`` gives the bucket's configuration, empty if it has none. Started after the first, bounded read."""
        with trio.move_on_after(_FIRST_READ_SECONDS):
            await self._look(read)
        task_status.started()
        while True:
            await trio.sleep(_PAUSE_SECONDS)
            await self._look(read)

    async def _look(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """A store that does not let us read its rules, or has none, is no fault; what was found before stays known."""
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
