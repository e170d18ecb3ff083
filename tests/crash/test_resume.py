"""A conversion that a kill, Ctrl-C or a full disk ends half-way goes on with --resume: same bytes, without reading all of the source again.

strace's injection ends the tool at a write that comes late enough for the journal to be on the disk.
"""
import collections
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from tool import BAD_INPUT, SYSTEM, environment, milepost, program, tree

MIB = 1 << 20
TENSOR_MIB, TENSORS = 16, 20  # more than an interrupted conversion must have written to be kept
READS, WRITES = "pread64,preadv,preadv2,read,readv", "pwrite64,pwritev,pwritev2"


def name(to):
    return "out.pth" if to == "torch" else "out"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A safetensors file, holes but for a number in each MiB, so that no two blocks are equal."""
    path = tmp_path_factory.mktemp("source") / "source.safetensors"
    size = TENSOR_MIB * MIB
    header = {f"layers.{i}.weight": {"dtype": "BF16", "shape": [size // 2048, 1024], "data_offsets": [i * size, (i + 1) * size]}
              for i in range(TENSORS)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        start = file.tell()
        file.truncate(start + TENSORS * size)
        for block in range(TENSORS * TENSOR_MIB):
            file.seek(start + block * MIB + 12345)
            file.write(struct.pack("<Q", block + 1))
    return path


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """By format: what an undisturbed conversion writes, and how many writes it makes."""
    found = {}

    def convert(to):
        if to not in found:
            folder = tmp_path_factory.mktemp("whole")
            done = strace(folder / "log", ["-e", f"trace={WRITES}"], command(source, folder / name(to), to))
            assert done.returncode == 0, done.stdout
            found[to] = tree(folder / name(to)), num_calls(folder / "log")
            shutil.rmtree(folder)
        return found[to]

    return convert


def command(source, destination, to, *flags):
    return [program(), "convert", str(source), str(destination), "--to", to, "--threads", "1", "--no-sync", *flags]


def strace(log, options, arguments):
    return subprocess.run(["strace", "-f", "-qq", "-y", "-o", log, *options, *arguments], env=environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


def num_calls(log):
    return collections.Counter(re.findall(r"^\d+ +(\w+)\(", Path(log).read_text(), re.MULTILINE)).most_common(1)[0]


def bytes_read(log, path):
    calls = re.findall(r"^\d+ +\w+\(\d+<([^>]*)>.* = (\d+)$", Path(log).read_text(), re.MULTILINE)
    return sum(int(count) for file, count in calls if file == str(path))


@pytest.mark.parametrize("to, interruption, statuses, message", [
    ("dcp", "signal=SIGKILL", (-9, 137), ""),
    ("safetensors", "signal=SIGKILL", (-9, 137), ""),
    ("torch", "signal=SIGKILL", (-9, 137), ""),
    ("dcp", "signal=SIGINT", (130,), "stopped by a signal.*continue it with --resume"),
    ("dcp", "signal=SIGTERM", (143,), "stopped by a signal.*continue it with --resume"),
    ("torch", "error=ENOSPC", (SYSTEM,), r"No space left on device.*resume to continue.*\(--resume\)"),
])
def test_goes_on_where_it_was_interrupted(tmp_path, source, whole, to, interruption, statuses, message):
    want, (call, count) = whole(to)
    destination = tmp_path / "work" / name(to)
    destination.parent.mkdir()
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:{interruption}:when={count * 9 // 10}"]
    interrupted = strace(tmp_path / "log", inject, command(source, destination, to))
    assert interrupted.returncode in statuses, interrupted.stdout
    assert re.search(message, interrupted.stdout), interrupted.stdout
    assert not destination.exists()

    refused = milepost(*command(source, destination, to, "--resume", "--match", "layers.1*")[1:], status=BAD_INPUT)
    assert "cannot resume: the options are not those of the interrupted conversion" in refused.err

    resumed = strace(tmp_path / "log", ["-e", f"trace={READS}"], command(source, destination, to, "--resume"))
    assert resumed.returncode == 0, resumed.stdout
    assert "of it was there, verified, from the interrupted run" in resumed.stdout
    assert tree(destination) == want
    assert 0 < bytes_read(tmp_path / "log", source) < source.stat().st_size // 2
    assert [p.name for p in destination.parent.iterdir()] == [destination.name], "debris is left"


def test_a_file_that_may_not_grow_leaves_nothing(tmp_path, source):
    """Under `ulimit -f`: an error, not the signal that would end the tool."""
    done = subprocess.run(["prlimit", "--fsize=1000000", *command(source, tmp_path / "out", "dcp")], env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == SYSTEM
    assert re.search(rf"error: {tmp_path}/\S+\.distcp.*: File too large; raise the limit of file sizes \(ulimit -f\)", done.stderr), done.stderr
    assert not list(tmp_path.iterdir())


def test_without_it_the_next_run_starts_again(tmp_path, source, whole):
    want, (call, count) = whole("dcp")
    destination = tmp_path / "work" / "out"
    destination.parent.mkdir()
    strace(tmp_path / "log", ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={count // 2}"],
           command(source, destination, "dcp"))
    report = milepost(*command(source, destination, "dcp", "--json")[1:]).json
    assert report["bytes_resumed"] == 0
    assert tree(destination) == want
    assert [p.name for p in destination.parent.iterdir()] == ["out"], "debris is left"


def test_says_when_there_is_nothing_to_resume(tmp_path, source):
    done = milepost(*command(source, tmp_path / "out", "dcp", "--resume", "--match", "layers.1.*")[1:])
    assert "there was nothing to resume: started from the beginning" in done.text
    assert (tmp_path / "out/.metadata").exists()
