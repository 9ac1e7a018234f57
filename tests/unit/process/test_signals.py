import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import ConfigError
from kafscale.process.signals import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, run_service, supervise

_STUBBORN = """
import sys, trio
from kafscale.process.logging import configure_logging
from kafscale.process.signals import run_service

configure_logging("info")

async def main(stopping):
    print("up", flush=True)
    await stopping.wait()
    print("stopping", flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

sys.exit(run_service(main, grace_seconds=25))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_main_to_stop(number: signal.Signals, autojump_clock: MockClock) -> None:
    done = []

    async def main(stopping: trio.Event) -> None:
        os.kill(os.getpid(), number)
        await stopping.wait()
        await trio.sleep(9)
        done.append("flushed")

    assert await supervise(main, 10) == EXIT_OK
    assert done == ["flushed"]


async def test_main_is_cancelled_after_the_grace_period(autojump_clock: MockClock) -> None:
    async def main(stopping: trio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep_forever()

    began = trio.current_time()
    assert await supervise(main, 10) == EXIT_FAILED
    assert trio.current_time() - began == pytest.approx(10)


def test_a_second_signal_ends_the_process_immediately() -> None:
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", _STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == b"stopping\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            process.kill()


def test_a_config_error_is_one_line_and_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    async def main(stopping: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise ConfigError("KAFSCALE_S3_BUCKET = 'b' cannot be reached")

    assert run_service(main, grace_seconds=5) == EXIT_CONFIG
    assert capfd.readouterr() == ("", "kafscale: KAFSCALE_S3_BUCKET = 'b' cannot be reached\n")


def test_a_known_error_is_one_line_and_status_1() -> None:
    program = """
import sys
from kafscale.errors import Refused
from kafscale.process.logging import configure_logging
from kafscale.process.signals import run_service

configure_logging("info")

async def main(stopping):
    raise Refused("metadata.sqlite cannot be used: database or disk is full")

sys.exit(run_service(main, grace_seconds=5))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    line = "kafscale: metadata.sqlite cannot be used: database or disk is full\n"
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_FAILED, "", line)


def test_garbage_collection_ignores_what_was_imported() -> None:
    program = """
import gc
from kafscale.process.signals import run_service

async def main(stopping):
    print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)

run_service(main, grace_seconds=5)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "True True\n"


def test_the_limit_of_open_files_is_raised_to_the_maximum() -> None:
    program = """
import resource
from kafscale.process.signals import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "(3000, 3000)\n"


def test_an_unexpected_error_is_raised_with_its_traceback() -> None:
    async def main(stopping: trio.Event) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(ExceptionGroup) as caught:
        run_service(main, grace_seconds=5)
    assert caught.group_contains(RuntimeError, match="a bug")


def test_main_that_returns_without_a_signal_has_status_0() -> None:
    async def main(stopping: trio.Event) -> None:
        await trio.lowlevel.checkpoint()

    assert run_service(main, grace_seconds=5) == EXIT_OK
