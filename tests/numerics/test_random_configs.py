"""Models and settings that nobody chose: the trainer's code gives what the reference gives, and says so when it does not."""
import json
import os
import re
import shutil
import subprocess

import pytest
import torch
from random_folders import in_bfloat16, random_variant, write_folder
from safetensors.torch import load_file, save_file
from tool import DATA, environment

SEEDS = range(1, 25)
BFLOAT16_SEEDS = (1, 4, 5, 7, 9, 12)  # of those whose choices of experts keep their margin in bfloat16


def check_numerics(*folders):
    """(exit status, passed, failed, text) of the program that compares folders."""
    program = os.environ.get("MILEPOST_CHECK_NUMERICS", str(DATA.parents[1] / "build/dev/train/check_numerics"))
    done = subprocess.run([program, *map(str, folders)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
                          timeout=240)
    count = re.search(r"(\d+) passed, (\d+) failed\s*$", done.stdout)
    passed, failed = (int(n) for n in count.groups()) if count else (0, None)
    return done.returncode, passed, failed, done.stdout


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("random")
    return [write_folder(root / str(seed), random_variant(seed)) for seed in SEEDS]


def test_seeds_cover_what_models_may_have():
    variants = [random_variant(seed) for seed in SEEDS]
    archs = [v["arch"] for v in variants]
    experts = [a for a in archs if a.get("n_dense_layers", 9) < a["n_layers"]]
    for wanted in [any(a.get("enable_weight_tying") for a in archs), any(not a.get("fuse_qkv", True) for a in archs),
                   any(a.get("n_kv_heads") not in (None, a["n_heads"]) for a in archs if "n_kv_heads" in a),
                   any(a["n_dense_layers"] == 0 for a in experts), any(a.get("n_dense_layers") == a["n_layers"] for a in archs),
                   {a["num_mtp_layers"] for a in experts} == {0, 1, 2}, {a["router_score_func"] for a in experts} == {"softmax", "sigmoid"},
                   any("router_num_expert_groups" in a for a in experts), any(a["load_balance_coeff"] is None for a in experts), any(a["q_lora_rank"] == 0 for a in experts),
                   any(v["train"]["seq_len"] % 2 for v in variants), any(v["train"]["global_batch_size"] > v["train"]["local_batch_size"]
                                                                         for v in variants),
                   {v["rope"].get("scaling") for v in variants} == {None, "llama", "yarn"}]:
        assert wanted


def test_all_give_the_references_results(folders):
    status, passed, failed, text = check_numerics(*folders)
    assert (status, failed) == (0, 0), text[-6000:]
    assert passed > 20 * len(folders)


def test_all_give_the_references_results_in_bfloat16(tmp_path):
    torch.set_num_threads(1)
    variants = [in_bfloat16(random_variant(seed)) for seed in BFLOAT16_SEEDS]
    archs = [v["arch"] for v in variants]
    assert {v["model"] for v in variants} == {"llama3", "deepseek_v3"} and any(a.get("num_mtp_layers") for a in archs)
    assert any(a.get("n_dense_layers", 9) < a["n_layers"] for a in archs)
    status, passed, failed, text = check_numerics(*(write_folder(tmp_path / v["name"], v) for v in variants))
    assert (status, failed) == (0, 0), text[-6000:]
    assert passed > 15 * len(variants)


def perturbed_json(folder, change):
    for path in folder.glob("expected*.json"):
        expected = json.loads(path.read_text())
        change(expected)
        path.write_text(json.dumps(expected))


def perturbed_tensor(folder, name, by):
    tensors = load_file(folder / "expected.safetensors")
    tensors[name].view(-1)[-1] += by
    save_file(tensors, folder / "expected.safetensors")


def later_loss(expected):
    expected["loss_curve"][-1] += 0.05
    expected["steps"][-1]["loss"] += 0.05


def first_norm(expected):
    expected["grad_norm_curve"][0] *= 1.02
    expected["steps"][0]["grad_norm"] *= 1.02


def one_count(expected):
    counts = expected["steps"][0]["tokens_per_expert"]["layers.1"]
    counts[0], counts[1] = counts[0] + 1, counts[1] - 1


def one_gradient(expected):
    norms = expected["steps"][0]["param_grad_norms"]
    norms["norm.weight"] *= 1.05


def learning_rate(expected):
    expected["lr_used"][1] *= 1.01
    expected["steps"][1]["lr"][0] *= 1.01


CHANGES = {
    "loss": lambda folder: perturbed_json(folder, later_loss),
    "norm": lambda folder: perturbed_json(folder, first_norm),
    "count": lambda folder: perturbed_json(folder, one_count),
    "gradient": lambda folder: perturbed_json(folder, one_gradient),
    "rate": lambda folder: perturbed_json(folder, learning_rate),
    "logits": lambda folder: perturbed_tensor(folder, "logits", 0.1),
    "hidden": lambda folder: perturbed_tensor(folder, "hidden.layers.0", 0.5),
    "weights": lambda folder: perturbed_tensor(folder, "router.layers.1.weights", 0.05),
    "experts": lambda folder: perturbed_tensor(folder, "router.layers.1.expert_ids", 1),
}


@pytest.fixture
def fixture(tmp_path):
    """A copy to spoil."""
    shutil.copytree(DATA / "numerics/deepseek_v3/a_sigmoid_groups", tmp_path / "case")
    return tmp_path / "case"


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_expectation_fails(fixture, change):
    CHANGES[change](fixture)
    status, passed, failed, text = check_numerics(fixture)
    assert status != 0 and failed and passed, text[-3000:]


def without(name):
    return lambda folder: (folder / name).unlink()


def with_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def without_a_weight(folder):
    weights = load_file(folder / "weights.safetensors")
    del weights["layers.1.attention.wo.weight"]
    save_file(weights, folder / "weights.safetensors")


def with_another_shape(folder):
    weights = load_file(folder / "weights.safetensors")
    weights["layers.1.attention.wo.weight"] = torch.zeros(3, 5)
    save_file(weights, folder / "weights.safetensors")


def with_a_token_beyond_the_vocabulary(folder):
    batches = load_file(folder / "batches.safetensors")
    batches["tokens.0"][0, 0] = 5000
    save_file(batches, folder / "batches.safetensors")


DAMAGE = {
    "no variant": (without("variant.json"), "variant.json"),
    "no weights": (without("weights.safetensors"), "weights.safetensors"),
    "no batches": (without("batches.safetensors"), "batches.safetensors"),
    "variant is no JSON": (with_text("variant.json", "{"), "variant.json"),
    "variant without a model": (with_text("variant.json", "{}"), "model"),
    "expectation is no JSON": (with_text("expected.json", "["), "expected.json"),
    "a weight is missing": (without_a_weight, "layers.1.attention.wo.weight"),
    "a weight of another shape": (with_another_shape, "layers.1.attention.wo.weight"),
    "a token beyond the vocabulary": (with_a_token_beyond_the_vocabulary, "vocabulary"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_malformed_folder_is_named(fixture, damage):
    spoil, named = DAMAGE[damage]
    spoil(fixture)
    status, _, _, text = check_numerics(fixture)
    assert status > 0 and named in text, text[-3000:]


def test_a_missing_folder_is_named(tmp_path):
    status, _, _, text = check_numerics(tmp_path / "nowhere")
    assert status > 0 and "nowhere" in text
