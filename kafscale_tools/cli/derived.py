"""The output of `kafscale inspect` for objects derived from segments and metadata: catalog pages, topic objects."""

from collections.abc import Iterator
from uuid import UUID

from kafscale.catalog.page import parse_page
from kafscale.catalog.topic_object import parse_topic_object
from kafscale_tools.cli.present import facts, quoted, table, time_text


def page_lines(data: bytes) -> Iterator[str]:
    """Yield the description of a catalog page. Raises CorruptData."""
    content = parse_page(data)
    yield ""
    yield "Page"
    yield from facts(
        [
            ("partition", f"{content.topic}-{content.partition}"),
            ("topic id", str(UUID(bytes=content.topic_id))),
            ("epoch", f"{content.epoch} (of the owner that wrote it)"),
            ("offsets", f"{content.segments[0].base_offset}-{content.segments[-1].next_offset - 1}"),
            ("records", str(sum(segment.records for segment in content.segments))),
            ("bytes", f"{sum(segment.size for segment in content.segments):,}"),
        ]
    )
    yield ""
    yield f"Segments ({len(content.segments)})"
    times = ("oldest batch", "max timestamp", "created")
    rows = [
        (
            f"{segment.base_offset}-{segment.next_offset - 1}",
            str(segment.size),
            str(segment.records),
            str(segment.epoch),
            time_text(segment.min_timestamp),
            time_text(segment.max_timestamp),
            time_text(segment.created_ms),
        )
        for segment in content.segments
    ]
    yield from table(("offsets", "bytes", "records", "epoch", *times), rows, left=times)


def topic_lines(data: bytes) -> Iterator[str]:
    """Yield the description of a topic object. Raises CorruptData."""
    topic = parse_topic_object(data)
    yield ""
    yield "Topic"
    yield from facts(
        [
            ("name", topic.name),
            ("id", str(UUID(bytes=topic.id))),
            ("created", time_text(topic.created_ms)),
            ("epochs above", str(topic.epoch_floor)),
            ("metadata revision", str(topic.metadata_revision)),
        ]
    )
    yield ""
    yield f"Configs ({len(topic.configs)})"
    rows = [(quoted(name.encode(), 80), quoted(value.encode(), 200)) for name, value in sorted(topic.configs.items())]
    yield from table(("name", "value"), rows, left=("name", "value"))
    yield ""
    yield f"Partitions ({topic.partitions})"
    yield from table(
        ("partition", "log start"), [(str(index), str(start)) for index, start in enumerate(topic.log_starts)]
    )
