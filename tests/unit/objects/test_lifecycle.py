"""Only lifecycle rules that delete objects reserved for KafScale are reported."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Refused, Unavailable
from kafscale.objects.lifecycle import LifecycleWatch, dangers, parse_rules
from kafscale.telemetry import State

_DAYS = "<Expiration><Days>7</Days></Expiration>"

_NONCURRENT = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"


def document(*rules: str) -> bytes:
    inside = "".join(f"<Rule><ID>r{number}</ID>{rule}</Rule>" for number, rule in enumerate(rules))
    xmlns = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<LifecycleConfiguration xmlns="{xmlns}">{inside}</LifecycleConfiguration>'.encode()


def rule(prefix: str, *, status: str = "Enabled", action: str = _DAYS) -> str:
    return f"<Filter><Prefix>{prefix}</Prefix></Filter><Status>{status}</Status>{action}"


@pytest.mark.parametrize(
    "dangerous",
    [
        rule("production/"),
        rule("production"),
        rule(""),
        rule("production/~"),
        rule("production/~topics/"),
        rule("production/~producers/orders/"),
        rule("production/~cl"),
        rule("production/~not-invented-yet/"),
        rule("production/", action="<Expiration><Date>2026-12-24T00:00:00Z</Date></Expiration>"),
        rule("production/", action="<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>"),
        rule("production/", action="<AllVersionsExpiration><Days>1</Days></AllVersionsExpiration>"),
        f"<Prefix>production/</Prefix><Status>Enabled</Status>{_DAYS}",
        f"<Prefix/><Status>Enabled</Status>{_DAYS}",
        f"<Filter/><Status>Enabled</Status>{_DAYS}",
        "<Filter><And><Prefix>production/</Prefix><ObjectSizeLessThan>5000</ObjectSizeLessThan></And></Filter>"
        f"<Status>Enabled</Status>{_DAYS}",
        f"<Filter><ObjectSizeGreaterThan>0</ObjectSizeGreaterThan></Filter><Status>Enabled</Status>{_DAYS}",
    ],
)
def test_a_rule_that_covers_the_clusters_own_objects_is_dangerous(dangerous: str) -> None:
    harmless = rule("production/logs/")
    [found] = dangers(parse_rules(document(harmless, dangerous)), "production")
    assert "'r1'" in found
    assert "under production/~" in found


@pytest.mark.parametrize(
    "harmless",
    [
        rule("production/logs/"),
        rule("production/o"),
        rule("staging/"),
        rule("production-2/"),
        rule("production/", status="Disabled"),
        rule("production/~etcd/"),
        rule("production/~backups/"),
        rule("production/~probe/"),
        rule(
            "", action="<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"
        ),
        rule("", action="<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"),
        rule(
            "",
            action="<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
            "</AbortIncompleteMultipartUpload>",
        ),
        rule("", action="<Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition>"),
        "<Filter><Tag><Key>old</Key><Value>yes</Value></Tag></Filter><Status>Enabled</Status>" + _DAYS,
        "<Filter><And><Prefix>production/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter>"
        "<Status>Enabled</Status>" + _DAYS,
    ],
)
def test_a_rule_that_cannot_match_the_clusters_own_objects_is_harmless(harmless: str) -> None:
    assert dangers(parse_rules(document(harmless)), "production") == []


async def test_the_rules_that_were_read_last_determine_the_health_of_the_bucket(autojump_clock: MockClock) -> None:
    del autojump_clock
    answers: list[bytes | Exception] = [
        document(rule("production/")),
        Unavailable("GET bucket: 503 SlowDown"),
        Refused("GET bucket: 403 AccessDenied"),
        b"<html>",
        b"",
    ]
    watch = LifecycleWatch("production")

    async def read() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    seen = []
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run, read)
        while True:
            seen.append(watch.finding())
            if not answers:
                break
            await trio.sleep(300)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [found.state for found in seen] == [State.DEGRADED, State.DEGRADED, *[State.HEALTHY] * 3]
    assert "cannot be read: GET bucket: 403 AccessDenied" in seen[2].reason
    assert "cannot be read" in seen[3].reason
    assert seen[4].reason == ""


async def test_a_store_that_does_not_answer_delays_the_start_by_seconds_at_most(autojump_clock: MockClock) -> None:
    del autojump_clock
    watch = LifecycleWatch("production")
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run, trio.sleep_forever)
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began <= 5
    assert watch.finding().state is State.HEALTHY
