"""Saves that fail: a full disk, a broken one, a file that may not grow, a rank that dies, a rank that hangs. Every rank that is left says why,
older steps stay whole, and with checkpoint.on_save_error=warn training goes on to the next save.
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
from cli.ranks import configuration, run_ranks, start
from cli.training import FAILED
from crash.steps import HASHES, LAST, check_step
from crash.stopped import stop_at, traced, wait_for_stop

MODES = ("disabled", "async", "async_with_pinned_mem")
INTERVAL = 2
SIGTERM_STATUS = 128 + signal.SIGTERM
HOST = re.escape(socket.gethostname())
WRITES = "pwritev,pwrite64"
# calls, what they end with, what is said
FULL, BAD_WRITE, BAD_SYNC = ((WRITES, "error=ENOSPC", "No space left on device"), (WRITES, "error=EIO", "Input/output error"),
                             ("fsync", "error=EIO", "Input/output error"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The flags and the folder of a run with steps 2 and 4, and their manifests."""
    folder = tmp_path_factory.mktemp("trained")
    source = configuration(folder, "llama3")
    run_ranks(folder, 1, "--checkpoint.enable", "--checkpoint.interval", INTERVAL, HASHES, "--training.steps", 4, source=source)
    return source, folder


def copy_steps(trained, folder):
    shutil.copytree(trained[1] / "checkpoint", folder / "checkpoint")


def names(folder):
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


class Run:
    """A run that goes on from step 4, and whose `rank` is stopped where it begins to save step 6, the last one where `last` is not full."""

    def __init__(self, trained, folder, world, rank, mode, *flags, last="full"):
        self.folder, self.world, self.rank, self.last = folder, world, rank, last
        self.source = trained[0]
        copy_steps(trained, folder)
        self.has_manifests = HASHES in flags
        self.flags = ("--checkpoint.enable", "--checkpoint.interval", INTERVAL, "--checkpoint.async-mode", mode, *LAST[last], *flags)
        steps = 100000 if last == "full" else 6
        self.job = start(folder, world, *self.source, "--dump-folder", folder, *self.flags, "--training.steps", steps, env=stop_at(rank, 6))
        wait_for_stop(self.job, rank)

    def step(self, number):
        return self.folder / f"checkpoint/step-{number}"

    def check(self, *numbers):
        for number in numbers:
            check_step(self.step(number), self.has_manifests or number <= 4)

    def faulty(self, calls, fault):
        return traced(self.job.processes[self.rank], self.folder / "strace.log", ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"])

    def told(self, words, within=30):
        """The statuses of ranks that all say why, in time."""
        began = time.monotonic()
        statuses = self.job.wait(60)
        assert time.monotonic() - began < within
        for rank, log in enumerate(self.job.logs):
            if statuses[rank] == FAILED:
                assert re.search(words, log), f"rank {rank}:\n{log[-3000:]}"
        return statuses

    def check_that_it_can_go_on(self):
        """From step 4, in one process, and that nothing of step 6 is left when that has saved."""
        assert not self.step(6).exists()
        self.check(2, 4)
        last = 7 if self.last == "full" else 6
        log = run_ranks(self.folder, 1, *self.flags, "--training.steps", last, source=self.source)[0]
        assert f"Loading the checkpoint from {self.step(4)}." in log
        assert names(self.folder) == [f"step-{step}" for step in sorted({2, 4, 6, last})]
        self.check(6, last)


@pytest.mark.parametrize("world, rank, mode, last, fault, flags", [
    (1, 0, "disabled", "hf", BAD_WRITE, (HASHES,)),
    (1, 0, "async", "full", BAD_WRITE, ()),
    (1, 0, "async_with_pinned_mem", "full", BAD_SYNC, (HASHES,)),
    (2, 1, "disabled", "full", FULL, (HASHES,)),
    (2, 0, "disabled", "model", BAD_SYNC, (HASHES, "--checkpoint.on-save-error", "warn")),
    (2, 0, "async", "full", FULL, ()),
    (2, 1, "async", "hf", FULL, (HASHES,)),
    (2, 1, "async_with_pinned_mem", "full", BAD_WRITE, ())])
def test_an_error_of_the_disk_ends_all_ranks(trained, tmp_path, world, rank, mode, last, fault, flags):
    """That of a last save even when told to go on: there is no later one."""
    run = Run(trained, tmp_path, world, rank, mode, *flags, last=last)
    with run.faulty(*fault[:2]):
        assert run.told(fault[2]) == [FAILED] * world
    run.check_that_it_can_go_on()


@pytest.mark.parametrize("world, rank, mode, fault, flags", [
    (1, 0, "disabled", BAD_WRITE, ()), (1, 0, "async", FULL, (HASHES,)), (2, 1, "async", BAD_WRITE, (HASHES,)),
    (2, 0, "disabled", FULL, (HASHES,)), (2, 0, "async_with_pinned_mem", BAD_WRITE, ())])
def test_training_goes_on_when_told_to(trained, tmp_path, world, rank, mode, fault, flags):
    """Without step 6; of several ranks all agree on that. The next save is a good one."""
    run = Run(trained, tmp_path, world, rank, mode, "--checkpoint.on-save-error", "warn", *flags)
    with run.faulty(*fault[:2]):
        for each in range(world):
            run.job.wait_for("Training goes on without this checkpoint (checkpoint.on_save_error=warn): ", rank=each)
    run.job.wait_for("Finished saving the checkpoint", rank=0)
    failed = [int(step) for step in re.findall(r"step:\s+(\d+) ", run.job.logs[0])][-1]
    run.job.wait_for(f"step: {failed + 2 * INTERVAL:2d} ")
    for process in run.job.processes:
        process.send_signal(signal.SIGTERM)
    assert run.job.wait(30) == [SIGTERM_STATUS] * world, "\n".join(log[-3000:] for log in run.job.logs)
    steps = sorted(int(name.removeprefix("step-")) for name in names(tmp_path))  # and nothing else
    assert 6 not in steps and {2, 4} < set(steps) and max(steps) > 8
    run.check(*steps)
    assert fault[2] in run.job.logs[0] and fault[2] in run.job.logs[-1]


@pytest.mark.parametrize("rank, mode, last, flags", [
    (0, "async", "full", (HASHES,)), (1, "async", "full", ("--checkpoint.on-save-error", "warn")),
    (0, "async_with_pinned_mem", "full", ("--checkpoint.on-save-error", "warn")), (1, "async_with_pinned_mem", "model", ()),
    (1, "disabled", "hf", (HASHES, "--checkpoint.on-save-error", "warn"))])
def test_a_rank_that_dies_while_it_saves_ends_the_others(trained, tmp_path, rank, mode, last, flags):
    run = Run(trained, tmp_path, 2, rank, mode, *flags, last=last)
    with run.faulty(WRITES, "signal=SIGKILL"):
        statuses = run.told(rf"Rank {rank} on {HOST} does not answer: (it was )?killed, or hang")
    assert statuses[rank] == -signal.SIGKILL and statuses[1 - rank] == FAILED
    run.check_that_it_can_go_on()


@pytest.mark.parametrize("rank, mode, flags", [(0, "async", (HASHES,)), (1, "async_with_pinned_mem", ("--checkpoint.on-save-error", "warn"))])
def test_a_rank_whose_disk_hangs_ends_the_others(trained, tmp_path, rank, mode, flags):
    """Its training goes on meanwhile."""
    run = Run(trained, tmp_path, 2, rank, mode, "--comm.train-timeout-seconds", 3, *flags)
    with run.faulty("fsync", "delay_enter=20s"):
        assert run.job.processes[1 - rank].wait(30) == FAILED
        run.job.processes[rank].kill()
    assert re.search(r"Saving the checkpoint of step 6 failed: .*(?i:timed? ?out)", run.job.logs[1 - rank]), run.job.logs[1 - rank][-3000:]
    run.job.wait()
    run.check_that_it_can_go_on()


@pytest.mark.parametrize("rank, mode, timeout, flags", [
    (1, "disabled", 3, (HASHES,)), (0, "async", 20, (HASHES, "--checkpoint.on-save-error", "warn")), (0, "async_with_pinned_mem", 3, ())])
def test_a_rank_that_is_stopped_while_it_saves_ends_the_others(trained, tmp_path, rank, mode, timeout, flags):
    """Rank 0 serves the job's store, which then hangs, too."""
    run = Run(trained, tmp_path, 2, rank, mode, "--comm.train-timeout-seconds", timeout, *flags)
    with run.faulty(WRITES, "signal=SIGSTOP"):
        began = time.monotonic()
        status = run.job.processes[1 - rank].wait(60)
        assert status == FAILED and time.monotonic() - began < 28  # the store's silence is known by then
        run.job.processes[rank].kill()
    assert re.search(rf"What failed first: Rank {rank} on {HOST} does not answer: (it was )?killed, or hang", run.job.logs[1 - rank])
    run.job.wait()
    run.check_that_it_can_go_on()


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("mode, flags", [("disabled", (HASHES,)), ("async", (HASHES,)), ("async_with_pinned_mem", ())])
def test_a_disk_that_is_full(trained, tmp_path, mode, flags):
    """Nothing is left of the failed save, so that there is room again for the next one."""
    with small_disk(tmp_path / "disk", "4M"):
        run = Run(trained, tmp_path / "disk", 1, 0, mode, *flags)
        free = shutil.disk_usage(run.folder).free
        (run.folder / "filler").write_bytes(bytes(free - 300_000))
        run.job.processes[0].send_signal(signal.SIGCONT)
        assert run.told("No space left on device") == [FAILED]
        (run.folder / "filler").unlink()
        run.check_that_it_can_go_on()


def test_a_file_that_may_not_grow(trained, tmp_path):
    """Under `ulimit -f`, within which logs stay."""
    copy_steps(trained, tmp_path)
    flags = ("--checkpoint.enable", "--training.steps", 6)
    log = run_ranks(tmp_path, 1, *flags, source=trained[0], wrap={0: ("prlimit", "--fsize=65536")}, status=FAILED)[0]
    error = log.rstrip("\n").split("\n")[-1]
    assert re.fullmatch(rf"OSError: {tmp_path}/checkpoint/\S+\.distcp.*: File too large; raise the limit of file sizes \(ulimit -f\)", error), error
    assert names(tmp_path) == ["step-2", "step-4"]
