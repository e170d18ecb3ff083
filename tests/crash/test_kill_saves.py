"""A SIGKILL at any system call of a trainer's save leaves complete steps, from which the next run goes on, and debris that it removes.

A rank stops itself where a save begins (MILEPOST_FAULT), strace is attached, and kills it as it enters the n-th call of one kind. The run
that follows goes on from what is there, saves, and is the next one to be killed. By default a few of these calls are tried, spread over a
save; with MILEPOST_KILL_POINTS=40 as many in each mode and of each rank (minutes), with =all each of them, some 2000 (an hour).
"""
import os
import re
import shutil
import signal
import time

import pytest
from cli.ranks import configuration, run_ranks, start
from cli.training import DONE, FAILED
from crash.steps import HASHES, LAST, check_step
from crash.stopped import stop_at, traced, wait_for_stop
from crash.test_kill import CHANGING

# Ranks talk to each other by these.
TALKING = {"sendmsg", "sendto"}
INTERVAL = 2
POINTS = os.environ.get("MILEPOST_KILL_POINTS")
# (mode, ranks, the one that is killed, what a last save holds, whether steps have manifests)
CASES = [("disabled", 1, 0, "hf", True), ("async", 1, 0, "full", False), ("async_with_pinned_mem", 1, 0, "model", True),
         ("disabled", 2, 0, "model", True), ("async", 2, 1, "full", True), ("async_with_pinned_mem", 2, 0, "hf", False)]
if POINTS:
    CASES += [("disabled", 2, 1, "full", False), ("async", 2, 0, "hf", False), ("async_with_pinned_mem", 2, 1, "full", True)]


class Series:
    """A chain of jobs in one folder, of which each is killed in its second save, or its last, and followed by the next."""

    def __init__(self, folder, world, mode, last, has_manifests):
        self.folder, self.world, self.mode, self.last, self.has_manifests = folder, world, mode, last, has_manifests
        self.steps_folder = folder / "checkpoint"
        self.source = configuration(folder, "llama3")
        self.flags = ("--checkpoint.enable", "--checkpoint.interval", INTERVAL, "--checkpoint.keep-latest-k", 2, "--checkpoint.async-mode", mode,
                      *((HASHES,) if has_manifests else ()))
        run_ranks(folder, world, *self.flags, "--training.steps", INTERVAL, source=self.source)
        self.flags += LAST[last]
        self.newest = INTERVAL

    def names(self):
        return {path.name for path in self.steps_folder.iterdir()}

    def steps(self):
        return sorted(int(name.removeprefix("step-")) for name in self.names() if re.fullmatch(r"step-\d+", name))

    def checked_steps(self):
        """The full steps that are there; they and the last saves must be complete."""
        steps = self.steps()
        for step in steps:
            check_step(self.steps_folder / f"step-{step}", self.has_manifests)
        full = [step for step in steps if self.last == "full" or step % INTERVAL == 0]
        for other in sorted(set(steps) - set(full))[:-1]:  # they stay for good; the next job is to pass over one
            shutil.rmtree(self.steps_folder / f"step-{other}")
        return full

    def debris(self):
        return {name for name in self.names() if not name.startswith("step-")}

    def kill(self, rank, options):
        """A job that goes on from the newest step, saves, and saves again under strace; the ranks' statuses and logs."""
        first = (self.newest // INTERVAL + 1) * INTERVAL
        newest = self.newest
        job = start(self.folder, self.world, *self.source, "--dump-folder", self.folder, *self.flags, "--training.steps", first + INTERVAL + 1,
                    env=stop_at(rank, first + INTERVAL))
        wait_for_stop(job, rank)
        assert f"Loading the checkpoint from {self.steps_folder}/step-{self.newest}." in job.logs[0]
        has_saved = first in self.steps()  # where it saves beside training, it may still be about to
        assert has_saved or self.mode != "disabled"
        assert len(self.debris()) <= 2  # of the save and the removal that this job may be at; what others left is gone
        with traced(job.processes[rank], self.folder / "strace.log", options):
            began = time.monotonic()
            statuses = job.wait(60)
            assert time.monotonic() - began < 30
        self.newest = self.checked_steps()[-1]
        assert self.newest >= newest
        return statuses, job.logs

    def points(self, rank):
        """The (call, how often in its thread) that change something, in order, of an undisturbed run from its second save on."""
        statuses, _ = self.kill(rank, ["-e", "trace=" + ",".join(sorted(CHANGING | TALKING)), "-s", "200"])
        assert statuses == [DONE] * self.world
        counts, found = {}, {}
        for thread, call, rest in re.findall(r"^(\d+) +(\w+)\((.*)$", (self.folder / "strace.log").read_text(), re.MULTILINE):
            counts[thread, call] = counts.get((thread, call), 0) + 1
            found[call, counts[thread, call]] = None
            if "Last step checkpoint completed" in rest:
                break
        return list(found)


def chosen(points, world):
    if POINTS == "all":
        return points
    count = int(POINTS or (6 if world == 1 else 2))
    return [points[i] for i in sorted({(2 * i + 1) * len(points) // (2 * count) for i in range(count)})]


def is_killed(jobs, rank, call, n):
    """Whether a job is, at the n-th of these calls. Those between ranks, and of several threads, are not always as many: then at an earlier one."""
    while n > 0:
        statuses, logs = jobs.kill(rank, ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={n}"])
        told = f"{call} {n}: {statuses}\n" + "\n".join(log[-3000:] for log in logs)
        if statuses[rank] == -signal.SIGKILL:
            assert jobs.world == 1 or statuses[1 - rank] in (FAILED, DONE), told
            return True
        assert statuses == [DONE] * jobs.world and (call in TALKING | {"writev"} or jobs.mode != "disabled"), told
        n //= 2
    return False


@pytest.mark.parametrize("mode, world, rank, last, has_manifests", CASES)
def test_kill_within_saves(tmp_path, mode, world, rank, last, has_manifests):
    jobs = Series(tmp_path, world, mode, last, has_manifests)
    points = jobs.points(rank)
    tried = chosen(points, world)
    num_killed = sum(is_killed(jobs, rank, call, n) for call, n in tried)
    print(f"{mode}, rank {rank} of {world}, {last}: killed {num_killed} times of {len(tried)}, at calls out of {len(points)}")
    statuses, _ = jobs.kill(rank, ["-e", "trace=none"])
    assert statuses == [DONE] * world and not jobs.debris()
    assert num_killed >= len(tried) - (0 if mode == "disabled" else 1)
