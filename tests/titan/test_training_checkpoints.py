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
from cli.training import TITAN, TITAN_RUN, records, tiny_llama_run, train

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


@pytest.mark.parametrize("model", ["deepseek_v3", "llama3"])
def test_goes_on_with_our_losses(tmp_path, model):
    source = TITAN_RUN if model == "deepseek_v3" else tiny_llama_run(tmp_path)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    train(ours, "--training.steps", 10, source=source)
    (theirs / "checkpoint").mkdir(parents=True)
    (theirs / "checkpoint/step-5").symlink_to(ours / "checkpoint/step-5")
    want, got = records(ours), titan_train(theirs, 10, source=source)
    assert sorted(got) == [6, 7, 8, 9, 10]
    for step, record in got.items():
        assert record["loss"] == pytest.approx(want[step]["loss"], abs=2e-3, rel=0)
        assert record["grad_norm"] == pytest.approx(want[step]["grad_norm"], rel=2e-3)
        assert record["lr/AdamW"] == pytest.approx(want[step]["lr/AdamW"], abs=1e-9, rel=0)
        assert record["n_tokens_seen"] == want[step]["ntokens_seen"]
    # And back: we go on from where TorchTitan ended.
    train(theirs, "--training.steps", 12, source=source)
    assert sorted(records(theirs)) == [11, 12]
    a, b = tensors_of(ours / "checkpoint/step-10"), tensors_of(theirs / "checkpoint/step-10")
    assert a.keys() == b.keys()
    assert all(torch.allclose(a[name], b[name], rtol=0.05, atol=2e-3) for name in a)


def test_starts_from_our_model(tmp_path):
    train(tmp_path / "ours", "--training.steps", 3, "--checkpoint.last-save-model-only")
    step = tmp_path / "ours/checkpoint/step-3"
    theirs = titan_train(tmp_path / "theirs", 1, step)
    train(tmp_path / "again", "--training.steps", 1, "--checkpoint.initial-load-path", step)
    assert theirs[1]["loss"] == pytest.approx(records(tmp_path / "again")[1]["loss"], abs=2e-3, rel=0)


@pytest.mark.parametrize("model", ["deepseek_v3", "llama3"])
def test_goes_on_with_the_losses_of_our_two_ranks(tmp_path, model):
    source = TITAN_RUN if model == "deepseek_v3" else tiny_llama_run(tmp_path)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run_ranks(ours, 2, "--checkpoint.enable", "--training.steps", 10, source=source)
    (theirs / "checkpoint").mkdir(parents=True)
    (theirs / "checkpoint/step-5").symlink_to(ours / "checkpoint/step-5")
    want, got = records(ours), titan_train(theirs, 10, source=source, world=2)
    assert sorted(got) == [6, 7, 8, 9, 10]
    for step, record in got.items():
        assert record["loss"] == pytest.approx(want[step]["loss"], abs=2e-3, rel=0)
        assert record["grad_norm"] == pytest.approx(want[step]["grad_norm"], rel=2e-3)
        assert record["n_tokens_seen"] == want[step]["ntokens_seen"]
    run_ranks(theirs, 2, "--checkpoint.enable", "--training.steps", 12, source=source)
    assert sorted(records(theirs)) == [11, 12]


def test_loads_what_our_four_ranks_wrote(tmp_path):
    run_ranks(tmp_path, 4, "--checkpoint.enable", "--training.steps", 5)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        (folder / "checkpoint").mkdir(parents=True)
        (folder / "checkpoint/step-5").symlink_to(tmp_path / "checkpoint/step-5")
    got = titan_train(theirs, 6, leave_out="dataloader")
    train(ours, "--training.steps", 6, "--checkpoint.exclude-from-loading", "dataloader")
    assert sorted(got) == [6]
    assert got[6]["loss"] == pytest.approx(records(ours)[6]["loss"], abs=2e-3, rel=0)
