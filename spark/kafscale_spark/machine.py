"""Helpers of compiled loops: the compiler and its cache, copying, varints.

Compiled code (some seconds of CPU for the decoder) is cached in ``kafscale-spark`` under ``NUMBA_CACHE_DIR``,
``XDG_CACHE_HOME`` or ``~/.cache``, by a digest of the sources. All copies of the package, such as those of each Spark
application, thus share it. If the cache cannot be written or read, each process compiles the code again.
"""

import contextlib
import hashlib
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import intrinsic
from numpy.typing import NDArray

from kafscale.records.checksum import Buffer

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Ends = NDArray[np.int32]
Flags = NDArray[np.bool_]
F = TypeVar("F", bound=Callable[..., Any])

_DIRECTORY = "kafscale-spark"


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Locates the cached code of a module. The digest includes this module, whose code is inlined in others."""

    def __init__(self, function: Callable[..., Any]) -> None:
        package, _, name = function.__module__.rpartition(".")
        sources = (pkgutil.get_data(*names) or b"" for names in ((__package__, "machine.py"), (package, f"{name}.py")))
        self._digest = hashlib.sha256(b"\0".join(sources)).hexdigest()
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        root = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        return str(Path(root, _DIRECTORY, self._digest))

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], _py_file: str) -> "_Locator":
        return cls(py_func)


class _Kept(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache, whose errors never fail a call."""

    _impl_class = _Kept

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  a damaged file can make pickle raise anything
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # noqa: BLE001  it reads the index, which may be damaged
            self.disable()


def compiled(function: F) -> F:
    """Return ``function`` as machine code, which is compiled at the first call unless it is cached."""
    dispatcher = numba.njit(nogil=True)(function)
    with contextlib.suppress(RuntimeError, OSError):  # no home directory, or no source
        dispatcher._cache = _Cache(function)  # there is no public way to set a cache
    return cast(F, dispatcher)


def inlined(function: F) -> F:
    """Return ``function`` to be inlined in the compiled functions that call it."""
    return cast(F, numba.njit(inline="always")(function))


def frozen(data: Buffer) -> Bytes:
    """Return ``data`` as a read-only array, so that the compiler sees one type for all buffers."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


@intrinsic  # type: ignore[untyped-decorator]
def copy(_context: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """``copy(target, at, source, start, size)`` copies bytes between arrays without checking bounds."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        out = context.make_array(kinds[0])(context, builder, args[0])
        into = context.make_array(kinds[2])(context, builder, args[2])
        to, of = builder.gep(out.data, [args[1]]), builder.gep(into.data, [args[3]])
        cgutils.raw_memcpy(builder, to, of, args[4], ir.Constant(args[4].type, 1))
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(_context: Any, source: Any, at: Any) -> Any:
    """``byte_at(source, at)`` returns a byte as an int64, without checking bounds or supporting negative indexes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.zext(builder.load(builder.gep(array.data, [args[1]])), ir.IntType(64))

    return types.int64(source, types.int64), emit


@compiled
def _long_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    raw, shift = 0, 0
    while position < end:
        byte = np.int64(data[position])
        position += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= (byte & 0x7F) << shift  # type: ignore[assignment]
        if byte < 0x80:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position
        shift += 7
    return 0, -1


@inlined
def read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number and the position after it, or a position of -1 if none ends before ``end``."""
    byte = byte_at(data, position) if position + 1 < end else 0x80
    more = byte_at(data, position + 1) if byte >= 0x80 and position + 1 < end else 0x80
    if byte < 0x80:
        number, after = (byte >> 1) ^ -(byte & 1), position + 1
    elif more < 0x80:
        number, after = (((byte & 0x7F) | (more << 7)) >> 1) ^ -(byte & 1), position + 2
    else:
        number, after = _long_varint(data, position, end)
    return number, after


@compiled
def read_number(data: Bytes, position: int, size: int) -> int:
    """Return the big-endian unsigned number of ``size`` bytes; with 8 bytes, it is signed."""
    number = 0
    for index in range(position, position + size):
        number = (number << 8) | np.int64(data[index])  # type: ignore[assignment]
    return number
