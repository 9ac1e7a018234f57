"""The metrics of a process in Prometheus' text format. Values are read when /metrics is scraped."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kafscale.telemetry import Family, Histogram, Values

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Described:
    """A metric without its values, as listed in the documentation."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @classmethod
    def of(cls, family: Family) -> "Described":
        return cls(family.name, family.kind, family.labels, family.help)


def standard_metrics() -> list[Described]:
    """Return the metrics that the Prometheus client exposes for every process."""
    found = []
    for metric in _standard().collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = tuple(metric.samples[0].labels) if metric.samples else ()
        found.append(Described(name, metric.type, labels, metric.documentation))
    return found


class Metrics:
    """The metrics of one process. Instances share nothing."""

    def __init__(self) -> None:
        self._registry = _standard()
        self._families: dict[str, Family] = {}
        self._registry.register(_Collector(self._families))

    def add(self, families: Iterable[Family]) -> None:
        """Expose ``families`` as well. Raises ValueError for a name that is already in use."""
        for family in families:
            if family.name in self._families:
                raise ValueError(f"duplicate metric name: {family.name}")
            if (family.kind == "counter") != family.name.endswith("_total"):
                raise ValueError(f"{family.name}: the names of counters, and only these, must end in _total")
            self._families[family.name] = family

    @property
    def names(self) -> set[str]:
        return set(self._families)

    def values(self, name: str) -> Values:
        """Return the current values of a metric, by labels; none if the process does not have it."""
        family = self._families.get(name)
        return {} if family is None else family.read()

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _standard() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


class _Collector:
    def __init__(self, families: dict[str, Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families.values():
            yield _metric(family)


def _metric(family: Family) -> Metric:
    values = family.read()
    if family.kind == "histogram":
        histograms = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in values.items():
            if isinstance(value, Histogram):
                histograms.add_metric(labels, _buckets(value), value.total)
        return histograms
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        if not isinstance(value, Histogram):
            metric.add_metric(labels, value)
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulative counts, as Prometheus expects them."""
    buckets, count = [], 0
    for bound, here in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        count += here
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(count)))
    return buckets
