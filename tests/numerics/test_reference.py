"""The reference that random configurations are held against gives what TorchTitan gave."""
import json
from pathlib import Path

import pytest
import torch
from reference import KINDS, compute
from safetensors.torch import load_file

DATA = Path(__file__).resolve().parents[1] / "data/numerics"
FOLDERS = ["llama3", "deepseek_v3/a_sigmoid_groups", "deepseek_v3/b_softmax", "deepseek_v3_mtp"]

# Absolute for logits and losses, relative for gradient norms.
TOLERANCES = {"genuine": {"logits": 1e-2, "first": 5e-4, "curve": 3e-3, "norm": 3e-3},
              "fp32experts": {"logits": 5e-5, "first": 1e-5, "curve": 1e-4, "norm": 1e-4}}


def cases():
    return [(f, k) for f in FOLDERS for k in KINDS if (f, k) != ("llama3", "fp32experts")]


@pytest.mark.parametrize("name, kind", cases())
def test_gives_what_torchtitan_gave(name, kind):
    torch.set_num_threads(1)
    folder = DATA / name
    want, want_tensors = json.loads((folder / f"expected{KINDS[kind]}.json").read_text()), load_file(folder / f"expected{KINDS[kind]}.safetensors")
    got, tensors = compute(folder, kind)
    tolerance = TOLERANCES["fp32experts" if name == "llama3" else kind]

    assert tensors.keys() == want_tensors.keys()
    for logits in (n for n in tensors if "logits" in n):
        assert (tensors[logits] - want_tensors[logits]).abs().max() < tolerance["logits"]
    assert got["lr_used"] == pytest.approx(want["lr_used"], rel=1e-12)
    assert got["loss_curve"][0] == pytest.approx(want["loss_curve"][0], abs=tolerance["first"], rel=0)
    assert got["loss_curve"] == pytest.approx(want["loss_curve"], abs=tolerance["curve"], rel=0)
    assert got["grad_norm_curve"] == pytest.approx(want["grad_norm_curve"], rel=tolerance["norm"])
    exact = want["steps"] if kind == "fp32experts" else want["steps"][:1]
    for ours, theirs in zip(got["steps"], exact):
        assert ours["tokens_per_expert"] == theirs["tokens_per_expert"]
        for block, bias in theirs.get("expert_bias", {}).items():
            assert ours["expert_bias"][block] == pytest.approx(bias, abs=1e-7)
    for ours, theirs in zip(got["steps"], want["steps"]):
        assert ours.keys() == theirs.keys() and ours["ntokens_seen"] == theirs["ntokens_seen"]
        for norms in ("param_grad_norms", "param_norms_after"):
            assert ours.get(norms, {}) == pytest.approx(theirs.get(norms, {}), rel=tolerance["norm"])
