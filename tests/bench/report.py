"""The Markdown table of a comparison."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. Latencies are in ms, None if the client does not report them. Usage is by process."""

    row: str
    target: str
    megabytes_per_second: float
    p50_ms: int | None
    p99_ms: int | None
    cpu_seconds_per_gb: dict[str, float]
    peak_rss_mb: dict[str, float]


def render(results: Sequence[Result], *, reference: str) -> str:
    """Return a line for each row and target with the medians of its runs, and the ratio to the reference in the row."""
    lines = [
        f"| load | server | MB/s | ratio to {reference} | p50 / p99 ms | CPU s per GB | peak RSS MB |",
        "|---|---|---|---|---|---|---|",
    ]
    middle = _medians(results)
    base = {result.row: result.megabytes_per_second for result in middle if result.target == reference}
    lines += [_line(result, base[result.row]) for result in middle]
    return "\n".join([*lines, "", *_summary([each for each in middle if each.target != reference], base), ""])


def by_process(values: Mapping[str, float], digits: int = 1) -> str:
    """Return the sum, and the values by process if there are several. Values that round to 0 are omitted."""
    text = f"{sum(values.values()):.{digits}f}"
    parts = [f"{name} {value:.{digits}f}" for name, value in values.items() if round(value, digits)]
    return f"{text}: {', '.join(parts)}" if len(values) > 1 else text


def _medians(results: Sequence[Result]) -> list[Result]:
    """Return the median result of each row and target, in the order of their first results."""
    groups: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        groups.setdefault(result.row, {}).setdefault(result.target, []).append(result)
    return [_median(runs) for targets in groups.values() for runs in targets.values()]


def _median(runs: Sequence[Result]) -> Result:
    p50 = [run.p50_ms for run in runs if run.p50_ms is not None]
    p99 = [run.p99_ms for run in runs if run.p99_ms is not None]
    return Result(
        row=runs[0].row,
        target=runs[0].target,
        megabytes_per_second=median(run.megabytes_per_second for run in runs),
        p50_ms=round(median(p50)) if p50 else None,
        p99_ms=round(median(p99)) if p99 else None,
        cpu_seconds_per_gb=_median_of_each([run.cpu_seconds_per_gb for run in runs]),
        peak_rss_mb=_median_of_each([run.peak_rss_mb for run in runs]),
    )


def _median_of_each(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in values) for name in values[0]}


def _line(result: Result, base: float) -> str:
    latency = "" if result.p50_ms is None else f"{result.p50_ms} / {result.p99_ms}"
    cells = [
        result.row,
        result.target,
        f"{result.megabytes_per_second:.1f}",
        f"{result.megabytes_per_second / base:.2f}",
        latency,
        by_process(result.cpu_seconds_per_gb),
        by_process(result.peak_rss_mb, digits=0),
    ]
    return "| " + " | ".join(cells) + " |"


def _summary(results: Sequence[Result], base: Mapping[str, float]) -> Iterator[str]:
    """Return the median ratio of each target by kind of load."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for result in results:
        kind = result.row.split(",")[0]
        ratios.setdefault((result.target, kind), []).append(result.megabytes_per_second / base[result.row])
    for (target, kind), each in ratios.items():
        low, high = min(each), max(each)
        yield f"{target}, {kind}: median ratio {median(each):.2f} ({low:.2f} to {high:.2f}, {len(each)} loads)."
