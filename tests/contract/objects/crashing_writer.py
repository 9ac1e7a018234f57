"""A process that puts objects into a local directory and is meant to die.

``forever DIRECTORY ROUND`` puts objects until it is killed and prints the key of each when its put has returned.
``packed DIRECTORY ROUND`` does so with objects that share files.
``create DIRECTORY STEP`` and ``replace DIRECTORY STEP`` do one put of ``ns/t/0/a`` and exit with status 9, without any
clean-up, at the STEP-th call into the operating system. A write at that step is cut in half. STEP 0 means never.
"""

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kafscale.errors import ConfigError
from kafscale.objects.local import LocalObjectStore

BODY = bytes(range(256)) * 256
CALLS = ("open", "write", "utime", "fsync", "fstat", "close", "mkdir", "link", "replace", "unlink")


def expected_body(key: str) -> bytes:
    return (key.encode() + b"|") * (3_000_000 // len(key))


async def put_forever(directory: Path, round_: str, *, packed: bool) -> None:
    opened = LocalObjectStore.open(directory, is_packed=lambda _: packed, sync_packs=False)
    async with opened as store, trio.open_nursery() as nursery:

        async def put(task: int) -> None:
            for n in itertools.count():
                key = f"ns/{round_}/{task}/{n}"
                await store.put_if_absent(key, expected_body(key))
                print(key, flush=True)

        for task in range(4):
            nursery.start_soon(put, task)


async def put_once(what: str, directory: Path, step: int) -> None:
    async with LocalObjectStore.open(directory) as store:
        etag = (await store.head("ns/t/0/a")).etag if what == "replace" else ""
        die_at(step)
        if what == "replace":
            await store.replace_if_match("ns/t/0/a", BODY, etag)
        else:
            await store.put_if_absent("ns/t/0/a", BODY)
        die_at(0)


def die_at(step: int) -> None:
    calls = itertools.count(1)
    for name in CALLS:
        setattr(os, name, _dying(name, getattr(os, name), calls, step))


def _dying(name: str, call: Callable[..., Any], calls: "itertools.count[int]", step: int) -> Callable[..., Any]:
    original = getattr(call, "__wrapped__", call)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == step:
            if name == "write":
                original(args[0], args[1][: len(args[1]) // 2])
            os._exit(9)
        return original(*args, **kwargs)

    return wrapped


def writer_command(what: str, directory: Path, argument: int) -> tuple[list[str], Path]:
    """Return the command line of this process, and the directory to run it in."""
    return [sys.executable, "-m", __name__, what, str(directory), str(argument)], Path(__file__).parents[3]


def killed_writer(what: str, directory: Path, round_: int, *, puts: int) -> list[str]:
    """Run a process that puts objects, kill it after ``puts`` of them, and return the keys that it has printed."""
    command, root = writer_command(what, directory, round_)
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        printed = [writer.stdout.readline() for _ in range(puts)]
        writer.kill()
        printed += writer.stdout
    return [line.strip() for line in printed if line.endswith("\n")]


def main() -> None:
    what, directory, argument = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    try:
        if what in ("forever", "packed"):
            trio.run(partial(put_forever, directory, argument, packed=what == "packed"))
        else:
            trio.run(put_once, what, directory, int(argument))
    except ConfigError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
