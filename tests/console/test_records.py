"""The pages of records in a real browser, beside the four services."""

import base64
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, CDPSession, Page, expect

from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.clients.confluent import ConfluentClient
from tests.support.console import TOKEN, VIEWER_TOKEN, Console, opened_page, running_console, sign_in

ORDERS, BUSY, WRITTEN = "orders", "busy", "written"
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x00\x1b[31m'\"</code>"
FIRST_MS = 1_700_000_000_000
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "city", "type": "string"}]}
LONG = 1_000_000


class Registry(BaseHTTPRequestHandler):
    """A schema registry with one schema, whose id is 7, for the user ann."""

    def do_GET(self) -> None:
        known = self.path == "/registry/schemas/ids/7"
        login = base64.b64encode(b"ann:secret").decode()
        allowed = self.headers["authorization"] == f"Basic {login}"
        body = json.dumps({"schema": json.dumps(AVRO)}).encode() if known and allowed else b"{}"
        self.send_response(200 if known and allowed else 404 if allowed else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep the output of tests short."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/registry"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory, env = tmp_path_factory.mktemp("records"), {"KAFSCALE_ADMIN_TOKEN": TOKEN}
    with running_cluster(directory, etcd=etcd, minio=minio, env=env, gateways=2) as running:
        client = ConfluentClient(running.bootstrap)
        for topic, partitions in ((ORDERS, 2), (BUSY, 2), (WRITTEN, 3)):
            client.create_topic(topic, partitions=partitions)
        producer = Producer({"bootstrap.servers": running.bootstrap, "message.max.bytes": 2 * LONG})
        for number in range(300):
            value = json.dumps({"order": {"id": number, "city": "Oslo" if number % 2 else "Rome"}})
            producer.produce(
                ORDERS, value, f"key-{number}", number % 2, timestamp=FIRST_MS + number, headers={"h": str(number)}
            )
        producer.flush(60)
        special = {
            "avro": b"\0\0\0\0\x07\x08Bern",
            "unknown": b"\0\0\0\0\x08\x08Bern",
            HOSTILE: HOSTILE.encode() + b"\xff",
            "long": b"x" * LONG,
            "none": None,
        }
        for key, content in special.items():
            producer.produce(ORDERS, content, key, 1, headers=[(HOSTILE, HOSTILE.encode())])
        assert producer.flush(60) == 0
        yield running


@pytest.fixture(scope="module")
def console(cluster: Cluster, registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    password = tmp_path_factory.mktemp("password") / "password"
    password.write_text("secret\n")
    settings = {
        "KAFSCALE_CONSOLE_REGISTRY_URL": registry,
        "KAFSCALE_CONSOLE_REGISTRY_USER": "ann",
        "KAFSCALE_CONSOLE_REGISTRY_PASSWORD_FILE": str(password),
    }
    with running_console(cluster, **settings) as running:
        yield running


def offsets(page: Page) -> list[str]:
    """Return the offsets of the shown records, once the page has read and shows some."""
    expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
    rows = page.get_by_role("table", name="records").locator("tbody tr th")
    expect(rows.first).to_be_visible()
    return rows.all_text_contents()


def test_records_are_found_by_offset_time_key_text_and_path_and_a_read_goes_on(page: Page) -> None:
    page.goto(f"/topics/{ORDERS}")
    page.get_by_role("link", name="Records").click()
    page.get_by_label("Partition", exact=True).fill("0")
    page.get_by_label("From", exact=True).select_option("offset")
    page.get_by_label("Offset", exact=True).fill("147")
    page.get_by_role("button", name="Read").click()
    expect(page).to_have_url(re.compile("start=offset&offset=147"))
    assert offsets(page) == ["147", "148", "149"]
    page.goto(f"/topics/{ORDERS}/records?partition=0")
    page.get_by_label("From", exact=True).select_option("time")
    page.get_by_label("Time", exact=True).fill(
        page.evaluate("new Date(1700000000294 - 60000 * new Date().getTimezoneOffset()).toISOString().slice(0, -1)")
    )
    page.get_by_label("Value contains").fill("Rome")
    page.get_by_role("button", name="Read").click()
    expect(page).to_have_url(re.compile(f"time={FIRST_MS + 294}"))
    assert offsets(page) == ["147", "148", "149"]
    page.goto(f"/topics/{ORDERS}/records?start=beginning&key=key-17&limit=2")
    assert len(offsets(page)) == 2
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("table", name="records").locator("tbody tr")).to_have_count(4)
    page.goto(f"/topics/{ORDERS}/records?start=beginning")
    page.get_by_label("JSON path").fill("$.order.id >")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("neither a step nor a comparison")).to_be_visible()
    page.goto(f"/topics/{ORDERS}/records?start=beginning")
    page.get_by_label("JSON path").fill("$.order.id >= 290 ")
    page.get_by_label("Key contains").fill("key-29")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("status").filter(has_text="10 shown; 305 records")).to_be_visible()
    page.goto(f'/topics/{ORDERS}/records?start=beginning&path=$.city == "Bern"')
    assert offsets(page) == ["150"]
    page.goto(f"/topics/{ORDERS}/records?start=newest&newest=3&limit=3")
    assert offsets(page) == ["152", "153", "154"]


def test_what_records_contain_is_shown_as_text_beside_what_a_schema_says(page: Page) -> None:
    page.goto(f"/topics/{ORDERS}/records?partition=1&start=offset&offset=150")
    rows = page.get_by_role("table", name="records").locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text('Avro, schema 7 {"city": "Bern"}')
    expect(rows.nth(1)).to_contain_text("Schema 8: the registry answers 404")
    expect(rows.nth(1)).to_contain_text("00 00 00 00 08 08 42 65 72 6e")
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "\\x00").replace("\x1b", "\\x1b")
    assert rows.nth(2).locator("code.data").all_text_contents() == [shown, f"{shown}\\xff", shown]
    expect(rows.nth(3)).to_contain_text("cut; 977 KiB in all")
    assert len(rows.nth(3).locator("code.data").nth(1).text_content() or "") == 1024
    expect(rows.nth(4)).to_contain_text("null")
    assert page.locator("img:not([src^='/static/'])").count() == 0
    rows.nth(3).get_by_role("link").click()
    expect(page.get_by_role("heading", name=f"{ORDERS}, partition 1, offset 153")).to_be_visible()
    value = page.get_by_role("region", name="Value", exact=True)
    assert len(value.locator("code").text_content() or "") == LONG
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the value").click()
    assert download.value.suggested_filename == f"{ORDERS}-1-153.value"
    assert download.value.path().read_bytes() == b"x" * LONG
    page.get_by_role("list", name="How the key is shown").get_by_role("link", name="Hexadecimal").click()
    expect(page.get_by_role("region", name="Key", exact=True)).to_contain_text("6c 6f 6e 67")


def test_a_record_that_is_not_there_and_a_topic_that_is_not_there_say_so(page: Page) -> None:
    for path, text in (
        (f"/topics/{ORDERS}/records/1/99999", "ends before offset"),
        (f"/topics/{ORDERS}/records/7/0", "has no record at offset 0"),
        ("/topics/missing/records", "does not exist"),
        (f"/topics/{ORDERS}/records?partition=9", "no such partition"),
        (f"/topics/{ORDERS}/records?partition=1&start=offset&offset=9999", "has the offsets from 0 to 155"),
    ):
        page.goto(path)
        expect(page.locator("main .empty")).to_contain_text(text)


def _last(cluster: Cluster, partition: int) -> Any:
    """Return the only record of a partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(WRITTEN, partition, 0)])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message
    finally:
        consumer.close()


def test_an_operator_produces_a_record_and_runs_the_kcat_commands(cluster: Cluster, page: Page) -> None:
    page.goto(f"/topics/{WRITTEN}/records")
    expect(page.get_by_text("There are no records here.")).to_be_visible()
    page.get_by_role("button", name="Produce a record").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Partition").fill("1")
    dialog.get_by_label("The key is").select_option("hex")
    dialog.get_by_label("Key", exact=True).fill("00 fg")
    dialog.get_by_label("The value is").select_option("json")
    dialog.get_by_label("Value", exact=True).fill('{"a": "it\'s"}')
    dialog.get_by_label("Headers").fill("trace=x=1")
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("the key is not hexadecimal")
    dialog.get_by_label("Key", exact=True).fill("00 ff")
    dialog.get_by_role("button", name="kcat command").click()
    command = dialog.get_by_label("kcat command").input_value()
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(page.get_by_text("Stored in partition 1 at offset 0.")).to_be_visible()
    message = _last(cluster, 1)
    assert (message.key(), message.value()) == (b"\x00\xff", b'{"a": "it\'s"}')
    assert message.headers() == [("trace", b"x=1")]
    subprocess.run(["sh", "-c", command.replace("-p 1", "-p 2")], check=True, timeout=60)
    written = _last(cluster, 2)
    assert (written.key(), written.value(), written.headers()) == (message.key(), message.value(), message.headers())
    page.get_by_role("link", name="offset 0").click()
    expect(page.get_by_role("heading", name=f"{WRITTEN}, partition 1, offset 0")).to_be_visible()
    command = page.get_by_label("kcat command").input_value()
    read = subprocess.run(["sh", "-c", command], check=True, timeout=60, capture_output=True).stdout
    assert b"written [1] at offset 0" in read
    assert b"value: " + message.value() in read
    page.goto(f"/topics/{WRITTEN}/records?partition=2&start=beginning")
    page.get_by_role("button", name="kcat command").click()
    command = page.get_by_label("kcat command").input_value()
    read = subprocess.run(["sh", "-c", command], check=True, timeout=60, capture_output=True).stdout
    assert b"written [2] at offset 0" in read
    assert b"value: " + message.value() in read


class Load:
    """A producer that writes ``rate`` records a second until it is stopped."""

    def __init__(self, cluster: Cluster, rate: int) -> None:
        self._bootstrap = cluster.bootstrap
        self._rate = rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 10**6}
        )
        begun = time.monotonic()
        while not self._stopping.wait(0.02):
            due = int((time.monotonic() - begun) * self._rate)
            while self.sent < due:
                producer.produce(BUSY, f"record {self.sent} {'x' * 80}", partition=self.sent % 2)
                self.sent += 1
            producer.poll(0)
        producer.flush(30)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join()


TICKS = "() => { window.ticks = 0; setInterval(() => { window.ticks += 1; }, 20); }"


def _work(tools: CDPSession) -> float:
    """Return for how many seconds of CPU the page's main thread has worked."""
    metrics = tools.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


def test_a_tail_under_load_keeps_the_browser_responsive_says_what_it_leaves_out_and_outlives_its_gateway(
    cluster: Cluster, console: Console, page: Page
) -> None:
    page.goto(f"/topics/{BUSY}/records")
    rows = page.get_by_role("table", name="records").locator("tbody tr")
    left_out = page.get_by_role("list", name="What was left out")
    with Load(cluster, 20_000).running() as load:
        page.get_by_label("Records in a second").select_option("100")
        page.get_by_role("button", name="Follow new records").click()
        expect(rows.nth(20)).to_be_visible()
        expect(left_out).to_contain_text(re.compile("Left out [0-9,]{4,} offsets of partition [01]"))
        page.evaluate(TICKS)
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        worked = _work(tools)
        begun, former = time.monotonic(), load.sent
        page.wait_for_timeout(8000)
        rate = (load.sent - former) / (time.monotonic() - begun)
        ticks = page.evaluate("window.ticks")
        worked = _work(tools) - worked
        print(f"{rate:.0f} records/s; in 8 s the page worked for {worked:.1f} s, and its timer ticked {ticks} times")
        # Other programs may keep the page from running, so its own work is measured too.
        assert worked < 4
        assert ticks > 20
        assert rows.count() <= 500
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("status").filter(has_text="Paused")).to_be_visible()
    page.get_by_role("button", name="Go to the end").click()
    expect(page.get_by_role("status").filter(has_text="Following")).to_be_visible()
    page.wait_for_timeout(2000)
    cluster.gateways[0].kill()
    try:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(3):
            producer.produce(BUSY, f"after the end of a gateway {number}", partition=number % 2)
        assert producer.flush(60) == 0
        for number in range(3):
            expect(rows.filter(has_text=f"after the end of a gateway {number}")).to_have_count(1)
        expect(page.locator("#notice")).to_be_empty()
    finally:
        cluster.gateways[0].restart()


def test_a_tail_goes_on_where_it_was_after_a_pause_and_filters(cluster: Cluster, page: Page) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})

    def write(texts: list[str]) -> None:
        for text in texts:
            producer.produce(ORDERS, text, partition=0)
        assert producer.flush(60) == 0

    page.goto(f"/topics/{ORDERS}/records?partition=0&value=wanted")
    page.get_by_role("button", name="Follow new records").click()
    rows = page.get_by_role("table", name="records").locator("tbody tr")
    page.wait_for_timeout(2000)
    write(["wanted 1", "other", "wanted 2"])
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Pause").click()
    write(["wanted 3", "other", "wanted 4"])
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(4)
    assert rows.locator("td:nth-child(5)").all_text_contents() == [f"wanted {number}" for number in (4, 3, 2, 1)]
    page.reload()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_label("Value contains")).to_have_value("wanted")


def test_a_viewer_reads_but_cannot_produce_by_any_request(browser: Browser, console: Console) -> None:
    with opened_page(browser, console) as page:
        sign_in(page, VIEWER_TOKEN)
        page.goto(f"/topics/{ORDERS}/records?partition=0&start=beginning")
        assert offsets(page)[0] == "0"
        expect(page.get_by_role("button", name="Produce a record")).to_have_count(0)
        csrf = page.evaluate("fetch('/api/session').then((answer) => answer.json()).then((session) => session.csrf)")
        (cookie,) = page.context.cookies()
        sent = {"cookie": f"{cookie['name']}={cookie['value']}", "origin": f"http://{console.host}"}
        body = json.dumps({"partition": 0, "key": {"form": "null"}, "value": {"form": "text", "text": "x"}})
        for path in (f"/api/topics/{ORDERS}/records", f"/api/topics/{ORDERS}/records/kcat"):
            status, _, answer = console.request("POST", path, body, x_csrf_token=csrf, **sent)
            assert (status, json.loads(answer)) == (403, {"error": "viewers may not change anything"})
        status, headers, _ = console.request("GET", f"/api/topics/{ORDERS}/records/0/0/value", cookie=sent["cookie"])
        assert (status, headers["x-content-type-options"]) == (200, "nosniff")
        assert headers["content-disposition"] == f'attachment; filename="{ORDERS}-0-0.value"'
        live = f"/live/topics/{ORDERS}/records"
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec_websocket_version": "13"}
        key = {"sec_websocket_key": "x3JJHMbDL1EzLkh9GBhXDw=="}
        foreign = {"cookie": sent["cookie"], "origin": "http://evil.example"}
        assert console.request("GET", live, **upgrade, **key, **foreign)[0] == 403
        assert console.request("GET", f"{live}?limit=100000", **upgrade, **key, **sent)[0] == 400


def test_an_operator_cannot_produce_from_another_site(browser: Browser, console: Console) -> None:
    with opened_page(browser, console) as page:
        sign_in(page)
        (cookie,) = page.context.cookies()
        body = json.dumps({"partition": 0, "key": {"form": "null"}, "value": {"form": "text", "text": "x"}})
        path, sent = f"/api/topics/{ORDERS}/records", {"cookie": f"{cookie['name']}={cookie['value']}"}
        assert console.request("POST", path, body, origin="http://evil.example", **sent)[0] == 403
        assert console.request("POST", path, body, origin=f"http://{console.host}", **sent)[0] == 403


def test_records_can_be_turned_off(browser: Browser, cluster: Cluster) -> None:
    with running_console(cluster, KAFSCALE_CONSOLE_RECORDS="false") as console, opened_page(browser, console) as page:
        sign_in(page)
        page.goto(f"/topics/{ORDERS}/records")
        expect(page.locator("main .empty")).to_contain_text("KAFSCALE_CONSOLE_RECORDS")
        (cookie,) = page.context.cookies()
        sent = {"cookie": f"{cookie['name']}={cookie['value']}", "origin": f"http://{console.host}"}
        assert console.request("GET", f"/api/topics/{ORDERS}/records/0/0/value", **sent)[0] == 403


@pytest.mark.parametrize(("dark", "width"), [(False, 1100), (True, 400)], ids=["light", "dark phone"])
def test_axe_finds_nothing(browser: Browser, console: Console, dark: bool, width: int) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    found = []
    with opened_page(browser, console, dark=dark, width=width) as page:
        sign_in(page)
        page.evaluate(axe)
        for path, title in (
            (f"/topics/{ORDERS}/records?partition=1&start=offset&offset=150", f"Records of {ORDERS}"),
            (f"/topics/{ORDERS}/records/1/151", f"{ORDERS}, partition 1, offset 151"),
        ):
            page.evaluate(
                "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
            )
            expect(page.get_by_role("heading", name=title)).to_be_visible()
            for button in ("kcat command", "Produce a record"):
                if page.get_by_role("button", name=button).count():
                    page.get_by_role("button", name=button).click()
            violations = page.evaluate("async () => (await axe.run()).violations")
            found += [(path, each["id"], each["nodes"][0]["html"]) for each in violations]
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than a screen"
            page.keyboard.press("Escape")
    assert found == []
