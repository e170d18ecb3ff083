"""A SIGKILL at any system call of a write leaves the old state or the new one, and debris that the next write removes.

strace's injection kills the tool as it enters the n-th call of one kind, for every kind that changes something and every n, until a
run is no longer hit. Writes go by pwrite here; other ways to write are covered by the simulated disk in the unit tests.
"""
import collections
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tool import DATA, environment, milepost, program, tree

# Calls on files and descriptors that change something, or may (openat creates). The tool is killed at each of those it makes.
CHANGING = {
    "write", "pwrite64", "writev", "pwritev", "pwritev2", "copy_file_range", "sendfile", "splice", "mkdir", "mkdirat", "creat", "openat",
    "link", "linkat", "symlink", "symlinkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "ftruncate", "truncate",
    "fallocate", "fsync", "fdatasync", "sync_file_range", "msync", "fchmod", "fchmodat", "flock", "utimensat", "io_uring_enter",
}
# Those that do not. A call in neither list fails the test, so that a new way to write cannot stay untried.
READING = {
    "access", "chdir", "close", "dup", "dup2", "execve", "faccessat", "faccessat2", "fadvise64", "fcntl", "fstat", "fstatfs", "getcwd",
    "getdents64", "ioctl", "lseek", "lstat", "mmap", "newfstatat", "pread64", "preadv", "preadv2", "read", "readahead", "readlink",
    "readlinkat", "readv", "stat", "statfs", "statx",
}
SOURCE = DATA / "dcp/fsdp_2rank/ckpt"


def command(destination, to):
    return [program(), "convert", str(SOURCE), str(destination), "--to", to, "--overwrite", "--threads", "1", *options(to)]


def options(to):
    return ["--files", "2"] if to == "dcp" else ["--skip-unsupported", "--shard-size", "1KB"] if to == "safetensors" else []


def strace(log, inject, arguments):
    return subprocess.run(["strace", "-f", "-qq", "-o", log, *inject, *arguments], env=environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


def changing_calls(log, arguments):
    """How often an undisturbed run makes each call that changes something."""
    done = strace(log, ["-e", "trace=%file,%desc"], arguments)
    assert done.returncode == 0, done.stdout
    calls = collections.Counter(re.findall(r"^\d+ +(\w+)\(", Path(log).read_text(), re.MULTILINE))
    assert calls.keys() <= CHANGING | READING, f"not known here: {calls.keys() - CHANGING - READING}"
    return {call: count for call, count in sorted(calls.items()) if call in CHANGING}


def make_old(to, path):
    """Another checkpoint in the same format: other values, other files."""
    milepost("convert", DATA / "dcp/lowest_rank/ckpt", path, "--to", to, "--skip-unsupported")


@pytest.mark.parametrize("start", ["over-old", "fresh"])
@pytest.mark.parametrize("to", ["dcp", "safetensors", "torch"])
def test_kill_at_every_call(tmp_path, to, start):
    name = "out.pth" if to == "torch" else "out"
    old, new, work = tmp_path / f"old-{name}", tmp_path / f"new-{name}", tmp_path / "work"
    make_old(to, old)
    work.mkdir()
    destination = work / name
    place(old if start == "over-old" else None, destination)
    calls = changing_calls(tmp_path / "log", command(destination, to))
    shutil.move(destination, new)
    milepost("verify", new)
    states = {"old": tree(old) if start == "over-old" else None, "new": tree(new)}
    assert states["old"] != states["new"]

    seen = {"old": 0, "new": 0}
    for call in calls:
        for n in itertools.count(1):
            place(old if start == "over-old" else None, destination)
            killed = strace(tmp_path / "log", ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={n}"],
                            command(destination, to))
            state = tree(destination)
            assert state in states.values(), f"{call} {n}: neither old nor new: {state}"
            seen["old" if state == states["old"] else "new"] += 1
            assert killed.returncode in (0, -9, 137), f"{call} {n}: {killed.stdout}"
            if killed.returncode == 0:
                assert n > 1 and state == states["new"]
                break
            again = subprocess.run(command(destination, to), env=environment(), capture_output=True, text=True, timeout=120)
            assert again.returncode == 0, f"{call} {n}: {again.stderr}"
            assert tree(destination) == states["new"], f"{call} {n}"
            assert sorted(p.name for p in work.iterdir()) == [name], f"{call} {n}: debris is left"
    print(f"{to}, {start}: outcomes {seen}, calls {calls}")
    assert seen["old"] and seen["new"]


def place(old, destination):
    """Puts the old state at the destination; debris beside it stays, as the tool has to deal with it."""
    if destination.is_dir():
        shutil.rmtree(destination)
    elif destination.exists():
        destination.unlink()
    if old is None:
        return
    if old.is_dir():
        shutil.copytree(old, destination)
    else:
        shutil.copy(old, destination)
