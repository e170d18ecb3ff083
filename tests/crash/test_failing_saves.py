"""Saves that fail: a full disk, a broken one, a rank that dies, a rank that hangs. Every rank that is left says why, older steps stay whole,
and with checkpoint.on_save_error=warn training goes on to the next save.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from cli.ranks import configuration, run_ranks, start
from cli.training import FAILED
from crash.stopped import stop_at, traced, wait_for_stop
from tool import milepost

MODES = ("disabled", "async", "async_with_pinned_mem")
INTERVAL = 2
SIGTERM_STATUS = 128 + signal.SIGTERM
FAULTS = {"ENOSPC": ("pwritev,pwrite64", "No space left on device"), "EIO": ("fsync", "Input/output error")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The flags and the folder of a run with steps 2 and 4."""
    folder = tmp_path_factory.mktemp("trained")
    source = configuration(folder, "llama3")
    run_ranks(folder, 1, "--checkpoint.enable", "--checkpoint.interval", INTERVAL, "--training.steps", 4, source=source)
    return source, folder


class Run:
    """A run that goes on from step 4, and whose `rank` is stopped where it begins to save step 6."""

    def __init__(self, trained, folder, world, rank, mode, *flags):
        self.folder, self.world, self.rank = folder, world, rank
        self.source, of_step_4 = trained
        shutil.copytree(of_step_4 / "checkpoint", folder / "checkpoint")
        self.flags = ("--checkpoint.enable", "--checkpoint.interval", INTERVAL, "--checkpoint.async-mode", mode)
        self.job = start(folder, world, *self.source, "--dump-folder", folder, *self.flags, "--training.steps", 100000, *flags, env=stop_at(rank, 6))
        wait_for_stop(self.job, rank)

    def step(self, number):
        return self.folder / f"checkpoint/step-{number}"

    def faulty(self, options):
        return traced(self.job.processes[self.rank], self.folder / "strace.log", options)

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
        """From step 4, and that nothing of step 6 is left when the next run has saved."""
        assert not self.step(6).exists()
        for step in (2, 4):
            milepost("verify", self.step(step))
        logs = run_ranks(self.folder, self.world, *self.flags, "--training.steps", 7, source=self.source)
        assert f"Loading the checkpoint from {self.step(4)}." in logs[0]
        assert sorted(path.name for path in self.step(4).parent.iterdir()) == ["step-2", "step-4", "step-6", "step-7"]
        milepost("verify", self.step(6))


def injection(fault, what=None):
    calls = FAULTS[fault][0]
    return ["-e", f"trace={calls}", "-e", f"inject={calls}:{what or f'error={fault}'}"]


@pytest.mark.parametrize("world, rank, mode, fault", [
    (1, 0, "disabled", "ENOSPC"), (1, 0, "async", "ENOSPC"), (1, 0, "async_with_pinned_mem", "EIO"),
    (2, 1, "disabled", "EIO"), (2, 0, "async", "EIO"), (2, 1, "async_with_pinned_mem", "ENOSPC")])
def test_an_error_of_the_disk_ends_all_ranks(trained, tmp_path, world, rank, mode, fault):
    run = Run(trained, tmp_path, world, rank, mode)
    with run.faulty(injection(fault)):
        assert run.told(FAULTS[fault][1]) == [FAILED] * world
    run.check_that_it_can_go_on()


@pytest.mark.parametrize("world, rank, mode", [(1, 0, mode) for mode in MODES] + [(2, 1, "async"), (2, 0, "disabled")])
def test_training_goes_on_when_told_to(trained, tmp_path, world, rank, mode):
    """Without step 6; of several ranks all agree on that. The next save is a good one."""
    run = Run(trained, tmp_path, world, rank, mode, "--checkpoint.on-save-error", "warn")
    with run.faulty(injection("ENOSPC")):
        for each in range(world):
            run.job.wait_for("Training goes on without this checkpoint (checkpoint.on_save_error=warn): ", rank=each)
    run.job.wait_for("Finished saving the checkpoint", rank=0)
    failed = [int(step) for step in re.findall(r"step:\s+(\d+) ", run.job.logs[0])][-1]
    run.job.wait_for(f"step: {failed + 2 * INTERVAL:2d} ")
    for process in run.job.processes:
        process.send_signal(signal.SIGTERM)
    assert run.job.wait(30) == [SIGTERM_STATUS] * world, "\n".join(log[-3000:] for log in run.job.logs)
    steps = sorted(int(path.name.removeprefix("step-")) for path in (tmp_path / "checkpoint").iterdir())  # and nothing else
    assert 6 not in steps and {2, 4} < set(steps) and max(steps) > 8
    for step in steps:
        milepost("verify", run.step(step))
    assert "No space left on device" in run.job.logs[0] and "No space left on device" in run.job.logs[-1]


@pytest.mark.parametrize("rank, mode, on_error", [(0, "async", "fail"), (1, "async", "warn"), (0, "async_with_pinned_mem", "warn"), (1, "disabled", "warn")])
def test_a_rank_that_dies_while_it_saves_ends_the_others(trained, tmp_path, rank, mode, on_error):
    run = Run(trained, tmp_path, 2, rank, mode, "--checkpoint.on-save-error", on_error)
    with run.faulty(injection("EIO", "signal=SIGKILL")):
        statuses = run.told(rf"Rank {rank} on \S+ does not answer: (it was )?killed, or hang")
    assert statuses[rank] == -signal.SIGKILL and statuses[1 - rank] == FAILED
    run.check_that_it_can_go_on()


@pytest.mark.parametrize("rank, mode, on_error", [(0, "async", "fail"), (1, "async_with_pinned_mem", "warn")])
def test_a_rank_that_hangs_while_it_saves_ends_the_others(trained, tmp_path, rank, mode, on_error):
    """Its disk does not answer, its training goes on."""
    run = Run(trained, tmp_path, 2, rank, mode, "--comm.train-timeout-seconds", 3, "--checkpoint.on-save-error", on_error)
    with run.faulty(injection("EIO", "delay_enter=20s")):
        other = run.job.processes[1 - rank]
        assert other.wait(30) == FAILED
        run.job.processes[rank].kill()
    assert re.search(r"Saving the checkpoint of step 6 failed: .*(?i:timed? ?out)", run.job.logs[1 - rank]), run.job.logs[1 - rank][-3000:]
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


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_is_full(trained, tmp_path, mode):
    """Nothing is left of the failed save, so that there is room again for the next one."""
    with small_disk(tmp_path / "disk", "4M"):
        run = Run(trained, tmp_path / "disk", 1, 0, mode)
        free = shutil.disk_usage(run.folder).free
        (run.folder / "filler").write_bytes(bytes(free - 300_000))
        run.job.processes[0].send_signal(signal.SIGCONT)
        assert run.told("No space left on device") == [FAILED]
        (run.folder / "filler").unlink()
        run.check_that_it_can_go_on()
