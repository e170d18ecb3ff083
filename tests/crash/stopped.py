"""Ranks that stop where a save begins (MILEPOST_FAULT), and strace on them from there on."""
import contextlib
import re
import signal
import subprocess
import time
from pathlib import Path


def stop_at(rank, step, phase="checkpoint"):
    """The environment of a job whose `rank` stops there."""
    return {"MILEPOST_FAULT": f"{rank}:{step}:{phase}:stop", "LOG_RANK": "0,1"}


def wait_until(condition, what, timeout=150):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.005)


def _read(path):
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def wait_for_stop(job, rank):
    process = job.processes[rank]
    status = Path(f"/proc/{process.pid}/status")
    wait_until(lambda: re.search(r"^State:\s+T", _read(status), re.MULTILINE) or process.poll() is not None, "the save")
    assert process.poll() is None, job.logs[rank][-3000:]


@contextlib.contextmanager
def traced(process, log, options):
    """Lets a stopped process go on under strace, for as long as the context lasts."""
    strace = subprocess.Popen(["strace", "-f", "-qq", "-o", log, *options, "-p", str(process.pid)], stdin=subprocess.DEVNULL)
    tasks = Path(f"/proc/{process.pid}/task")
    try:
        wait_until(lambda: all(re.search(r"^TracerPid:\s+[1-9]", _read(task / "status"), re.MULTILINE) for task in tasks.iterdir()), "strace")
        process.send_signal(signal.SIGCONT)
        yield
    finally:
        strace.terminate()
        try:
            strace.wait(5)
        except subprocess.TimeoutExpired:  # with a delayed call of a process that is gone
            strace.kill()
            strace.wait()
