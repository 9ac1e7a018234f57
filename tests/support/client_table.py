"""The table of the client matrix at the end of a run: each client with its version, cases and passed cases."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest

from tests.support.left_out import reason_of

CLIENT = "client"
"""The report property with a client's name, a blank and its version."""


def rows(reports: Iterable[pytest.TestReport]) -> list[tuple[str, str, int, int, dict[str, int]]]:
    """Return client, version, cases, passed cases, and the number of skipped cases by reason."""
    passed: Counter[str] = Counter()
    failed: dict[str, set[str]] = defaultdict(set)
    left_out: dict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        client = dict(report.user_properties).get(CLIENT)
        if not isinstance(client, str):
            continue
        if report.outcome == "failed":
            failed[client].add(report.nodeid)
        elif report.outcome == "skipped":
            left_out[client][reason_of(report)] += 1
        elif report.when == "call":
            passed[client] += 1
    found = []
    for client in sorted({*passed, *failed, *left_out}):
        name, _, version = client.partition(" ")
        cases = passed[client] + len(failed[client])
        found.append((name, version, cases, passed[client], dict(left_out[client])))
    return found


def show(reporter: pytest.TerminalReporter) -> None:
    """Print the table if the run had cases of the matrix."""
    kinds = ("passed", "failed", "error", "skipped")
    found = rows(
        report for kind in kinds for report in reporter.stats.get(kind, []) if isinstance(report, pytest.TestReport)
    )
    if not found:
        return
    reporter.section("client matrix")
    reporter.line(f"{'client':<16} {'version':<28} {'cases':>5} {'passed':>6}  skipped, not supported by the client")
    for name, version, cases, passed, left_out in found:
        reporter.line(f"{name:<16} {version:<28} {cases:>5} {passed:>6}  {sum(left_out.values())}")
        for reason, count in left_out.items():
            reporter.line(f"{'':<58}   {count}: {reason}")
