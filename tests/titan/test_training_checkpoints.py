"""TorchTitan's CheckpointManager loads our trainer's checkpoints, full ones and those of the model alone, and its Trainer goes on with our losses."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
import torchtitan_models
from cli.ranks import free_port, run_ranks
from cli.training import TITAN, TITAN_RUN, records, tiny_llama_run

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module", autouse=True)
def titan():
    for package in ("datasets", "torchdata"):
        pytest.importorskip(package, reason=f"{package} is not installed (requirements/datasets.txt)")
    torchtitan_models.prepare()


def titan_train(folder, steps, initial=None, source=TITAN_RUN, world=1, leave_out=None):
    """{step: what TorchTitan logged}."""
    command = [sys.executable, HERE / "titan_resume.py", source[1], TITAN / "tokenizer", TITAN / "data", folder, steps, *([initial] if initial else [])]
    environment = {**os.environ, "HF_DATASETS_CACHE": str(folder / "cache"), "PYTHONPATH": f"{HERE}:{HERE.parent}", "WORLD_SIZE": str(world),
                   "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", **({"LEAVE_OUT": leave_out} if leave_out else {})}
    ranks = [subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(world)]
    try:
        outputs = [rank.communicate(timeout=280) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(rank.returncode for rank in ranks), "\n".join(out[-1000:] + err[-4000:] for out, err in outputs)
    return {record["step"]: record for record in map(json.loads, filter(lambda line: line.startswith("{"), outputs[0][0].splitlines()))}


def tensors_of(step):
    reader = dcp.FileSystemReader(step)
    state = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in reader.read_metadata().state_dict_metadata.items()
             if hasattr(entry, "size")}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def source_of(model, folder):
    return TITAN_RUN if model == "deepseek_v3" else tiny_llama_run(folder)


def our_train(folder, world, *flags, source=TITAN_RUN):
    run_ranks(folder, world, "--checkpoint.enable", *flags, source=source)


def link_step_5(step, folder):
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint/step-5").symlink_to(step)


def check_curve(got, want, steps):
    assert sorted(got) == steps
    for step, record in got.items():
        assert record["loss"] == pytest.approx(want[step]["loss"], abs=2e-3, rel=0)
        assert record["grad_norm"] == pytest.approx(want[step]["grad_norm"], rel=2e-3)
        assert record["lr/AdamW"] == pytest.approx(want[step]["lr/AdamW"], abs=1e-9, rel=0)
        assert record["n_tokens_seen"] == want[step]["ntokens_seen"]


# What a full step may hold beside what TorchTitan asks for.
AVERAGE = ("--ema-weights.enable", "--ema-weights.decay", "0.9")
MANIFEST = ("--checkpoint.extensions.verify-hash-manifest",)


@pytest.mark.parametrize("model, world, mode, more", [
    ("deepseek_v3", 1, "disabled", ()), ("llama3", 1, "async", (*AVERAGE, *MANIFEST)),
    ("llama3", 2, "disabled", AVERAGE), ("deepseek_v3", 2, "async_with_pinned_mem", MANIFEST)])
def test_goes_on_with_our_losses(tmp_path, model, world, mode, more):
    source = source_of(model, tmp_path)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    our_train(ours, world, "--checkpoint.async-mode", mode, *more, "--training.steps", 10, source=source)
    step = ours / "checkpoint/step-5"
    assert (step / "_checkpoint_hash_manifest.json").exists() == (MANIFEST[0] in more)
    assert any(name.startswith("ema_optimizer.") for name in tensors_of(step)) == (AVERAGE[0] in more)
    link_step_5(step, theirs)
    check_curve(titan_train(theirs, 10, source=source, world=world), records(ours), [6, 7, 8, 9, 10])
    # And back: we go on from where TorchTitan ended.
    our_train(theirs, world, "--training.steps", 12, source=source)
    assert sorted(records(theirs)) == [11, 12]
    a, b = tensors_of(ours / "checkpoint/step-10"), tensors_of(theirs / "checkpoint/step-10")
    assert {name for name in a if not name.startswith("ema_optimizer.")} == b.keys()
    assert all(torch.allclose(a[name], b[name], rtol=0.05, atol=2e-3) for name in b)


@pytest.mark.parametrize("model, world", [("deepseek_v3", 1), ("deepseek_v3", 2), ("llama3", 2)])
def test_starts_from_our_model(tmp_path, model, world):
    """The last save of so many ranks, from which as many begin anew."""
    source = source_of(model, tmp_path)
    our_train(tmp_path / "ours", world, "--training.steps", 3, "--checkpoint.last-save-model-only", *MANIFEST, source=source)
    step = tmp_path / "ours/checkpoint/step-3"
    assert not any(name.startswith("optimizer.") for name in tensors_of(step))
    theirs = titan_train(tmp_path / "theirs", 4, step, source=source, world=world)
    our_train(tmp_path / "again", world, "--training.steps", 4, "--lr-scheduler.total-steps", 10, "--checkpoint.initial-load-path", step, source=source)
    check_curve(theirs, records(tmp_path / "again"), [1, 2, 3, 4])
    assert theirs[1]["loss"] < records(tmp_path / "ours")[1]["loss"]


def test_loads_what_our_four_ranks_wrote(tmp_path):
    our_train(tmp_path, 4, "--training.steps", 5)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        link_step_5(tmp_path / "checkpoint/step-5", folder)
    got = titan_train(theirs, 6, leave_out="dataloader")
    our_train(ours, 1, "--training.steps", 6, "--checkpoint.exclude-from-loading", "dataloader")
    assert sorted(got) == [6]
    assert got[6]["loss"] == pytest.approx(records(ours)[6]["loss"], abs=2e-3, rel=0)
