"""Configurations that no fixture has, trained by TorchTitan's own Trainer: our trainer and the reference in tests/numerics give its results."""
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchtitan_models

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "numerics"))
from random_folders import random_variant, write_folder
from reference import KINDS, compute
from test_random_configs import check_numerics

ROUTED = {"dim": 48, "n_layers": 3, "n_dense_layers": 0, "n_heads": 3, "q_lora_rank": 0, "kv_lora_rank": 24, "qk_nope_head_dim": 12,
          "qk_rope_head_dim": 4, "v_head_dim": 20, "mscale": 0.7, "dense_hidden_dim": 40, "moe_hidden_dim": 24, "num_experts": 10,
          "num_shared_experts": 1, "router_top_k": 3, "router_score_func": "sigmoid", "router_num_expert_groups": 5,
          "router_num_limited_groups": 2, "router_route_norm": True, "router_route_scale": 1.7, "load_balance_coeff": 0.004, "vocab_size": 60}
YARN = {"theta": 5000.0, "scaling": "yarn", "rope_factor": 8.0, "beta_fast": 16.0, "beta_slow": 1.0, "original_seq_len": 20}
TIED = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 3, "hidden_dim": 72, "enable_weight_tying": True, "vocab_size": 60}
UNFUSED = {**TIED, "enable_weight_tying": False, "fuse_qkv": False, "n_kv_heads": 1}
CASES = {
    "routed": ("deepseek_v3", ROUTED, YARN, 1), "softmax": ("deepseek_v3", {**ROUTED, "router_score_func": "softmax", "q_lora_rank": 16}, YARN, 2),
    "mtp": ("deepseek_v3", {**ROUTED, "n_dense_layers": 1, "num_mtp_layers": 1}, {"theta": 5000.0}, 1),
    "dense": ("deepseek_v3", {**ROUTED, "n_dense_layers": 3, "num_mtp_layers": 2}, YARN, 1),
    "tied": ("llama3", TIED, {"theta": 5000.0, "scaling": "llama", "original_max_position_embeddings": 40}, 2),
    "unfused": ("llama3", UNFUSED, {"theta": 5000.0}, 1),
}


@pytest.fixture(scope="module", autouse=True)
def titan():
    torchtitan_models.prepare()


def variant_of(case):
    model, arch, rope, num_micro_batches = CASES[case]
    variant = {**random_variant(1), "name": case, "model": model, "arch": arch, "rope": rope, "num_batches": 3, "ignored_label_fraction": 0.1}
    variant["train"] = {"local_batch_size": 2, "global_batch_size": 2 * num_micro_batches, "seq_len": 39, "loss_chunks": 3, "steps": 4,
                        "max_norm": 0.7, "adamw": {"lr": 1e-3, "betas": [0.85, 0.97], "weight_decay": 0.3},
                        "lr_scheduler": {"warmup_steps": 2, "decay_ratio": 0.6, "decay_type": "cosine", "min_lr_factor": 0.2}}
    return variant


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """By case, with the expectations of the reference replaced by torchtitan's."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("titan")
    folders = {case: write_folder(root / case, variant_of(case)) for case in CASES}
    command = [sys.executable, str(HERE / "titan_expectations.py"), *map(str, folders.values())]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    return folders


@pytest.mark.parametrize("case", CASES)
def test_the_reference_agrees(folders, case):
    folder = folders[case]
    for kind, suffix in KINDS.items():
        if (folder / f"expected{suffix}.json").exists():
            want, (got, _) = json.loads((folder / f"expected{suffix}.json").read_text()), compute(folder, kind)
            is_tight = kind == "fp32experts" or CASES[case][0] == "llama3"
            assert got["loss_curve"] == pytest.approx(want["loss_curve"], abs=1e-4 if is_tight else 3e-3, rel=0)
            assert got["grad_norm_curve"] == pytest.approx(want["grad_norm_curve"], rel=1e-4 if is_tight else 3e-3)
            assert got["lr_used"] == pytest.approx(want["lr_used"], rel=1e-9)
            assert got["steps"][0]["tokens_per_expert"] == want["steps"][0]["tokens_per_expert"]
            assert got["steps"][0]["param_grad_norms"].keys() == want["steps"][0]["param_grad_norms"].keys()


@pytest.mark.parametrize("case", CASES)
def test_our_trainer_agrees(folders, case):
    status, passed, failed, text = check_numerics(folders[case])
    assert (status, failed) == (0, 0) and passed > 15, text[-6000:]
