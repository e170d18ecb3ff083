"""Signals to several ranks: all of them save the same step and end, or say why they cannot."""
import json
import re
import signal
import socket
import time

import pytest
from cli.ranks import configuration, run_ranks, start
from cli.training import FAILED, records
from crash.stopped import stop_at, wait_for_stop
from tool import milepost

LAST = 12  # that finite data last for, below
HOST = re.escape(socket.gethostname())


def endless(folder, *flags, world=2, **options):
    return start(folder, world, *configuration(folder, "llama3"), "--dump-folder", folder, "--training.steps", 100000, "--checkpoint.enable",
                 "--checkpoint.interval", 100000, *flags, **options)


@pytest.mark.parametrize("number, rank, mode", [(signal.SIGTERM, 0, "disabled"), (signal.SIGUSR1, 1, "async")])
def test_a_signal_to_one_rank_ends_all_after_the_same_step(tmp_path, number, rank, mode):
    job = endless(tmp_path, "--checkpoint.async-mode", mode)
    job.wait_for("step:  5 ")
    job.processes[rank].send_signal(number)
    job.processes[rank].send_signal(number)  # as a launcher passes on what the ranks have got already
    assert job.wait(30) == [128 + number] * 2, job.logs
    steps = {int(re.search(rf"{number.name}: stopped after step (\d+), which is saved", log)[1]) for log in job.logs}
    assert len(steps) == 1
    step = steps.pop()
    milepost("verify", tmp_path / f"checkpoint/step-{step}")
    if mode != "disabled":
        return
    flags = ("--checkpoint.enable", "--training.steps", step + 2, "--lr-scheduler.total-steps", 30)
    run_ranks(tmp_path, 2, *flags, source=configuration(tmp_path, "llama3"))
    again = tmp_path / "again"
    run_ranks(again, 2, *flags, source=configuration(again, "llama3"))
    assert records(tmp_path)[step + 2]["loss"] == records(again)[step + 2]["loss"]


@pytest.mark.parametrize("hanging", [0, 1])
def test_ranks_that_cannot_agree_end_at_once(tmp_path, hanging):
    """Rank 0 serves the job's store, which then hangs, too."""
    job = endless(tmp_path)
    job.wait_for("step:  5 ")
    job.processes[hanging].send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    began = time.monotonic()
    job.processes[1 - hanging].send_signal(signal.SIGTERM)
    try:
        assert job.processes[1 - hanging].wait(20) == FAILED
        assert time.monotonic() - began < 15  # 7 at most, on a machine at rest
    finally:
        job.processes[hanging].kill()
    assert re.search(rf"SIGTERM: ending at once, and nothing is saved: .* Rank {hanging} on {HOST} does not answer: ", job.logs[1 - hanging])


@pytest.mark.parametrize("world", [1, 2])
def test_a_signal_before_the_first_step_ends_all_ranks_at_once(tmp_path, world):
    source = configuration(tmp_path, "llama3")
    slow = json.loads(source[1].read_text())
    slow["model"].update(vocab_size=200000, dim=256, head_dim=64)
    source[1].write_text(json.dumps(slow))
    job = start(tmp_path, world, *source, "--dump-folder", tmp_path, "--checkpoint.enable")
    job.wait_for("Building llama3", rank=world - 1)
    job.processes[world - 1].send_signal(signal.SIGTERM)
    assert job.wait(20) == [128 + signal.SIGTERM] * world, job.logs
    assert all("SIGTERM: stopped before the first step, with nothing to save" in log and "Training starts" not in log for log in job.logs)


def test_a_signal_in_the_step_that_has_no_data_saves_what_was_trained(tmp_path):
    """Rank 1 gets it there; rank 0 waits for rank 1's batch."""
    source, text = configuration(tmp_path, "llama3"), tmp_path / "text"
    text.mkdir()
    (text / "data.jsonl").write_text("".join(json.dumps({"text": "abc " * 40}) + "\n" for _ in range(10)))
    data = ("--dataloader.dataset", "text", "--dataloader.dataset-path", text, "--dataloader.no-infinite", "--training.global-batch-size", 2)
    job = start(tmp_path, 2, *source, *data, "--dump-folder", tmp_path, "--checkpoint.enable", env=stop_at(1, LAST + 1, "data"))
    wait_for_stop(job, 1)
    job.processes[1].send_signal(signal.SIGTERM)
    job.processes[1].send_signal(signal.SIGCONT)
    assert job.wait(30) == [128 + signal.SIGTERM] * 2, "\n".join(job.logs)
    for log in job.logs:
        assert "Ran out of data; last step was canceled." in log
        assert f"SIGTERM: stopped after step {LAST}, which is saved" in log
    log, = run_ranks(tmp_path / "again", 1, *data, "--dump-folder", tmp_path, "--checkpoint.enable", source=source)
    assert f"Training starts at step {LAST + 1}" in log and "Training completed" in log and "step: " not in log


def test_a_signal_while_other_ranks_are_awaited_ends_the_process(tmp_path):
    job = endless(tmp_path, world=1, env={"WORLD_SIZE": 2})
    job.wait_for("Building device mesh")
    job.processes[0].send_signal(signal.SIGUSR1)
    assert job.wait(20) == [128 + signal.SIGUSR1]
