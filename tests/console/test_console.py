"""The console in a real browser, beside the four services."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition
from playwright.sync_api import Browser, Page, expect

from services.console.api.changes import CHANGES
from tests.servers.cluster import Cluster, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.support.clients.confluent import ConfluentClient
from tests.support.console import TOKEN, VIEWER_TOKEN, Console, opened_page, running_console, sign_in
from tests.support.shell import Shell

TOPIC, PARTITIONS = "flights", 24
HOSTILE = "<img src=x onerror=alert(1)>\u202egroup\n'\""
PAGES = (
    "/",
    "/topics",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}/0",
    f"/topics/{TOPIC}/0/0",
    "/sinks",
    "/groups",
    "/instances",
    "/access",
    "/access/acls",
    "/access/quotas",
    "/no/such/page",
)


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory, env = tmp_path_factory.mktemp("console"), {"KAFSCALE_ADMIN_TOKEN": TOKEN}
    with running_cluster(directory, etcd=etcd, minio=minio, env=env, gateways=2, storages=2) as running:
        ConfluentClient(running.bootstrap).create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"record", partition=partition)
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": HOSTILE})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        consumer.close()
        yield running


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[Console]:
    with running_console(cluster) as running:
        yield running


def test_a_browser_signs_in_with_a_token_of_the_gateways_and_out(browser: Browser, console: Console) -> None:
    with opened_page(browser, console) as page:
        sign_in(page, "not-the-right-token")
        expect(page.get_by_role("alert")).to_contain_text("does not accept")
        page.goto("/topics")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        sign_in(page)
        cookies = page.context.cookies()
        assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert page.context.cookies() == []
        assert console.request("GET", "/api/topics", cookie=f"{cookies[0]['name']}={cookies[0]['value']}")[0] == 401


def test_a_topic_is_found_and_opened_down_to_its_segments_and_addresses_can_be_shared(page: Page) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Topics").click()
    page.get_by_label("Search in topics").fill("FLIGH")
    page.get_by_role("link", name=TOPIC).click()
    expect(page.get_by_role("heading", name=TOPIC, exact=True)).to_be_visible()
    page.get_by_role("link", name="7", exact=True).click()
    expect(page.get_by_role("table", name="segments")).to_contain_text(f"/{TOPIC}/7/segment-00000000000000000000.kfs")
    page.get_by_role("link", name="Read and verify these segments").click()
    expect(page.get_by_role("link", name="Without verification")).to_be_visible()
    address = page.url
    page.go_back()
    page.go_back()
    expect(page.get_by_role("heading", name=TOPIC, exact=True)).to_be_visible()
    page.goto(address)
    expect(page.get_by_role("heading", name=f"{TOPIC}, partition 7")).to_be_visible()


def test_an_operator_creates_configures_grows_and_deletes_a_topic(cluster: Cluster, page: Page) -> None:
    client = ConfluentClient(cluster.bootstrap)
    page.goto("/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("not a name")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not a name")
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Configs").fill("retention.ms=86400000")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="made-here")).to_be_visible()
    page.get_by_role("button", name="Change flush.ms").click()
    page.get_by_label("Value").fill("250")
    page.get_by_role("button", name="Change", exact=True).last.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_label("New number of partitions").fill("3")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    configs = client.configs("made-here")
    assert (configs["retention.ms"], configs["flush.ms"], client.partitions("made-here")) == ("86400000", "250", 3)
    page.get_by_role("button", name="Delete the topic").click()
    page.get_by_label("Type the name").fill("made-her")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not the name")
    assert "made-here" in client.topics()
    page.get_by_label("Type the name").fill("made-here")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert "made-here" not in client.topics()


def test_an_operator_resets_offsets_after_a_preview(cluster: Cluster, page: Page) -> None:
    client = ConfluentClient(cluster.bootstrap)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "late"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 3, 0)], asynchronous=False)
    consumer.close()
    page.goto("/groups/late")
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("To", exact=True).select_option("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("table", name="new offsets").get_by_role("row").nth(1)).to_contain_text(f"{TOPIC}301")
    assert client.committed("late", TOPIC) == {3: 0}
    page.get_by_role("button", name="Reset these offsets").click()
    expect(page.get_by_role("heading", name="Preview of the reset")).to_have_count(0)
    assert client.committed("late", TOPIC) == {3: 1}


def test_the_overview_shows_rates_and_the_cost_of_requests_of_the_time_before_it_was_opened(
    cluster: Cluster, page: Page
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(1000):
        producer.produce(TOPIC, b"record", partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    page.goto("/")
    produced = page.get_by_role("img", name=re.compile("^Records produced in the last hour: "))
    expect(produced).to_have_attribute("aria-label", re.compile(r"at most (?!0 )[0-9,.]+ records/s"))
    puts = page.get_by_role("table", name="cost of requests").get_by_role("row", name="PUT").get_by_role("cell")
    expect(puts.first).not_to_have_text("0")
    expect(page.get_by_text(re.compile(r"\$[0-9.,]+ in 30 days"))).to_be_visible()


def test_the_lag_of_a_group_that_was_watched_is_known_when_its_page_is_opened_again(
    cluster: Cluster, page: Page
) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "lagging"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 5, 0)], asynchronous=False)
    consumer.close()
    page.goto("/groups/lagging")
    lag = page.get_by_role("img", name=re.compile("^Lag of all partitions in the last hour: now [0-9,]+ records"))
    expect(lag.locator("polyline")).to_have_count(1)
    page.goto("/topics")
    page.wait_for_timeout(25_000)
    page.goto("/groups/lagging")
    expect(lag.locator("polyline")).to_have_attribute("points", re.compile(r"^(\S+ ){3}"))


def test_a_group_whose_name_is_empty_has_a_page(cluster: Cluster, page: Page) -> None:
    # librdkafka does not commit for a group without a name.
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="", enable_auto_commit=False)
    partition = KafkaTopicPartition(TOPIC, 2)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(0, "", -1)})
    consumer.close()
    page.goto("/groups")
    page.get_by_role("link", name="(empty name)").click()
    expect(page.get_by_role("table", name="partitions")).to_contain_text(TOPIC)


def test_a_viewer_sees_no_buttons_and_can_change_nothing_by_any_request(browser: Browser, console: Console) -> None:
    with opened_page(browser, console) as page:
        sign_in(page, VIEWER_TOKEN)
        for path in PAGES:
            page.goto(path)
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
            buttons = page.locator("main button:not(thead button):visible")
            assert buttons.all_text_contents() in ([], ["Try again"])
        csrf = page.evaluate("fetch('/api/session').then((answer) => answer.json()).then((session) => session.csrf)")
        (cookie,) = page.context.cookies()
        for change in CHANGES:
            asked = re.sub(r"\(\[\^/\][+*]\)", "x", change.path.pattern)
            sent = {"cookie": f"{cookie['name']}={cookie['value']}", "origin": f"http://{console.host}"}
            status, _, body = console.request(change.verb, asked, "{}", x_csrf_token=csrf, **sent)
            assert (status, json.loads(body)) == (403, {"error": "viewers may not change anything"})


def test_names_of_others_are_shown_as_text(page: Page) -> None:
    page.goto("/groups")
    name = page.get_by_role("link", name="<img src=x")
    assert name.text_content() == HOSTILE
    name.click()
    expect(page.get_by_role("table", name="partitions")).to_contain_text(TOPIC)
    assert page.locator("h1").text_content() == HOSTILE
    assert page.locator("img:not([src^='/static/'])").count() == 0


@pytest.mark.parametrize(("dark", "width"), [(False, 1100), (True, 400)], ids=["light", "dark phone"])
def test_axe_finds_nothing(browser: Browser, console: Console, dark: bool, width: int) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    found = []
    with opened_page(browser, console, dark=dark, width=width) as page:
        sign_in(page)
        page.evaluate(axe)
        for path in PAGES:
            page.evaluate(
                "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
            )
            expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
            violations = page.evaluate("async () => (await axe.run()).violations")
            found += [(path, each["id"], each["nodes"][0]["html"]) for each in violations]
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than a screen"
    assert found == []


def test_the_map_of_owners_moves_while_an_instance_drains_and_the_page_outlives_its_gateway(
    cluster: Cluster, console: Console, page: Page
) -> None:
    page.goto("/instances")
    cells = page.locator("svg.owners rect")
    expect(cells).to_have_count(PARTITIONS)
    leaving = cluster.storages[1]
    card = page.locator(".card", has_text=leaving.address)
    expect(card).not_to_contain_text(" 0 partitions")
    settings = {"KAFSCALE_ADMIN_TOKEN": TOKEN}
    assert Shell(settings, cluster.gateways[0].address).run(f"drain {leaving.address}").returncode == 0
    expect(card).to_contain_text("draining")
    expect(card).to_contain_text(" 0 partitions")
    expect(cells).to_have_count(PARTITIONS)
    assert len({cell.get_attribute("class") for cell in cells.all()}) == 1
    cluster.gateways[0].kill()
    undone = Shell(settings, cluster.gateways[1].address).run(f"drain {leaving.address} --cancel")
    assert undone.returncode == 0
    expect(card).not_to_contain_text("draining")
    expect(card).not_to_contain_text(" 0 partitions")
    expect(page.locator("#notice")).to_be_empty()


def test_requests_of_foreign_sites_are_refused(console: Console) -> None:
    host, upgrade = console.host, {"connection": "upgrade", "upgrade": "websocket", "sec_websocket_version": "13"}
    upgrade["sec_websocket_key"] = "x3JJHMbDL1EzLkh9GBhXDw=="
    own, foreign = f"http://{host}", "http://evil.example"
    token = json.dumps({"token": TOKEN})
    assert console.request("GET", "/", host="evil.example")[0] == 421
    assert console.request("POST", "/api/session", token, origin=foreign)[0] == 403
    assert console.request("POST", "/api/session", token)[0] == 403
    status, headers, _ = console.request("POST", "/api/session", token, origin=own)
    assert status == 200
    cookie = headers["set-cookie"].partition(";")[0]
    assert console.request("GET", "/live/cluster", cookie=cookie, origin=foreign, **upgrade)[0] == 403
    assert console.request("GET", "/live/cluster", origin=own, **upgrade)[0] == 401
    # The token that only the page knows is missing.
    assert console.request("DELETE", "/api/session", cookie=cookie, origin=own)[0] == 403
    assert console.request("DELETE", f"/api/topics/{TOPIC}", cookie=cookie, origin=own)[0] == 403
    status, headers, body = console.request("GET", "/", cookie=cookie)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"<script>" not in body
