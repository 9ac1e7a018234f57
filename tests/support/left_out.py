"""The skipped tests of a run, for its summary."""

from collections import Counter
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]


def show(reporter: pytest.TerminalReporter, *, files: bool) -> None:
    """Print the number of skipped tests by reason and, with ``files``, the directories and files that were not run."""
    reasons = Counter(reason_of(report) for report in reporter.stats.get("skipped", ()))
    lines = [f"{number} skipped: {reason}" for reason, number in sorted(reasons.items())]
    if files:
        lines += _not_run(reporter)
    if lines:
        reporter.section("skipped")
        for line in lines:
            reporter.write_line(line)


def reason_of(report: pytest.TestReport) -> str:
    """Return the reason for which a test was skipped."""
    assert isinstance(report.longrepr, tuple)
    # The text before the first colon is the class of the exception.
    return report.longrepr[2].partition(": ")[2]


def _not_run(reporter: pytest.TerminalReporter) -> list[str]:
    run = {
        report.nodeid.partition("::")[0]
        for reports in reporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    }
    folders: dict[str, list[str]] = {}
    for path in sorted(_TESTS.rglob("test_*.py")):
        name = path.relative_to(_TESTS.parent).as_posix()
        folders.setdefault("/".join(name.split("/")[:2]), []).append(name)
    missed = []
    for folder, names in folders.items():
        missing = [name for name in names if name not in run]
        missed += [folder] if len(missing) == len(names) else missing
    return [f"not run: {', '.join(missed)}"] if missed else []
