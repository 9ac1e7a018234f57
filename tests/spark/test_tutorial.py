"""The code blocks of docs/spark/tutorial.md, unchanged, and the demo."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from pyspark.sql import SparkSession

import demo
from tests.servers.ports import free_ports
from tests.spark.conftest import Kafscale
from tests.support.broker import KafscaleBroker
from tests.support.spark.session import ROOT, environment

TUTORIAL = ROOT / "docs" / "spark" / "tutorial.md"
BROKER = "127.0.0.1:9092"
ENDPOINTS = "127.0.0.1:9095"
WAIT_SECONDS = 30
DEMO_SECONDS = 800


@pytest.fixture
def started(tmp_path: Path) -> Iterator[KafscaleBroker]:
    """A KafScale with default settings, except that retention runs every second."""
    broker = KafscaleBroker(tmp_path, {"KAFSCALE_RETENTION_CHECK_MS": "1000"})
    try:
        yield broker
    finally:
        broker.stop()


def test_the_tutorials_blocks_run(
    spark: SparkSession, started: KafscaleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package registers with the current session when it is imported for the first time.
    monkeypatch.delitem(sys.modules, "kafscale_spark")
    chapter = TUTORIAL.read_text().partition("\n## Tutorial\n")[2].partition("\n## ")[0]
    [topics] = re.findall(r"^    (for topic in .*)$", chapter, re.MULTILINE)
    assert BROKER in topics
    subprocess.run(["bash", "-euc", topics.replace(BROKER, started.bootstrap)], check=True, timeout=WAIT_SECONDS)
    blocks = re.findall(r"^```python\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    assert any(ENDPOINTS in block for block in blocks)
    # Blocks run with the current session.
    names_so_far: dict[str, Any] = {"__name__": "tutorial"}
    for block in blocks:
        exec(compile(block.replace(ENDPOINTS, started.rpc), str(TUTORIAL), "exec"), names_so_far)
    assert names_so_far["spark"].sparkContext is spark.sparkContext


def test_the_records_of_the_demo_are_kept(kafscale: Kafscale) -> None:
    """They are from 2013, which the default retention would delete."""
    assert demo.make_topics(kafscale.bootstrap, lambda: True) == ""
    admin = AdminClient({"bootstrap.servers": kafscale.bootstrap})
    [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "flights")]).values()
    assert described.result(WAIT_SECONDS)["retention.ms"].value == "-1"


@pytest.mark.timeout(DEMO_SECONDS + 60)
def test_the_demo_draws_a_week(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    ports = map(str, free_ports(3))
    command = [
        sys.executable,
        str(ROOT / "spark" / "demo.py"),
        "--days",
        "7",
        "--picture",
        str(picture),
        "--ports",
        *ports,
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment(), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "6,099 flights in topic flights" in done.stdout
    # Seven days in New York touch eight days in UTC.
    assert "24 windows in topic flights-by-day" in done.stdout
    assert "0 late, 0 bad" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
