"""A process that tests pause has stopped when they go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.servers.signals import pause

_THREADS, _TIMES = 12, 60
_RESTLESS = f"""
import threading, time
def turn():
    while True:
        time.sleep(0.0005)
for _ in range({_THREADS}):
    threading.Thread(target=turn, daemon=True).start()
print(flush=True)
time.sleep(600)
"""


def _states(pid: int) -> set[str]:
    """Of all threads, as the kernel shows them: T is stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def test_no_thread_of_a_paused_process_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", _RESTLESS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            for _ in range(_TIMES):
                pause(process.pid)
                assert _states(process.pid) == {"T"}
                os.kill(process.pid, signal.SIGCONT)
        finally:
            process.kill()
