"""docs/operations.md tells what to do for each reason that puts a partition offline, in the words of the code."""

import ast
import re
from pathlib import Path

from services.storage import flusher, takeover

ROOT = Path(__file__).parents[3]
KEY = "default/orders/0/segment-00000000000000001200.kfs"


def _documented() -> list[str]:
    """What the table quotes of reasons."""
    table = (ROOT / "docs" / "operations.md").read_text().split("\n| Reason |")[1].split("\n\n")[0]
    return [quoted for row in table.splitlines()[2:] for quoted in re.findall("`([^`]+)`", row.split("|")[1])]


def _matches(documented: str, reason: str) -> bool:
    """``...`` stands for a key, a lone capital letter for a number."""
    pattern = re.sub(r"\b[A-Z]\b", r"\\d+", re.escape(documented)).replace(re.escape("..."), r"\S+")
    return re.fullmatch(pattern, reason) is not None


def _said(module: object, text: ast.JoinedStr) -> str:
    """The message with the module's constants, a key, and 7 for every other number."""
    pieces = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            pieces.append(str(part.value))
        else:
            assert isinstance(part, ast.FormattedValue)
            name = ast.unparse(part.value)
            pieces.append(KEY if name == "key" else str(getattr(module, name, 7)))
    return "".join(pieces)


def _tree(module: object) -> ast.Module:
    return ast.parse(Path(str(getattr(module, "__file__", ""))).read_text())


def _reasons() -> list[str]:
    rolled_back = next(node for node in _tree(takeover).body if getattr(node, "name", "") == "_rolled_back")
    told = [
        _said(takeover, node.value)
        for node in ast.walk(rolled_back)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr)
    ]
    met = [
        _said(flusher, node.args[0])
        for node in ast.walk(_tree(flusher))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "WentOffline"
        and isinstance(node.args[0], ast.JoinedStr)
    ]
    return told + met


def test_the_table_quotes_every_reason_that_the_code_gives_and_no_other() -> None:
    reasons, documented = _reasons(), _documented()
    assert len(reasons) == len(documented) == 3
    for reason in reasons:
        assert sum(_matches(quoted, reason) for quoted in documented) == 1, reason
    for quoted in documented:
        assert sum(_matches(quoted, reason) for reason in reasons) == 1, quoted


def test_a_partition_goes_offline_by_these_reasons_and_by_damage_only() -> None:
    """The table's last row is damage that a take-over meets; its words are those of what cannot be read."""
    assigned = {
        (path.name, ast.unparse(node.value))
        for path in (ROOT / "services" / "storage").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".offline")
    }
    assert assigned - {("owned.py", "None")} == {
        ("owned.py", "taken.offline"),
        ("owned.py", "str(error)"),
        ("run.py", "reason"),
    }
    raised = {
        path.name
        for path in (ROOT / "services" / "storage").glob("*.py")
        if re.search(r"raise WentOffline|_given_up\(.*True\)", path.read_text())
    }
    assert raised == {"flusher.py"}
