"""The cost of storing an object by creating a file and by appending to one, without fsync.

A created file is written in one directory and linked into another, which leaves the whole object or none after a crash.
An appended object is a record of `kafscale.objects.packs`. Both delete 100 objects at a time.

    python -m tests.bench.append_cost [--objects 3000] [--bytes 48000]
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from kafscale.objects.packs import Packs

_DELETED_AT_A_TIME = 100
_ROUNDS = 3


def _creating(root: Path, body: bytes) -> Callable[[int], None]:
    (root / "tmp").mkdir()
    (root / "objects").mkdir()

    def create(number: int) -> None:
        temporary = root / "tmp" / str(number)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.write(file, body)
        os.close(file)
        os.link(temporary, root / "objects" / str(number))
        os.unlink(temporary)
        if number % _DELETED_AT_A_TIME == 0:
            for deleted in range(max(0, number - _DELETED_AT_A_TIME), number):
                os.unlink(root / "objects" / str(deleted))

    return create


def _appending(root: Path, body: bytes) -> Callable[[int], None]:
    packs = Packs(root, sync=False)
    packs.prepare()

    def append(number: int) -> None:
        packs.create(f"ns/{number}", body)
        if number % _DELETED_AT_A_TIME == 0:
            deleted = range(max(0, number - _DELETED_AT_A_TIME), number)
            packs.delete([f"ns/{each}" for each in deleted], sync=False)

    return append


@click.command()
@click.option("--objects", default=3000, show_default=True, help="The number of objects of each round.")
@click.option("--bytes", "size", default=48_000, show_default=True, help="The size of an object.")
def main(objects: int, size: int) -> None:
    """Measure what it costs to store an object by creating a file and by appending to one."""
    body = bytes(size)
    with tempfile.TemporaryDirectory() as directory:
        ways = {}
        for name, prepare in (("create", _creating), ("append", _appending)):
            (root := Path(directory) / name).mkdir()
            ways[name] = prepare(root, body), itertools.count()
        for _ in range(_ROUNDS):
            for name, (store, numbers) in ways.items():
                began, cpu = time.perf_counter(), time.process_time()
                for number in itertools.islice(numbers, objects):
                    store(number)
                wall, cpu = time.perf_counter() - began, time.process_time() - cpu
                click.echo(f"{name}: {wall / objects * 1e6:.0f} us, {cpu / objects * 1e6:.0f} us of CPU")


if __name__ == "__main__":
    main()
