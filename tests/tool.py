"""Runs the `milepost` program for the tests: the one that the environment variable MILEPOST names (ctest sets it), else build/dev's."""
import dataclasses
import hashlib
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"

DONE, WANTING, USAGE, BAD_INPUT, SYSTEM = 0, 1, 2, 3, 4

# A sanitizer's own exit status must not pass for one of ours.
_SANITIZER_STATUS = 99
_ENVIRONMENT = {
    "ASAN_OPTIONS": f"exitcode={_SANITIZER_STATUS}",
    "UBSAN_OPTIONS": f"exitcode={_SANITIZER_STATUS}:print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={_SANITIZER_STATUS}",
    "LC_ALL": "C.UTF-8",
}


def program():
    return os.environ.get("MILEPOST", str(DATA.parents[1] / "build/dev/cli/milepost"))


def environment():
    return {**os.environ, **_ENVIRONMENT}


@dataclasses.dataclass
class Result:
    command: list
    status: int
    out: str
    err: str
    peak_kib: int

    @property
    def text(self):
        return self.out + self.err

    @property
    def json(self):
        return json.loads(self.out)

    def __str__(self):
        words = " ".join(self.command)
        return f"$ {words}\nstatus {self.status}\n--- out\n{self.out[-4000:]}\n--- err\n{self.err[-4000:]}"


def milepost(*arguments, status=DONE, cwd=None, timeout_s=120):
    """Runs `milepost ARGUMENTS...` without a terminal and asserts its exit status: one number, or several of which each is right."""
    command = [program(), *map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        _, wait_status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(wait_status)
        out.seek(0)
        err.seek(0)
        texts = [stream.read().decode("utf-8", "backslashreplace") for stream in (out, err)]
    result = Result(command, process.returncode, *texts, usage.ru_maxrss)
    wanted = (status,) if isinstance(status, int) else tuple(status)
    assert result.status in wanted, f"want exit status {' or '.join(map(str, wanted))}\n{result}"
    assert "Sanitizer" not in result.err, str(result)
    return result


def contents(path, *options):
    """What a checkpoint holds by its own full read: ({name: tensor record with sha256}, {name: value in the fixtures' notation})."""
    listing = milepost("inspect", path, "--json", "--sha256", "--values", *options).json
    return {t["name"]: t for t in listing["tensors"]}, {o["name"]: o.get("value") for o in listing["objects"]}


def tree(path):
    """{relative name: SHA-256} of the files below a path ("" for a file itself); None when nothing is there."""
    path = Path(path)
    if path.is_file():
        return {"": hashlib.sha256(path.read_bytes()).hexdigest()}
    if not path.exists():
        return None
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in path.rglob("*") if p.is_file()}


def make_program(path, text):
    """A file that can be run, with the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
