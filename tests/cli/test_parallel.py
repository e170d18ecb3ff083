"""milepost-train in several processes: the same losses as one process, checkpoints that move between numbers of ranks, ends that no rank misses."""
import json
import os
import re
import shutil
import signal
import socket
import time

import pytest
from cli.ranks import configuration, ranks_of, run_ranks, start, torchrun
from cli.training import DONE, FAILED, TITAN, check_titan_curve, records
from tool import milepost

HSDP = ("--parallelism.data-parallel-replicate-degree", 2, "--parallelism.data-parallel-shard-degree", 2)
LAYOUTS = {"fsdp2": (2,), "fsdp3": (3,), "hsdp2x2": (4, *HSDP)}


def losses(folder):
    return {step: record["loss"] for step, record in records(folder).items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """model, fp32_experts -> flags and the folder of a run in one process."""
    runs = {}

    def get(model, fp32_experts=True):
        key = model, fp32_experts
        if key not in runs:
            folder = tmp_path_factory.mktemp("alone")
            source = configuration(folder, model, fp32_experts)
            run_ranks(folder, 1, "--checkpoint.enable", "--checkpoint.interval", 4, source=source)
            runs[key] = source, folder
        return runs[key]
    return get


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model, fp32_experts, tolerance", [("llama3", True, 1e-5), ("deepseek_v3", True, 1e-5), ("deepseek_v3", False, 3e-3)])
def test_losses_are_those_of_one_process(alone, tmp_path, model, fp32_experts, tolerance, layout):
    source, folder = alone(model, fp32_experts)
    world, *flags = LAYOUTS[layout]
    logs = run_ranks(tmp_path, world, *flags, source=source)
    want, got = records(folder), records(tmp_path)
    assert sorted(got) == list(range(1, 21))
    for step, record in got.items():
        assert record["loss"] == pytest.approx(want[step]["loss"], rel=tolerance, abs=0)
        assert record["ntokens_seen"] == want[step]["ntokens_seen"]
    assert got[20]["loss"] < got[1]["loss"] - 0.5
    assert ("Applied HSDP" if "hsdp" in layout else "Applied FSDP") in logs[0]


def test_accumulation_recomputation_and_what_is_kept_change_nothing(alone, tmp_path):
    """One batch of six a rank instead of six of one; everything recomputed; parameters kept between forward and backward."""
    source, folder = alone("deepseek_v3")
    want = losses(folder)
    for name, flags in {"batch": ("--training.local-batch-size", 6), "never": ("--parallelism.fsdp-reshard-after-forward", "never"),
                        "full": ("activation-checkpoint:full",)}.items():
        run_ranks(tmp_path / name, 2, "--training.steps", 6, *flags, source=source)
        assert losses(tmp_path / name) == pytest.approx({step: want[step] for step in range(1, 7)}, rel=1e-5, abs=0)


@pytest.mark.parametrize("fp32_experts", [True, False])
def test_two_runs_are_equal_to_the_bit(tmp_path, fp32_experts):
    source = configuration(tmp_path, "deepseek_v3", fp32_experts)
    for name in ("a", "b"):
        run_ranks(tmp_path / name, 4, *HSDP, "--checkpoint.enable", "--checkpoint.interval", 5, "--training.steps", 5, source=source)
    a, b = tmp_path / "a", tmp_path / "b"
    keys = ("loss", "grad_norm", "ntokens_seen")
    assert [[r[key] for key in keys] for r in records(a).values()] == [[r[key] for key in keys] for r in records(b).values()]
    milepost("diff", a / "checkpoint/step-5", b / "checkpoint/step-5")
    files = sorted(path.name for path in (a / "checkpoint/step-5").iterdir())
    assert files == sorted(path.name for path in (b / "checkpoint/step-5").iterdir())
    assert all((a / "checkpoint/step-5" / name).read_bytes() == (b / "checkpoint/step-5" / name).read_bytes() for name in files)


@pytest.mark.parametrize("model", ["llama3", "deepseek_v3"])
def test_goes_on_with_other_numbers_of_ranks(alone, tmp_path, model):
    source, folder = alone(model)
    want = losses(folder)
    shutil.copytree(folder / "checkpoint/step-4", tmp_path / "checkpoint/step-4")
    for world, steps in ((2, 8), (4, 12), (3, 16), (1, 20)):
        logs = run_ranks(tmp_path, world, "--checkpoint.enable", "--checkpoint.interval", 4, "--training.steps", steps, source=source)
        assert f"Loading the checkpoint from {tmp_path}/checkpoint/step-{steps - 4}." in logs[0]
    got = losses(tmp_path)
    assert sorted(got) == list(range(5, 21))
    assert got == pytest.approx({step: want[step] for step in got}, rel=1e-5, abs=0)
    milepost("verify", tmp_path / "checkpoint/step-12")


@pytest.mark.parametrize("world, flags", [(2, ()), (4, HSDP)])
def test_the_same_ranks_go_on_to_the_bit(tmp_path, world, flags):
    source = configuration(tmp_path, "deepseek_v3", fp32_experts=False)
    flags = (*flags, "--checkpoint.enable", "--checkpoint.interval", 3, "--training.steps", 6)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run_ranks(whole, world, *flags, source=source)
    shutil.copytree(whole / "checkpoint/step-3", parts / "checkpoint/step-3")
    run_ranks(parts, world, *flags, source=source)
    a, b = records(whole), records(parts)
    assert sorted(b) == [4, 5, 6]
    assert all(b[step][key] == a[step][key] for step in b for key in ("loss", "grad_norm"))
    files = sorted(path.name for path in (whole / "checkpoint/step-6").iterdir())
    assert len(files) == 1 + world
    assert all((whole / "checkpoint/step-6" / name).read_bytes() == (parts / "checkpoint/step-6" / name).read_bytes() for name in files)


def test_every_rank_writes_its_part(tmp_path):
    run_ranks(tmp_path, 4, "--checkpoint.enable", "--training.steps", 1, source=configuration(tmp_path, "deepseek_v3"))
    step = tmp_path / "checkpoint/step-1"
    assert sorted(path.name for path in step.iterdir()) == [".metadata", *(f"__{rank}_0.distcp" for rank in range(4))]
    shown = milepost("inspect", step, "--chunks").text
    assert all(f"__{rank}_0.distcp" in shown for rank in range(4))
    sizes = [(step / f"__{rank}_0.distcp").stat().st_size for rank in range(4)]
    assert max(sizes) < 2 * min(sizes)
    milepost("verify", step)


def test_validates_on_data_that_end_unevenly(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/data.jsonl").write_text("".join(json.dumps({"text": "An even line of words. " * count}) + "\n" for count in (3, 40, 3, 3, 3)))
    flags = ("--validator.enable", "--validator.freq", 2, "--validator.steps", -1, "--validator.dataloader.dataset", "text",
             "--validator.dataloader.dataset-path", tmp_path / "data", "--training.steps", 4)
    logs = run_ranks(tmp_path, 2, *flags, source=configuration(tmp_path, "llama3"))
    assert len(re.findall(r"validate step", logs[0])) == 3


# --- TorchTitan's checkpoints


def titan_step_5(name, folder):
    shutil.copytree(TITAN / name / "step-5", folder / "checkpoint/step-5")


@pytest.mark.parametrize("name", ["fsdp2", "ep2"])
def test_goes_on_from_torchtitans_two_ranks(tmp_path, name):
    titan_step_5(name, tmp_path)
    run_ranks(tmp_path, 2, "--checkpoint.enable")
    check_titan_curve(tmp_path, name)


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("name", ["fsdp2", "ep2"])
def test_other_numbers_of_ranks_leave_out_torchtitans_loader(tmp_path, name, world):
    titan_step_5(name, tmp_path)
    flags = ("--checkpoint.enable", "--training.steps", 6)
    for log in run_ranks(tmp_path, world, *flags, status=FAILED):
        assert f"is of data-parallel degree 2, this run has {world}" in log and "--checkpoint.exclude-from-loading dataloader" in log
    run_ranks(tmp_path, world, *flags, "--checkpoint.exclude-from-loading", "dataloader")
    assert sorted(records(tmp_path)) == [6]
    want = {step["step"]: step for step in json.loads((TITAN / name / "curve.json").read_text())}
    assert records(tmp_path)[6]["loss"] == pytest.approx(want[6]["loss"], abs=0.5)


# --- launched by torchrun


def torchrun_flags(folder, *flags):
    source = configuration(folder, "llama3")
    return {"source": source}, ("--checkpoint.enable", "--checkpoint.interval", 1000, "--training.steps", 100000, *flags)


def test_sigterm_to_the_launcher_ends_all_ranks_after_a_save(tmp_path):
    options, flags = torchrun_flags(tmp_path)
    job = torchrun(tmp_path, 2, *flags, **options)
    job.wait_for("step: 10 ")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.wait(30) != [DONE]
    steps = re.findall(r"SIGTERM: stopped after step (\d+), which is saved", job.logs[0])
    assert len(steps) == 2 and len(set(steps)) == 1  # each rank says it, of the same step
    milepost("verify", tmp_path / f"checkpoint/step-{steps[0]}")


def test_the_launcher_starts_again_from_the_last_checkpoint_after_a_kill(tmp_path):
    options, flags = torchrun_flags(tmp_path, "--checkpoint.interval", 5, "--training.steps", 60)
    job = torchrun(tmp_path, 2, *flags, restarts=1, **options)
    job.wait_for("step: 12 ")
    os.kill(ranks_of(job.processes[0])[1], signal.SIGKILL)
    assert job.wait(60) == [DONE], job.logs[0][-3000:]
    resumed = re.findall(r"Loading the checkpoint from \S+step-(\d+)", job.logs[0])
    assert resumed and int(resumed[0]) >= 10 and "Training completed" in job.logs[0]
    assert sorted(losses(tmp_path)) == list(range(1, 61))


# --- faults; the ranks are started one by one, so that no launcher ends them


def endless(tmp_path, world, *flags, **options):
    return start(tmp_path, world, *configuration(tmp_path, "llama3"), "--dump-folder", tmp_path, "--training.steps", 100000, *flags, **options)


HOST = re.escape(socket.gethostname())


def fault(rank, step, phase, what):
    return {"MILEPOST_FAULT": f"{rank}:{step}:{phase}:{what}"}


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("phase, before", [("forward", "data"), ("backward", "forward")])
def test_a_killed_rank_ends_the_others(tmp_path, phase, before, killed):
    job = endless(tmp_path, 3, env=fault(killed, 5, phase, "kill"))
    assert job.processes[killed].wait(60) == -signal.SIGKILL
    began = time.monotonic()
    statuses = job.wait(20)
    assert time.monotonic() - began < 10
    for rank in {0, 1, 2} - {killed}:
        assert statuses[rank] == FAILED
        assert re.search(rf"Rank {rank} on {HOST} failed at step 5 in ({phase}|{before}): .* over \w+ \(3 ranks\) failed: ", job.logs[rank])
        assert re.search(rf"What failed first: Rank {killed} on {HOST} does not answer: (it was )?killed, or hang", job.logs[rank])


@pytest.mark.parametrize("failed", [0, 3])
def test_the_reason_of_one_rank_reaches_those_that_do_not_work_with_it(tmp_path, failed):
    job = endless(tmp_path, 4, *HSDP, env=fault(failed, 3, "backward", "throw"))
    assert job.wait(30) == [FAILED] * 4
    reason = rf"Rank {failed} on {HOST} failed at step 3 in backward: a fault that MILEPOST_FAULT asks for"
    for rank in range(4):
        assert re.search(reason if rank == failed else f"What failed first: {reason}", job.logs[rank])


@pytest.mark.parametrize("text", ["1:5:backward", "1:5:nowhere:kill", "x:5:data:kill", "1:5:data:explode"])
def test_a_fault_of_another_form_is_an_error(tmp_path, text):
    assert "MILEPOST_FAULT is no fault" in run_ranks(tmp_path, 1, env={"MILEPOST_FAULT": text}, status=FAILED)[0]


def test_a_killed_rank_in_a_save_ends_the_others(tmp_path):
    job = endless(tmp_path, 2, "--checkpoint.enable", "--checkpoint.interval", 1, "--checkpoint.keep-latest-k", 2)
    job.wait_for("Saving the checkpoint", rank=1)
    job.processes[1].kill()
    assert job.wait(20)[0] == FAILED and "failed at step" in job.logs[0]


def test_an_exception_of_one_rank_is_in_every_log(tmp_path):
    """Rank 1's data are not there on its node."""
    shutil.copytree(TITAN / "data", tmp_path / "text")
    job = endless(tmp_path, 2, "--checkpoint.enable", "--checkpoint.interval", 3, "--checkpoint.keep-latest-k", 2)
    job.wait_for("Finished saving", rank=0)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "checkpoint").write_text("in the way")
    assert job.wait(30) == [FAILED, FAILED]
    assert "failed at step" in job.logs[0] and "failed at step" in job.logs[1]
    assert "rank 0 failed: " in job.logs[1] and "checkpoint" in job.logs[1]


def test_different_configurations_are_named(tmp_path):
    job = endless(tmp_path, 2, per_rank={1: ("--optimizer.param-groups.0.optimizer-kwargs.lr", "0.25")})
    assert job.wait(30) == [FAILED, FAILED]
    for log in job.logs:
        assert re.search(r'ValueError: ranks were started with different configurations: rank 0 has "lr": 0.005,?, rank 1 has "lr": 0.25', log)


def test_a_port_in_use_is_an_error(tmp_path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        job = endless(tmp_path, 2, "--comm.init-timeout-seconds", 3, port=port)
        assert job.wait(30) == [FAILED, FAILED]
    assert all(f"rendezvous at 127.0.0.1:{port} failed" in log for log in job.logs)


def test_a_missing_rank_is_an_error(tmp_path):
    job = endless(tmp_path, 1, "--comm.init-timeout-seconds", 3, env={"WORLD_SIZE": 2})
    assert job.wait(30) == [FAILED]
    assert "connecting world (2 ranks) failed" in job.logs[0] or "rendezvous" in job.logs[0]


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_ends_the_others_within_the_timeout(tmp_path, stopped):
    """Rank 0 serves the job's store, which then hangs, too."""
    job = endless(tmp_path, 2, "--comm.train-timeout-seconds", 3, env=fault(stopped, 5, "backward", "stop"))
    other = 1 - stopped
    try:
        job.wait_for("step:  4 ")
        began = time.monotonic()
        assert job.processes[other].wait(30) == FAILED
        assert 2 < time.monotonic() - began < 20
    finally:
        job.processes[stopped].kill()
    assert re.search(rf"Rank {other} on {HOST} failed at step 5 in \w+: .* over \w+ \(2 ranks\) failed: .*(?i:timed? ?out)", job.logs[other])
    assert re.search(rf"What failed first: Rank {stopped} on {HOST} does not answer: (it was )?killed, or hang", job.logs[other])
    job.wait()
