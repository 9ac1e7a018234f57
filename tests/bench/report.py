"""The table of a comparison, as Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Result:
    """One run; latencies in ms, None where the client does not tell them."""

    row: str
    target: str
    megabytes_per_second: float
    p50_ms: int | None
    p99_ms: int | None
    cpu_seconds_per_gb: float
    peak_rss_mb: float


def render(results: Sequence[Result], *, reference: str) -> str:
    """One line a run, grouped by row; the ratio is to the reference's run of the same row."""
    lines = [
        f"| load | server | MB/s | ratio to {reference} | p50 / p99 ms | server CPU s per GB | server peak RSS MB |",
        "|---|---|---|---|---|---|---|",
    ]
    base = {result.row: result.megabytes_per_second for result in results if result.target == reference}
    ordered = sorted(results, key=lambda result: list(dict.fromkeys(each.row for each in results)).index(result.row))
    lines += [_line(result, base[result.row]) for result in ordered]
    return "\n".join([*lines, "", "MinIO's own CPU and memory are not counted.", ""]) + "".join(_summary(results, base))


def _line(result: Result, base: float) -> str:
    latency = "" if result.p50_ms is None else f"{result.p50_ms} / {result.p99_ms}"
    cells = [
        result.row,
        result.target,
        f"{result.megabytes_per_second:.1f}",
        f"{result.megabytes_per_second / base:.2f}",
        latency,
        f"{result.cpu_seconds_per_gb:.1f}",
        f"{result.peak_rss_mb:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _summary(results: Iterable[Result], base: dict[str, float]) -> Iterator[str]:
    """The median ratio of each target, by what was measured."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for result in results:
        kind = "produce, 5 in flight" if result.row.endswith("5 in flight") else result.row.split(":")[0]
        ratios.setdefault((result.target, kind), []).append(result.megabytes_per_second / base[result.row])
    for (target, kind), each in ratios.items():
        if set(each) != {1.0}:
            low, high = min(each), max(each)
            yield f"{target}, {kind}: median ratio {median(each):.2f} ({low:.2f} to {high:.2f}, {len(each)} loads).\n"
