"""A temporary change of the product's code in this process."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import click

_Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Change:
    """Replaces ``old``, which must occur once in a function, with ``new``.

    ``function`` is the qualified name in ``module``. Nested functions are part of it.
    """

    module: str
    function: str
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the change inside the block. Raise ValueError unless ``old`` occurs exactly once."""
        module = importlib.import_module(self.module)
        function = _function(module, self.function)
        changed = _compiled(module, self._changed(module), self.function)
        # Replace the code object, so that importers of the function get the change too.
        original, function.__code__ = function.__code__, changed
        try:
            yield
        finally:
            function.__code__ = original

    def _changed(self, module: ModuleType) -> str:
        source = _source(module)
        first, last = _lines(source, self.function)
        lines = source.splitlines(keepends=True)
        body = "".join(lines[first:last])
        if (times := body.count(self.old)) != 1:
            raise ValueError(f"{self.module}.{self.function} contains {self.old!r} {times} times, not once")
        return "".join((*lines[:first], body.replace(self.old, self.new), *lines[last:]))


def _source(module: ModuleType) -> str:
    assert module.__file__ is not None
    return Path(module.__file__).read_text()


def _lines(source: str, name: str) -> tuple[int, int]:
    """Return the line range of a function without its decorators: first and last + 1, counted from 0."""
    node: ast.Module | ast.ClassDef | _Definition = ast.parse(source)
    for part in name.split("."):
        [node] = [each for each in node.body if isinstance(each, _Definition | ast.ClassDef) and each.name == part]
    assert isinstance(node, _Definition)
    assert node.end_lineno is not None
    return node.lineno - 1, node.end_lineno


def _function(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
        found = _undecorated(found)
    assert isinstance(found, FunctionType), f"{module.__name__}.{name} is not a function"
    return found


def _undecorated(found: Any) -> Any:
    if isinstance(found, property):
        return found.fget
    if isinstance(found, cached_property):
        return found.func
    if isinstance(found, click.Command):
        found = found.callback
    # Unwrap class methods, static methods, and functions wrapped with functools.wraps.
    return inspect.unwrap(found)


def _compiled(module: ModuleType, source: str, name: str) -> CodeType:
    pending = [compile(source, str(module.__file__), "exec")]
    while pending:
        code = pending.pop()
        if code.co_qualname == name and code.co_flags & inspect.CO_NEWLOCALS and code.co_flags & inspect.CO_OPTIMIZED:
            return code
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise ValueError(f"{module.__name__} has no function {name} after the change")
