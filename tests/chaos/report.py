"""The table at the end of a chaos run."""

from tests.chaos.run import Report
from tests.chaos.world import LEASE_SECONDS
from tests.support.chaos.history import Verdict

_MOST_OF_A_KIND = 5


def shortened(complaints: list[str]) -> list[str]:
    """Return the first complaints of each kind (the text before the colon) and the number of the others."""
    kinds: dict[str, list[str]] = {}
    for complaint in complaints:
        kinds.setdefault(complaint.partition(":")[0], []).append(complaint)
    lines = []
    for kind, texts in kinds.items():
        lines += texts[:_MOST_OF_A_KIND]
        if len(texts) > _MOST_OF_A_KIND:
            lines.append(f"{kind}: {len(texts) - _MOST_OF_A_KIND} more")
    return lines


def table(report: Report) -> str:
    lines = [
        "",
        f"minutes of faults      {report.minutes:g}, seed {report.seed}",
        f"faults                 {sum(report.faults.values())}",
        *(f"  {name:<30} {count:>6}" for name, count in sorted(report.faults.items())),
        f"  {'unexpected exits':<30} {sum(report.ended.values()):>6}  {_listed(report.ended)}".rstrip(),
        f"longest stall          {report.longest_stall:.1f} s of the proxies; leases last {LEASE_SECONDS} s",
        f"rewrites               {_listed(report.rewrites)}, abandoned: {report.abandoned}",
        *verdict_lines(report.verdict),
    ]
    return "\n".join(lines)


def verdict_lines(verdict: Verdict) -> list[str]:
    lines = ["producers                      sent      acked  given up  longest wait for an ack"]
    for name, sums in verdict.producers.items():
        given_up = sum(sums.failed.values())
        waited = f"{sums.longest_wait:.1f} s"
        lines.append(
            f"  {name:<24} {sums.sent:>10} {sums.acked:>10} {given_up:>9}  {waited:>8}  {_listed(sums.failed)}".rstrip()
        )
    lines.append(f"  longest time without any ack {verdict.longest_wait:.1f} s")
    lines.append("readers")
    lines += [f"  {name:<24} {count:>10}" for name, count in sorted(verdict.read.items())]
    acked = sum(sums.acked for sums in verdict.producers.values())
    lines.append(f"checked                {acked} acked records against a log of {verdict.in_log}")
    fine = "no acked record lost, none duplicated, all in order"
    lines.append(f"verdict                {f'{len(verdict.complaints)} complaints' if verdict.complaints else fine}")
    return lines


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
