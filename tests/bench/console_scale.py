"""Times of the console with many topics: `python -m tests.bench.console_scale`.

A gateway that answers at once stands in for the cluster, so that the times are those of the console and of the browser.
"""

import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import grpc
import httpcore
import trio
from playwright.sync_api import Page

from kafscale.rpc.admin import bind_admin
from kafscale.rpc.errors import StatusError
from kafscale.rpc.server import RpcServer
from kafscale.v1 import admin_pb2 as pb
from tests.servers.cluster import ServiceProcess
from tests.servers.ports import free_ports
from tests.support.browser import running_browser

_OWNERS = 8
_MOVES_PER_SECOND = 500
_MOST_CELLS = 20_000
"""The page of instances shows no more."""


class _Gateway:
    """An Admin service with ``topics`` topics of ``partitions`` partitions each. Other methods refuse."""

    def __init__(self, topics: int, partitions: int) -> None:
        self.topics = pb.ListTopicsReply()
        self.partitions = pb.ListPartitionsReply()
        for number in range(topics):
            name = f"topic-{number:05}"
            configs = {"retention.ms": "86400000", "segment.bytes": "16777216"} if number % 5 == 0 else {}
            self.topics.topics.add(
                name=name,
                id="A" * 22,
                partitions=partitions,
                created_ms=10**12,
                cleanup_policy="delete",
                configs=configs,
            )
            for partition in range(partitions):
                owner = (number + partition) % _OWNERS
                self.partitions.partitions.add(
                    topic=name,
                    partition=partition,
                    owner=f"10.0.0.{owner}:9095",
                    owner_run=f"run-{owner}",
                    epoch=3,
                    high_watermark=10**6,
                    bytes=10**9,
                    segments=250,
                )

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def refuse(*_: object) -> object:
            raise StatusError(grpc.StatusCode.UNIMPLEMENTED, name)

        return refuse

    async def cluster_status(self, _: pb.ClusterStatusRequest) -> pb.ClusterStatusReply:
        await trio.lowlevel.checkpoint()
        return pb.ClusterStatusReply(topics=len(self.topics.topics), partitions=len(self.partitions.partitions))

    async def list_topics(self, _: pb.ListTopicsRequest) -> pb.ListTopicsReply:
        await trio.lowlevel.checkpoint()
        return self.topics

    async def list_partitions(self, _: pb.ListPartitionsRequest) -> pb.ListPartitionsReply:
        await trio.lowlevel.checkpoint()
        return self.partitions

    async def watch_cluster(
        self, _: pb.WatchClusterRequest, send: Callable[[pb.ClusterChange], Awaitable[None]]
    ) -> None:
        """Report members, and then a drain: partitions that get another owner."""
        for number in range(_OWNERS):
            member = pb.ClusterMember(service="storage", run_id=f"run-{number}", address=f"10.0.0.{number}:9095")
            await send(pb.ClusterChange(member=pb.MemberChange(kind=pb.MemberChange.PRESENT, member=member)))
        await trio.sleep(5)
        for each in self.partitions.partitions:
            change = pb.OwnerChange(topic=each.topic, partition=each.partition, owner_run="run-0", epoch=4)
            await send(pb.ClusterChange(owner=change))
            await trio.sleep(1 / _MOVES_PER_SECOND)
        await trio.sleep_forever()


@contextmanager
def _served(gateway: _Gateway) -> Iterator[str]:
    """Serve the gateway in a thread, and yield its address."""
    ready, address = threading.Event(), ""
    token: trio.lowlevel.TrioToken
    stop: trio.Event

    async def serve() -> None:
        nonlocal address, token, stop
        token, stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with trio.open_nursery() as nursery:
            port = await nursery.start(RpcServer([bind_admin(gateway)]).run, "127.0.0.1:0", stop)
            address = f"127.0.0.1:{port}"
            ready.set()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    ready.wait()
    try:
        yield address
    finally:
        token.run_sync_soon(stop.set)
        thread.join()


def _waits(url: str, stop: threading.Event) -> list[float]:
    """Ask for something small again and again, and return how long each answer took: what a long one delays."""
    waits = []
    with httpcore.ConnectionPool() as pool:
        while not stop.is_set():
            began = time.perf_counter()
            pool.request("GET", f"{url}/api/session")
            waits.append(time.perf_counter() - began)
            time.sleep(0.002)
    return waits


def _measure_request(url: str, path: str) -> str:
    stop, waits = threading.Event(), list[float]()
    pinging = threading.Thread(target=lambda: waits.extend(_waits(url, stop)))
    pinging.start()
    times, size = [], 0
    for _ in range(5):
        began = time.perf_counter()
        size = len(httpcore.request("GET", f"{url}{path}").content)
        times.append(time.perf_counter() - began)
    stop.set()
    pinging.join()
    return f"| {path} | {size / 1e6:.1f} | {_ms(statistics.median(times))} | {_ms(max(waits))} |"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


_PAINTED = """async ([path, selector]) => {
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
    while (!document.querySelector(selector)) await new Promise(requestAnimationFrame);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const painted = performance.now(), answers = performance.getEntriesByType("resource");
    const answer = answers.filter((each) => each.name.includes("/api/topics")).at(-1);
    return [painted, answer ? answer.responseEnd : 0];
}"""
_LONGEST_FRAME = """() => new Promise((done) => {
    let last = performance.now(), longest = 0;
    const end = last + 5000;
    requestAnimationFrame(function frame(now) {
        longest = Math.max(longest, now - last);
        last = now;
        now < end ? requestAnimationFrame(frame) : done(longest);
    });
})"""


def _measure_pages(page: Page, topics: int, cells: int) -> Iterator[str]:
    painted, answered = page.evaluate(_PAINTED, ["/topics", "tbody tr"])
    yield f"| topics: answer to paint | {painted - answered:.0f} |"
    began = time.perf_counter()
    page.get_by_label("Search in topics").fill(f"{topics - 1:05}")
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 1")
    yield f"| topics: search | {_ms(time.perf_counter() - began)} |"
    page.get_by_label("Search in topics").fill("")
    began = time.perf_counter()
    page.get_by_role("button", name="Partitions", exact=True).click()
    page.wait_for_function("document.querySelector('th[aria-sort=ascending]').textContent === 'Partitions'")
    yield f"| topics: sort | {_ms(time.perf_counter() - began)} |"
    began = time.perf_counter()
    page.evaluate(_PAINTED, ["/instances", "svg.owners rect"])
    yield f"| instances: click to first paint | {_ms(time.perf_counter() - began)} |"
    page.wait_for_function(f"document.querySelectorAll('svg.owners rect').length === {cells}")
    yield f"| instances: click to {cells:,} cells | {_ms(time.perf_counter() - began)} |"
    # The drain has begun then.
    page.wait_for_timeout(5000)
    yield f"| instances: longest frame, {_MOVES_PER_SECOND} moves a second | {page.evaluate(_LONGEST_FRAME):.0f} |"


@click.command()
@click.option("--topics", default=5000, show_default=True)
@click.option("--partitions", default=2, show_default=True, help="Of each topic.")
def main(topics: int, partitions: int) -> None:
    """Print the times of the console's answers and pages."""
    with _served(_Gateway(topics, partitions)) as gateway, TemporaryDirectory() as scratch:
        own, health = (f"127.0.0.1:{port}" for port in free_ports(2))
        env = {"KAFSCALE_CONSOLE_ADDR": own, "KAFSCALE_HTTP_ADDR": health, "KAFSCALE_ADMIN_SERVER": gateway}
        console = ServiceProcess("console", 0, Path(scratch), env)
        console.start()
        try:
            console.await_ready()
            url = f"http://{own}"
            click.echo("| request | MB | median ms | longest wait of a small request, ms |\n|---|---|---|---|")
            for path in ("/api/topics", "/api/topics/topic-00000/partitions"):
                click.echo(_measure_request(url, path))
            click.echo("\n| page | ms |\n|---|---|")
            with running_browser() as browser:
                page = browser.new_page()
                page.goto(f"{url}/no/such/page")
                for line in _measure_pages(page, topics, min(topics * partitions, _MOST_CELLS)):
                    click.echo(line)
        finally:
            console.end()


if __name__ == "__main__":
    main()
