"""The examples for the bucket: rules that do not overlap and cover only topics, and the accounts that may use it."""

import json
import re
from itertools import permutations
from pathlib import Path

from kafscale import paths

FOLDER = Path(__file__).parents[2] / "k8s" / "s3"
NAMESPACE = "production"


def _rules() -> dict[str, tuple[str, int]]:
    """Return prefixes and days of lifecycle.json by rule."""
    rules = json.loads((FOLDER / "lifecycle.json").read_text())["Rules"]
    assert {rule["Status"] for rule in rules} == {"Enabled"}
    return {rule["ID"]: (rule["Filter"]["Prefix"], rule["Expiration"]["Days"]) for rule in rules}


def test_the_rules_of_the_bucket_do_not_overlap() -> None:
    """With overlapping rules the shortest expiry applies."""
    prefixes = [prefix for prefix, _ in _rules().values()]
    assert len(prefixes) > 1
    assert [pair for pair in permutations(prefixes, 2) if pair[0].startswith(pair[1])] == []


def test_each_rule_covers_only_the_segments_of_one_topic() -> None:
    for prefix, _ in _rules().values():
        topic = prefix.removeprefix(f"{NAMESPACE}/").removesuffix("/")
        assert paths.is_topic_name(topic)
        assert paths.segment_key(NAMESPACE, topic, 0, 0).startswith(prefix)
        others = (
            paths.segment_key(NAMESPACE, f"{topic}-other", 0, 0),
            paths.topic_object_key(NAMESPACE, topic),
            paths.cluster_mark_key(NAMESPACE),
            paths.etcd_snapshot_manifest_key(NAMESPACE, "20261122T191700Z"),
        )
        assert [key for key in others if key.startswith(prefix)] == []


def test_terraform_has_the_same_rules() -> None:
    text = (FOLDER / "main.tf").read_text()
    found = re.findall(
        r'rule \{\s+id += "(.+)"\s+status += "Enabled"\s+filter \{\s+prefix = "(.+)"\s+\}\s+'
        r"expiration \{\s+days = (\d+)\s+\}",
        text,
    )
    assert {name: (prefix, int(days)) for name, prefix, days in found} == _rules()


def test_the_role_may_list_the_bucket_and_read_its_rules() -> None:
    actions = re.findall(r"\"(s3:\w+)\"", (FOLDER / "main.tf").read_text())
    objects = {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
    assert set(actions) == objects | {"s3:ListBucket", "s3:GetLifecycleConfiguration"}


def test_the_role_trusts_the_accounts_that_use_the_bucket() -> None:
    accounts = set(re.findall(r"system:serviceaccount:kafscale:(\S+)\"", (FOLDER / "main.tf").read_text()))
    using = set()
    for manifest in (FOLDER.parent / "base").glob("*.yaml"):
        for document in manifest.read_text().split("\n---\n"):
            if "configMapRef: {name: kafscale-objects}" in document:
                using |= set(re.findall(r"serviceAccountName: (\S+)", document))
    assert accounts == using != set()
