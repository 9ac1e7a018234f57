"""What live tails of records cost the console: 100 browsers follow topics with 20,000 records/s in total.

    python -m tests.bench.console_tails [--tails 100] [--rate 20000] [--seconds 30] [--filter]

Each tail shows up to 20 records a second, from all partitions of one topic. With ``--filter``, it shows those that
contain a text, so that the console reads everything that a tail may. Prints the memory and CPU of the console and of
the gateway, what the tails received, and how late an answer of the console was meanwhile.
"""

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpcore
import trio
from confluent_kafka import Producer
from trio_websocket import open_websocket_url

from tests.bench.usage import measured_each
from tests.servers.cluster import running_cluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.console import TOKEN, Console, running_console

TOPIC, PARTITIONS, RECORD_BYTES = "busy", 4, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tails", type=int, default=100)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--filter", action="store_true")
    given = parser.parse_args()
    settings = {"KAFSCALE_CONSOLE_SIGN_IN": "none", "KAFSCALE_CONSOLE_VIEWER_TOKEN": ""}
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Path(directory), env={"KAFSCALE_ADMIN_TOKEN": TOKEN}, show_logs=False) as cluster,
        running_console(cluster, **settings) as console,
    ):
        ConfluentClient(cluster.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        processes = {"console": console.process, "gateway": cluster.gateways[0]}
        pids = {name: each.process.pid for name, each in processes.items()}
        stopping, sent = threading.Event(), [0]
        load = threading.Thread(target=_produce, args=(cluster.bootstrap, given.rate, stopping, sent))
        load.start()
        begun = time.monotonic()
        try:
            with measured_each(pids) as usages:
                received = trio.run(_follow, console, given.tails, given.seconds, "77" if given.filter else "")
            seconds = time.monotonic() - begun
            rate = sent[0] / seconds
        finally:
            stopping.set()
            load.join()
        print(f"{given.tails} tails for {seconds:.0f} s; {rate:.0f} records/s produced")
        print(f"shown: {received['records']}, left out: {received['left_out']}, faults: {dict(received['faults'])}")
        print(f"another request took at most {1000 * received['slowest']:.0f} ms")
        for name, usage in usages.items():
            print(f"{name}: {usage.cpu_seconds:.1f} s of CPU, at most {usage.peak_rss_bytes >> 20} MiB")


def _produce(bootstrap: str, rate: int, stopping: threading.Event, sent: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 10**6})
    begun = time.monotonic()
    while not stopping.wait(0.02):
        while sent[0] < int((time.monotonic() - begun) * rate):
            producer.produce(TOPIC, f"x{sent[0]}".ljust(RECORD_BYTES), partition=sent[0] % PARTITIONS)
            sent[0] += 1
        producer.poll(0)
    producer.flush(30)


async def _follow(console: Console, tails: int, seconds: float, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"records": 0, "left_out": 0, "faults": Counter(), "slowest": 0.0}
    url = f"ws://{console.host}/live/topics/{TOPIC}/records?limit=20&value={text}"

    async def tail() -> None:
        headers = [(b"origin", f"http://{console.host}".encode())]
        async with open_websocket_url(url, extra_headers=headers, max_message_size=1 << 24) as socket:
            while True:
                message = json.loads(await socket.get_message())
                found["records"] += len(message.get("records", []))
                if message.get("fault"):
                    found["faults"][message["fault"]] += 1
                found["left_out"] += sum(int(each["to"]) - int(each["from"]) for each in message.get("left_out", []))

    async def ask() -> None:
        async with httpcore.AsyncConnectionPool() as pool:
            while True:
                begun = trio.current_time()
                await pool.request("GET", f"http://{console.host}/api/session")
                found["slowest"] = max(found["slowest"], trio.current_time() - begun)
                await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for _ in range(tails):
            nursery.start_soon(tail)
        await trio.sleep(5)
        nursery.start_soon(ask)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return found


if __name__ == "__main__":
    main()
