"""The console in a real browser, beside the one-process mode: pages about access, objects and sinks."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from playwright.sync_api import Browser, Page, expect

from kafscale.rpc.client import Channel
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.limits import RpcLimits
from kafscale.v1.storage_pb2 import CommitSinkRequest
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.console import TOKEN, Console, opened_page, sign_in, started
from tests.support.members import eventually

PASSWORD = "a-password-that-nobody-sees"


class OneProcess:
    """The one-process mode with ACLs, and a console beside it."""

    def __init__(self, directory: Path) -> None:
        broker, rpc, health = (f"127.0.0.1:{port}" for port in free_ports(3))
        self.bootstrap, self.address, self.directory = broker, rpc, directory
        self.env = {
            "KAFSCALE_BROKER_ADDR": broker,
            "KAFSCALE_RPC_ADDR": rpc,
            "KAFSCALE_HTTP_ADDR": health,
            "KAFSCALE_CONSOLE": "false",
            "KAFSCALE_DATA_DIR": str(directory / "data"),
            "KAFSCALE_ADMIN_TOKEN": TOKEN,
            "KAFSCALE_ACLS": "true",
            "KAFSCALE_SUPER_USERS": "User:ANONYMOUS",
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [sys.executable, "-c", "from kafscale_tools.cli.main import main; main()", "run"]
        process = ServerProcess(command, log=self.directory / "one.log", env=self.env)
        try:
            process.wait_for(lambda line: True if '"serving"' in line else None, timeout=60)
            yield
        finally:
            process.stop(timeout=60)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneProcess]:
    running = OneProcess(tmp_path_factory.mktemp("one"))
    with running.running():
        yield running


@pytest.fixture(scope="module")
def console(one: OneProcess) -> Iterator[Console]:
    # The health of the process itself has its own port.
    env = {name: value for name, value in one.env.items() if name != "KAFSCALE_HTTP_ADDR"}
    with started(Console(one.directory, {**env, "KAFSCALE_CONSOLE_MAX_LIVE": "1"}, [one.address])) as running:
        yield running


def _fill(page: Page, **fields: str) -> None:
    for label, value in fields.items():
        page.get_by_role("dialog").get_by_label(label.replace("_", " "), exact=True).fill(value)


def test_users_are_created_renewed_and_deleted_and_no_password_is_shown_or_logged(
    one: OneProcess, console: Console, page: Page
) -> None:
    page.goto("/access")
    page.get_by_role("button", name="Create a user").click()
    _fill(page, Name="orders", Password=PASSWORD, The_same_password_again="another")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("differ")
    _fill(page, The_same_password_again=PASSWORD)
    with page.expect_response("**/api/users/orders") as answer:
        page.get_by_role("button", name="Create", exact=True).click()
    assert PASSWORD not in answer.value.text()
    row = page.get_by_role("table", name="users").get_by_role("row", name="orders")
    expect(row).to_contain_text("SCRAM-SHA-256, 4096 iterations")
    page.get_by_role("button", name="New password of orders").click()
    _fill(page, Password=PASSWORD * 50, The_same_password_again=PASSWORD * 50)
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("a password has 1 to 1024 characters")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete orders").click()
    page.get_by_label("Type the name").fill("orders")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    for log in (console.process.log, one.directory / "one.log"):
        assert PASSWORD not in log.read_text()


def test_acls_are_added_and_deleted_after_a_preview_of_what_they_mean(one: OneProcess, page: Page) -> None:
    page.goto("/access")
    page.get_by_role("navigation", name="Access").get_by_role("link", name="ACLs").click()
    for permission, operation, name in (("ALLOW", "READ", "orders"), ("DENY", "DESCRIBE", "ord")):
        page.get_by_role("button", name="Add an ACL").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Permission").select_option(permission)
        dialog.get_by_label("Operation").select_option(operation)
        if permission == "DENY":
            dialog.get_by_label("The name is").select_option("PREFIXED")
        _fill(page, Principal="User:eve", Name_of_the_resource=name)
        dialog.get_by_role("button", name="Preview").click()
        preview = page.get_by_role("region", name="Preview")
        expect(preview).to_contain_text(f"User:eve may {'not ' if permission == 'DENY' else ''}{operation}")
        alone = preview.get_by_text("No other ACL is for this resource")
        expect(alone).to_have_count(1 if permission == "ALLOW" else 0)
        expect(preview).to_contain_text("KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND")
        page.get_by_role("button", name="Add this ACL").click()
        expect(page.get_by_role("table", name="ACLs").get_by_role("cell", name=operation, exact=True)).to_be_visible()
    page.get_by_role("button", name="Delete: User:eve may READ, DESCRIBE").click()
    expect(page.get_by_role("region", name="Preview")).to_contain_text(
        "User:eve may READ, DESCRIBE on the topic orders from every address. These ACLs deny some of it. They have "
        "precedence: User:eve may not DESCRIBE on every topic whose name begins with ord from every address",
        use_inner_text=True,
    )
    # The prefix is for this topic too.
    expect(page.get_by_role("region", name="Preview")).not_to_contain_text("ALLOW_EVERYONE")
    page.get_by_role("button", name="Delete this ACL").click()
    expect(page.get_by_role("table", name="ACLs").get_by_role("row")).to_have_count(2)
    page.get_by_role("button", name="Add an ACL").click()
    _fill(page, Principal="eve", Name_of_the_resource="orders")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Add this ACL").click()
    expect(page.locator("#notice")).to_contain_text("principal")


def test_quotas_are_set_changed_and_removed(one: OneProcess, page: Page) -> None:
    page.goto("/access/quotas")
    page.get_by_role("button", name="Set a quota").click()
    _fill(page, User="*", Client_id="loader", Value="-1")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("must be greater than 0")
    _fill(page, Value="1048576")
    page.get_by_role("button", name="Set", exact=True).click()
    row = page.get_by_role("table", name="quotas").get_by_role("row", name="user (default), client-id loader")
    expect(row).to_contain_text("1,048,576")
    page.get_by_role("button", name="Change producer_byte_rate of user (default), client-id loader").click()
    _fill(page, Value="2048")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_contain_text("2,048")
    page.get_by_role("button", name="Remove producer_byte_rate of user (default), client-id loader").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(row).to_have_count(0)


def test_a_segment_is_opened_down_to_its_batches_and_damage_is_shown(one: OneProcess, page: Page) -> None:
    client = ConfluentClient(one.bootstrap)
    client.create_topic("opened", partitions=1)
    page.goto("/topics/opened/0")
    expect(page.get_by_text("No record of this partition is in a segment yet.")).to_be_visible()
    client.produce("opened", [Message(b"x" * 1000) for _ in range(10)])
    segment = page.get_by_role("table", name="segments").get_by_role("link", name="0")
    expect(segment).to_be_visible()
    objects = one.directory / "data" / "objects"
    eventually(lambda: any(objects.rglob("opened/0/segment-00000000000000000000.index")))
    segment.click()
    batches = page.get_by_role("table", name="batches").get_by_role("row")
    expect(batches.nth(1)).to_contain_text("snappy")
    expect(page.get_by_text("None. All checksums are correct.")).to_be_visible()
    expect(page.get_by_role("table", name="index entries").get_by_role("row")).to_have_count(2)
    (object_file,) = objects.rglob("opened/0/segment-00000000000000000000.kfs")
    object_file.write_bytes(object_file.read_bytes()[:-20])
    page.reload()
    expect(page.locator(".concerns li").first).to_contain_text("truncated or damaged")
    expect(page.get_by_text("The footer is damaged.")).to_be_visible()


def test_spark_sinks_are_listed_and_opened(one: OneProcess, page: Page) -> None:
    async def commit() -> None:
        async with Channel(one.address, RpcLimits()) as channel:
            await SegmentStorageClient(channel).commit_sink(CommitSinkRequest(sink="job/1", epoch=0), timeout=30)

    page.goto("/sinks")
    expect(page.get_by_text("There are no sinks.")).to_be_visible()
    trio.run(commit)
    page.reload()
    page.get_by_role("link", name="job/1").click()
    expect(page.get_by_role("heading", name="job/1")).to_be_visible()
    expect(page.locator("main")).to_contain_text("All records of the last epoch are in the log.")


def test_a_page_beyond_the_limit_of_live_pages_says_why_and_connects_when_it_may(
    browser: Browser, console: Console, page: Page
) -> None:
    page.goto("/instances")
    expect(page.locator(".card")).not_to_have_count(0)
    with opened_page(browser, console) as second:
        sign_in(second)
        second.goto("/instances")
        expect(second.locator("#notice")).to_contain_text("KAFSCALE_CONSOLE_MAX_LIVE")
        page.goto("/topics")
        expect(second.locator("#notice")).to_be_empty()
        expect(second.locator(".card")).not_to_have_count(0)
        second.evaluate(
            "fetch('/api/session').then((answer) => answer.json()).then((session) => fetch('/api/session', "
            "{ method: 'DELETE', headers: { 'x-csrf-token': session.csrf } }))"
        )
        ConfluentClient(console.process.env["KAFSCALE_BROKER_ADDR"]).create_topic("news", partitions=1)
        ConfluentClient(console.process.env["KAFSCALE_BROKER_ADDR"]).produce("news", [Message(b"x")])
        expect(second.get_by_role("heading", name="Sign in")).to_be_visible()


def test_the_rates_of_one_process_are_counted_once(one: OneProcess, page: Page) -> None:
    ConfluentClient(one.bootstrap).create_topic("rated", partitions=1)
    page.goto("/")
    expect(page.get_by_role("img", name=re.compile("^PUT requests in the last hour"))).to_be_visible()
