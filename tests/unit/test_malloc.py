"""Freed memory is kept for all threads, as the page faults of a separate process show."""

import subprocess
import sys

import pytest

_FAULTS_OF_100_BUFFERS = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from kafscale.malloc import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit("no mallopt")
first = bytearray(8 << 20)
del first
with ThreadPoolExecutor(1) as thread:
    thread.submit(int).result()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytes(8 << 20)
        thread.submit(lambda: len(bytes(8 << 20))).result()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES_OF_A_BUFFER = 2048


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has the knob")
def test_a_buffer_that_follows_another_one_causes_no_page_faults() -> None:
    assert _faults("keep") < _PAGES_OF_A_BUFFER < _faults("default")


def _faults(how: str) -> int:
    command = [sys.executable, "-c", _FAULTS_OF_100_BUFFERS, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
