"""Reads monitoring/alerts.yaml, in the one form that it is written in; a line of any other form is an error."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_SCALAR = re.compile(r'(?P<key>\w+): (?P<value>"(?:[^"\\]|\\.)*"|[^"|\s].*)')


@dataclass(slots=True)
class Alert:
    name: str
    expr: str = ""
    duration: str = ""
    severity: str = ""
    annotations: dict[str, str] = field(default_factory=dict)


def read_alerts(text: str) -> list[Alert]:
    """Raises ValueError."""
    alerts: list[Alert] = []
    section, block = "", False
    for number, line in enumerate(text.splitlines(), 1):
        indent, content = len(line) - len(line.lstrip()), line.strip()
        if block and indent >= 10:
            alerts[-1].expr += f"{content}\n"
            continue
        block = False
        if not content or content.startswith("#") or (indent, content) in ((0, "groups:"), (4, "rules:")):
            continue
        if indent == 2 and re.fullmatch(r"- name: [a-z.]+", content):
            continue
        if indent == 6 and content.startswith("- alert: "):
            alerts.append(Alert(content.removeprefix("- alert: ")))
        elif indent == 8 and content in ("labels:", "annotations:"):
            section = content[:-1]
        elif indent == 8 and content == "expr: |":
            block = True
        elif match := _SCALAR.fullmatch(content):
            _set(alerts[-1], section, indent, match["key"], _plain(match["value"]))
        else:
            raise ValueError(f"line {number}: {line}")
    return alerts


def _set(alert: Alert, section: str, indent: int, key: str, value: str) -> None:
    match indent, section, key:
        case 8, _, "expr":
            alert.expr = value
        case 8, _, "for":
            alert.duration = value
        case 10, "labels", "severity":
            alert.severity = value
        case 10, "annotations", _:
            alert.annotations[key] = value
        case _:
            raise ValueError(f"{alert.name}: {key} at {indent}")


def _plain(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value
