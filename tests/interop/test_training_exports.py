"""From training to transformers: a tiny model is trained, its checkpoint exported, and transformers computes with it what our model does."""
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tool import DATA, environment, milepost
from transformers_logits import load_model

ROOT = DATA.parents[1]
VOCABULARY = 2048

# The same sizes three times: as a configuration file of the trainer, as a variant of a numerics folder, and as transformers' config.json.
LLAMA = {
    "config": {"dim": 48, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "head_dim": 8, "hidden_dim": 64,
               "rope": {"theta": 10000.0, "max_seq_len": 1024, "scaling": "llama", "factor": 8.0, "original_max_seq_len": 32}},
    "variant": ({"dim": 48, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 64},
                {"theta": 10000.0, "scaling": "llama", "scaling_factor": 8.0, "original_max_position_embeddings": 32}),
    "hf": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
           "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 1024,
           "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                            "original_max_position_embeddings": 32}},
}
DEEPSEEK = {
    "config": {"dim": 48, "n_layers": 3, "n_dense_layers": 1, "n_heads": 3, "q_lora_rank": 16, "kv_lora_rank": 24, "qk_nope_head_dim": 12,
               "qk_rope_head_dim": 8, "v_head_dim": 16, "mscale": 1.0, "hidden_dim": 64, "moe_hidden_dim": 16, "num_experts": 8,
               "num_shared_experts": 1, "top_k": 3, "score_func": "sigmoid", "num_expert_groups": 4, "num_limited_groups": 2,
               "route_scale": 2.5, "route_norm": True, "num_mtp_layers": 0, "fp32_experts": True,
               "rope": {"theta": 10000.0, "max_seq_len": 1024, "scaling": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                        "original_max_seq_len": 128}},
    "variant": ({"dim": 48, "n_layers": 3, "n_dense_layers": 1, "n_heads": 3, "q_lora_rank": 16, "kv_lora_rank": 24, "qk_nope_head_dim": 12,
                 "qk_rope_head_dim": 8, "v_head_dim": 16, "mscale": 1.0, "dense_hidden_dim": 64, "moe_hidden_dim": 16, "num_experts": 8,
                 "num_shared_experts": 1, "router_top_k": 3, "router_score_func": "sigmoid", "router_num_expert_groups": 4,
                 "router_num_limited_groups": 2, "router_route_scale": 2.5, "router_route_norm": True},
                {"theta": 10000.0, "scaling": "yarn", "rope_factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_seq_len": 128}),
    "hf": {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 48, "intermediate_size": 64,
           "moe_intermediate_size": 16, "num_hidden_layers": 3, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_attention_heads": 3,
           "num_key_value_heads": 3, "q_lora_rank": 16, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16,
           "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
           "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "max_position_embeddings": 1024,
           "rope_interleave": True,
           "rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 128, "beta_fast": 32.0, "beta_slow": 1.0,
                            "mscale": 1.0, "mscale_all_dim": 1.0}},
}
MODELS = {"llama3": LLAMA, "deepseek_v3": DEEPSEEK}
OF_ALL = {"vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
          "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "float32"}


def train(name, folder, *flags):
    """The step folder that some steps of training leave."""
    model = {"name": name, "flavor": "", "vocab_size": VOCABULARY, "tied_embeddings": False, **MODELS[name]["config"]}
    (folder / "tiny.json").write_text(json.dumps({"model": model}))
    program = os.environ.get("MILEPOST_TRAIN", str(ROOT / "build/dev/train/milepost-train"))
    command = [program, "--module", name, "--config", f"{name}_debugmodel", "--config-file", folder / "tiny.json", "--dump-folder", folder / "out",
               "--hf-assets-path", ROOT / "tests/assets/tokenizer", "--dataloader.dataset-path", ROOT / "tests/assets/c4_test",
               "--training.local-batch-size", "2", "--training.seq-len", "64", "--training.steps", "6", "--training.mixed-precision-param",
               "float32", "--checkpoint.enable", "--checkpoint.interval", "3", *flags]
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-4000:]
    return folder / "out/checkpoint"


def transformers_results(hf, tokens):
    model = load_model(hf)
    with torch.no_grad():
        return model(tokens).logits


def write_numerics(folder, name, weights, tokens, logits):
    """A numerics folder that expects transformers' logits, and no training."""
    labels = torch.roll(tokens, -1, 1)
    arch, rope = MODELS[name]["variant"]
    folder.mkdir()
    loss = float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
    train = {"local_batch_size": tokens.shape[0], "seq_len": tokens.shape[1], "steps": 0, "adamw": {"lr": 1e-3}, "lr_scheduler": {"warmup_steps": 0}}
    variant = {"name": name, "model": name, "num_batches": 1, "arch": {"vocab_size": VOCABULARY, **arch}, "rope": rope, "train": train}
    (folder / "variant.json").write_text(json.dumps(variant))
    save_file(weights, folder / "weights.safetensors")
    save_file({"tokens.0": tokens.int(), "labels.0": labels.int(),
               "positions.0": torch.arange(tokens.shape[1]).expand_as(tokens).int().contiguous()}, folder / "batches.safetensors")
    suffix = "_fp32experts" if name == "deepseek_v3" else ""
    forward = {"loss_sum": loss, "valid_tokens": tokens.numel(), "loss_mean": loss / tokens.numel()}
    (folder / f"expected{suffix}.json").write_text(json.dumps(
        {"mode": "fp32experts" if suffix else "genuine", "forward": forward, "steps": [], "loss_curve": [], "grad_norm_curve": [], "lr_used": []}))
    save_file({"logits": logits.contiguous()}, folder / f"expected{suffix}.safetensors")


def check_numerics(folder):
    program = os.environ.get("MILEPOST_CHECK_NUMERICS", str(ROOT / "build/dev/train/check_numerics"))
    return subprocess.run([program, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), timeout=200)


def check_logits(name, hf, tmp_path, seed):
    """That transformers computes with a folder what our model does with its weights."""
    milepost("import", hf, tmp_path / "back")
    milepost("convert", tmp_path / "back", tmp_path / "native", "--to", "safetensors")
    weights = {n: t for f in Path(tmp_path / "native").glob("*.safetensors") for n, t in load_file(f).items()}
    tokens = torch.randint(0, 2000, (3, 48), generator=torch.Generator().manual_seed(seed))
    write_numerics(tmp_path / "case", name, weights, tokens, transformers_results(hf, tokens))
    done = check_numerics(tmp_path / "case")
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stdout[-4000:]


@pytest.mark.parametrize("step", [3, 6])
@pytest.mark.parametrize("name", MODELS)
def test_transformers_computes_our_logits(name, step, tmp_path):
    """From a whole training state, and from the last step's, which is the model alone."""
    checkpoint = train(name, tmp_path) / f"step-{step}"
    for command in ("inspect", "verify"):
        milepost(command, checkpoint)
    (tmp_path / "config.json").write_text(json.dumps({**OF_ALL, **MODELS[name]["hf"]}))
    milepost("export", checkpoint, tmp_path / "hf", "--config", tmp_path / "config.json")
    check_logits(name, tmp_path / "hf", tmp_path, seed=step)


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_what_the_last_step_saved(name, tmp_path):
    """With the config.json that the trainer wrote."""
    flags = ("--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf")
    check_logits(name, train(name, tmp_path, *flags) / "step-6", tmp_path, seed=1)


def test_steps_of_a_run_differ_and_the_tool_says_where(tmp_path):
    checkpoint = train("llama3", tmp_path)
    assert milepost("diff", checkpoint / "step-3", checkpoint / "step-3").status == 0
    assert "lm_head.weight" in milepost("diff", checkpoint / "step-3", checkpoint / "step-6", status=1).text
