"""Runs `milepost-train` for the tests: the one that the environment variable MILEPOST_TRAIN names (ctest sets it), else build/dev's."""
import json
import os
import subprocess
from pathlib import Path

import pytest
from tool import DATA, milepost

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MILEPOST_TRAIN", str(ROOT / "build/dev/train/milepost-train"))
DONE, FAILED, USAGE = 0, 1, 2

# A tiny deepseek_v3 that torchtitan trained, too.
TITAN = DATA / "titan_runs"
TITAN_RUN = ("--config-file", TITAN / "run.json", "--hf-assets-path", TITAN / "tokenizer", "--dataloader.dataset-path", TITAN / "data")

# A tiny llama3 on the same text.
TINY_LLAMA = {"module": "llama3", "config": "llama3_debugmodel",
              "model": {"name": "llama3", "flavor": "debugmodel", "vocab_size": 264, "dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2,
                        "head_dim": 8, "hidden_dim": 48, "rope": {"theta": 10000.0, "max_seq_len": 64, "scaling": "none"}},
              "training": {"local_batch_size": 2, "seq_len": 64, "max_norm": 1.0, "mixed_precision_param": "float32"},
              "optimizer": {"param_groups": [{"pattern": ".*", "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": 0.005}}]},
              "lr_scheduler": {"warmup_steps": 2, "decay_ratio": 0.8, "decay_type": "linear", "min_lr_factor": 0.1, "total_steps": 10},
              "metrics": {"log_freq": 1, "disable_color_printing": True},
              "checkpoint": {"interval": 5, "keep_latest_k": 0, "last_save_model_only": False}, "debug": {"seed": 3}}


def tiny_llama_run(folder):
    """The flags of a run of it; its configuration is written into `folder`."""
    (folder / "llama.json").write_text(json.dumps(TINY_LLAMA))
    return ("--config-file", folder / "llama.json", *TITAN_RUN[2:])


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "NGPU", "COMM_MODE")}
    return {**kept, "MILEPOST_ROOT": str(ROOT), **variables}


def run(*arguments, status=DONE, timeout=200, cwd=None, **variables):
    """(standard output, log) of a run that must end with `status`."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=environment(**variables), cwd=cwd)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout, done.stderr


def train(folder, *arguments, source=TITAN_RUN, status=DONE):
    """The log of a run with checkpoints whose dump folder is `folder`."""
    return run(*source, "--dump-folder", folder, "--checkpoint.enable", *arguments, status=status)[1]


def metrics(folder):
    """The records of metrics.jsonl, of steps and of validations, in order."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def records(folder):
    """{step: what metrics.jsonl says of it}, the last run's where steps were run again."""
    return {record["step"]: record for record in metrics(folder) if "loss" in record}


def sums(step, match="*"):
    """{name: SHA-256} of a step's tensors."""
    return {t["name"]: t["sha256"] for t in milepost("inspect", step, "--match", match, "--sha256", "--json").json["tensors"]}


def averages(step):
    """{parameter: SHA-256} of the moving average."""
    return {name.removeprefix("ema_optimizer.state.").removesuffix(".ema_params"): value
            for name, value in sums(step, "ema_optimizer.*").items()}


def weights(step):
    """{parameter: SHA-256} of what an average is kept of."""
    return {name: value for name, value in sums(step).items()
            if not name.startswith(("optimizer.", "ema_optimizer.")) and not name.endswith("expert_bias_E")}


def check_titan_curve(folder, run):
    """That a run which went on from TorchTitan's step 5 has the later losses of TorchTitan's own `run` (one_rank, fsdp2, ep2)."""
    got, want = records(folder), {step["step"]: step for step in json.loads((TITAN / run / "curve.json").read_text())}
    assert sorted(got) == [6, 7, 8, 9, 10]
    for step, record in got.items():
        assert record["loss"] == pytest.approx(want[step]["loss"], abs=2e-3, rel=0)
        assert record["grad_norm"] == pytest.approx(want[step]["grad_norm"], rel=2e-3)
        assert record["lr/AdamW"] == pytest.approx(want[step]["lr/AdamW"], abs=1e-9, rel=0)
        assert record["ntokens_seen"] == want[step]["n_tokens_seen"]
