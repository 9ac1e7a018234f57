"""Takes the pictures of the console in the documents: `python -m tests.console.screenshots DIRECTORY`.

The cluster has the four services with MinIO and etcd. Producers and a group that falls behind are active meanwhile.
"""

import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from playwright.sync_api import Browser, Page

from tests.servers.cluster import Cluster, running_cluster
from tests.support.browser import running_browser
from tests.support.clients.confluent import ConfluentClient
from tests.support.console import TOKEN, Console, opened_page, running_console, sign_in

_TOPICS = {"orders": 6, "payments": 6, "clicks": 12, "customers": 3, "shipments": 4}
_CITIES = ("Bern", "Oslo", "Porto", "Riga", "Turin")
_SECONDS = 90
"""How long records are produced before the pictures are taken, so that there is something to plot."""
_PICTURES = {
    "overview": ("/", "Rates of the last hour"),
    "topics": ("/topics", ""),
    "topic": ("/topics/orders", ""),
    "records": ("/topics/orders/records?limit=50", ""),
    "segments": ("/topics/orders/0", ""),
    "segment": ("/topics/orders/0/0", ""),
    "groups": ("/groups", ""),
    "group": ("/groups/billing", ""),
    "instances": ("/instances", ""),
    "access": ("/access", ""),
    "sinks": ("/sinks", ""),
}
"""The page of each picture, and the heading at which it begins; empty: its top."""


@contextmanager
def _traffic(cluster: Cluster) -> Iterator[None]:
    """Write to all topics, and read `orders` more slowly, until the end."""
    stopping = threading.Event()

    def write() -> None:
        producer, dice = Producer({"bootstrap.servers": cluster.bootstrap}), random.Random(1)
        for number in range(10**9):
            if stopping.is_set():
                break
            topic, _ = dice.choice(list(_TOPICS.items()))
            order = {"id": number, "city": dice.choice(_CITIES), "amount": dice.randrange(100, 9000) / 100}
            producer.produce(topic, json.dumps({"order": order}), f"customer-{dice.randrange(500)}")
            producer.poll(0)
            time.sleep(dice.random() / (30 + 20 * (number // 500 % 3)))
        producer.flush(30)

    def read() -> None:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        while not stopping.is_set():
            consumer.poll(0.5)
            time.sleep(0.2)
        consumer.close()

    threads = [threading.Thread(target=task) for task in (write, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _add_users(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, scram, b"secret") for name in ("billing", "loader", "reports")
    ]
    for changed in admin.alter_user_scram_credentials(users).values():
        changed.result(30)


def _take(page: Page, path: str, heading: str, picture: Path) -> None:
    page.goto(path)
    page.locator("main h1").wait_for()
    # Plots and live pages need some answers.
    page.wait_for_timeout(3000)
    if heading:
        page.get_by_role("heading", name=heading).evaluate("(heading) => heading.scrollIntoView()")
    page.screenshot(path=picture)


def _take_all(browser: Browser, console: Console, directory: Path) -> None:
    for dark in (False, True):
        with opened_page(browser, console, dark=dark) as page:
            sign_in(page)
            # Opened before, so that the console remembers the lag.
            page.goto("/groups/billing")
            for name, (path, heading) in _PICTURES.items():
                picture = directory / f"console-{name}{'-dark' if dark else ''}.png"
                click.echo(f"{picture.name} ...", err=True)
                _take(page, path, heading, picture)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def main(directory: Path) -> None:
    """Take a picture of each page, light and dark, into DIRECTORY."""
    directory.mkdir(parents=True, exist_ok=True)
    env = {"KAFSCALE_ADMIN_TOKEN": TOKEN, "KAFSCALE_SEGMENT_INTERVAL_MS": "5000"}
    with (
        tempfile.TemporaryDirectory(prefix="kafscale-pictures-") as scratch,
        running_cluster(Path(scratch), gateways=2, storages=3, env=env, show_logs=False) as cluster,
        running_console(cluster) as console,
        running_browser() as browser,
    ):
        client = ConfluentClient(cluster.bootstrap)
        for topic, partitions in _TOPICS.items():
            client.create_topic(topic, partitions=partitions)
        _add_users(cluster)
        with _traffic(cluster):
            with opened_page(browser, console) as page:
                sign_in(page)
                page.goto("/groups/billing")
                click.echo(f"writing for {_SECONDS} s ...", err=True)
                page.wait_for_timeout(_SECONDS * 1000)
            _take_all(browser, console, directory)


if __name__ == "__main__":
    main()
