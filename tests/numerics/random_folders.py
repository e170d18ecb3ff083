"""Folders of random tiny models with random training settings, and what must come of them: `python random_folders.py OUT SEED...`

`--bfloat16` before OUT: the same models, computing in bfloat16.
"""
import json
import math
import random
import sys
from pathlib import Path

import torch
from reference import KINDS, compute, is_expert_bias, write_expected
from reference_model import IGNORED
from safetensors.torch import save_file

# Where the gap between a taken and a left expert is below what rounding moves it by, another one may rightly be taken.
LEAST_MARGIN = {"genuine": 2e-4, "fp32experts": 2e-6}
# With everything in bfloat16: a score is off by up to 2^-9 of itself for each of a few roundings on its way.
LEAST_MARGIN_OF_BFLOAT16 = 1e-2


def llama3(rng):
    heads, head_dim = rng.choice([1, 2, 3, 4, 6]), rng.choice([2, 4, 8, 10, 16])
    arch = {"dim": heads * head_dim, "n_layers": rng.choice([1, 2, 3]), "n_heads": heads,
            "n_kv_heads": rng.choice([None, *(k for k in range(1, heads + 1) if heads % k == 0)]),
            "hidden_dim": rng.choice([5, 24, 40, 96]), "fuse_qkv": rng.random() < 0.7}
    if rng.random() < 0.4:
        arch["enable_weight_tying"] = True
    rope = {"theta": rng.choice([100.0, 10000.0, 500000.0])}
    if rng.random() < 0.6:
        rope |= {"scaling": "llama", "scaling_factor": rng.choice([2.0, 8.0, 32.0]), "low_freq_factor": 1.0,
                 "high_freq_factor": rng.choice([2.0, 4.0]), "original_max_position_embeddings": rng.choice([16, 64, 8192])}
    return arch, rope


def deepseek_v3(rng):
    layers = rng.choice([1, 2, 3])
    per_group, groups = rng.choice([2, 3, 4]), rng.choice([1, 2, 3, 4])
    limited = rng.randint(1, groups)
    is_grouped = groups > 1 and rng.random() < 0.6
    experts = per_group * groups
    arch = {"dim": rng.choice([16, 24, 40, 64]), "n_layers": layers, "n_dense_layers": rng.choice([0, 0, layers // 2, layers // 2, layers]),
            "n_heads": rng.choice([1, 2, 3, 5]), "q_lora_rank": rng.choice([0, 6, 24]), "kv_lora_rank": rng.choice([4, 10, 32]),
            "qk_nope_head_dim": rng.choice([3, 8, 16, 20]), "qk_rope_head_dim": rng.choice([2, 4, 8, 12]),
            "v_head_dim": rng.choice([4, 7, 16, 24]), "mscale": rng.choice([0.7, 1.0, 1.3]),
            "dense_hidden_dim": rng.choice([8, 30, 64]), "moe_hidden_dim": rng.choice([8, 16, 24]), "num_experts": experts,
            "num_shared_experts": rng.choice([1, 2, 3]), "router_top_k": rng.randint(1, min(4, experts - 1)),
            "router_score_func": rng.choice(["softmax", "sigmoid"]), "router_route_norm": rng.random() < 0.5,
            "router_route_scale": rng.choice([1.0, 2.5]), "load_balance_coeff": rng.choice([1e-3, 1e-3, 2e-2, None]),
            "num_mtp_layers": rng.choice([0, 0, 1, 2])}
    if is_grouped:
        arch |= {"router_num_expert_groups": groups, "router_num_limited_groups": limited,
                 "router_top_k": rng.randint(1, min(4, limited * per_group - (limited == groups)))}
    rope = {"theta": rng.choice([500.0, 10000.0])}
    if rng.random() < 0.7:
        rope |= {"scaling": "yarn", "rope_factor": rng.choice([1.0, 4.0, 40.0]), "beta_fast": rng.choice([8.0, 32.0]), "beta_slow": 1.0,
                 "original_seq_len": rng.choice([24, 100, 4096])}
    return arch, rope


def training(rng, is_chunked):
    length = rng.choice([5, 7, 9, 16, 21, 33, 40, 45])
    batch = rng.choice([1, 2, 3])
    train = {"local_batch_size": batch, "global_batch_size": batch * rng.choice([1, 1, 2, 3]), "seq_len": length,
             "steps": rng.choice([4, 6, 8]), "max_norm": rng.choice([0.1, 1.0, 100.0]), "mtp_scale": rng.choice([0.3, 1.0]),
             "adamw": {"lr": rng.choice([5e-4, 2e-3]), "betas": rng.choice([[0.9, 0.95], [0.8, 0.99]]), "eps": rng.choice([1e-8, 1e-6]),
                       "weight_decay": rng.choice([0.0, 0.1, 0.5])},
             "lr_scheduler": {"warmup_steps": rng.choice([0, 1, 3, 20]), "decay_ratio": rng.choice([None, 0.3, 0.8]),
                              "decay_type": rng.choice(["linear", "sqrt", "cosine"]), "min_lr_factor": rng.choice([0.0, 0.1])}}
    if is_chunked:
        train["loss_chunks"] = rng.choice([k for k in range(1, 9) if length % k == 0])
    return train


def random_variant(seed):
    rng = random.Random(seed)
    kind = rng.choice(["llama3", "deepseek_v3", "deepseek_v3"])
    arch, rope = (llama3 if kind == "llama3" else deepseek_v3)(rng)
    arch["vocab_size"] = rng.choice([17, 50, 96])
    return {"name": f"random_{seed}", "model": kind, "seed": seed, "weight_seed": seed, "data_seed": seed, "num_batches": rng.choice([1, 3, 4]),
            "ignored_label_fraction": rng.choice([0.0, 0.1, 0.5]), "arch": arch, "rope": rope,
            "train": training(rng, not arch.get("num_mtp_layers"))}


def in_bfloat16(variant):
    """On few tokens, since each must keep its margin."""
    train = variant["train"]
    train |= {"mixed_precision_param": "bfloat16", "seq_len": 9, "local_batch_size": 1,
              "global_batch_size": train["global_batch_size"] // train["local_batch_size"]}
    if "loss_chunks" in train:
        train["loss_chunks"] = 3
    return variant | {"name": f"{variant['name']}_bfloat16"}


def is_bfloat16(variant):
    return variant["train"].get("mixed_precision_param") == "bfloat16"


def kinds(variant):
    """The experts' dtype is a matter of its own only where the rest is in float32."""
    return ("genuine",) if variant["model"] == "llama3" or is_bfloat16(variant) else tuple(KINDS)


def shapes(variant):
    """Names and shapes of what is stored, biases of experts included."""
    a = variant["arch"]
    out = {"tok_embeddings.weight": (a["vocab_size"], a["dim"]), "norm.weight": (a["dim"],), "lm_head.weight": (a["vocab_size"], a["dim"])}
    blocks = [(f"layers.{i}", i) for i in range(a["n_layers"])]
    blocks += [(f"mtp_layers.{i}", a["n_layers"] - 1) for i in range(a.get("num_mtp_layers", 0))]
    for name, layer in blocks:
        of_attention = mla_shapes(a) if variant["model"] == "deepseek_v3" else grouped_query_shapes(a)
        out |= {f"{name}.attention.{part}.weight": shape for part, shape in of_attention.items()}
        out |= {f"{name}.{norm}.weight": (a["dim"],) for norm in ("attention_norm", "ffn_norm")}
        if variant["model"] == "llama3" or layer < a["n_dense_layers"]:
            out |= swiglu_shapes(f"{name}.feed_forward", a["dim"], a.get("hidden_dim") or a["dense_hidden_dim"])
        else:
            out |= expert_shapes(f"{name}.moe", a)
        if name.startswith("mtp"):
            out |= {f"{name}.{norm}.weight": (a["dim"],) for norm in ("enorm", "hnorm", "mtp_norm")}
            out[f"{name}.eh_proj.weight"] = (a["dim"], 2 * a["dim"])
    return out


def swiglu_shapes(name, dim, hidden):
    return {f"{name}.w1.weight": (hidden, dim), f"{name}.w2.weight": (dim, hidden), f"{name}.w3.weight": (hidden, dim)}


def expert_shapes(name, a):
    wide, narrow = (a["num_experts"], a["moe_hidden_dim"], a["dim"]), (a["num_experts"], a["dim"], a["moe_hidden_dim"])
    inner = f"{name}.routed_experts.inner_experts"
    bias = {} if a["load_balance_coeff"] is None else {f"{name}.expert_bias_E": (a["num_experts"],)}
    return {f"{inner}.w1_EFD": wide, f"{inner}.w2_EDF": narrow, f"{inner}.w3_EFD": wide,
            f"{name}.router.gate.weight": (a["num_experts"], a["dim"]), **bias,
            **swiglu_shapes(f"{name}.shared_experts", a["dim"], a["moe_hidden_dim"] * a["num_shared_experts"])}


def mla_shapes(a):
    q, rank = a["n_heads"] * (a["qk_nope_head_dim"] + a["qk_rope_head_dim"]), a["q_lora_rank"]
    queries = {"wq_a": (rank, a["dim"]), "q_norm": (rank,), "wq_b": (q, rank)} if rank else {"wq": (q, a["dim"])}
    return {**queries, "wkv_a": (a["kv_lora_rank"] + a["qk_rope_head_dim"], a["dim"]), "kv_norm": (a["kv_lora_rank"],),
            "wkv_b": (a["n_heads"] * (a["qk_nope_head_dim"] + a["v_head_dim"]), a["kv_lora_rank"]),
            "wo": (a["dim"], a["n_heads"] * a["v_head_dim"])}


def grouped_query_shapes(a):
    kv = (a.get("n_kv_heads") or a["n_heads"]) * (a["dim"] // a["n_heads"])
    return {"qkv_linear.wq": (a["dim"], a["dim"]), "qkv_linear.wk": (kv, a["dim"]), "qkv_linear.wv": (kv, a["dim"]), "wo": (a["dim"], a["dim"])}


def random_weights(variant):
    """Away from the special values of an initialisation, so that every term counts."""
    generator = torch.Generator().manual_seed(variant["weight_seed"])
    weights = {}
    for name, shape in shapes(variant).items():
        noise = torch.randn(shape, generator=generator)
        if is_expert_bias(name):
            weights[name] = 0.03 * noise
        elif len(shape) == 1:
            weights[name] = 1 + 0.1 * noise
        else:
            weights[name] = noise * {"tok_embeddings.weight": 0.6, "lm_head.weight": 0.15}.get(name, 0.35 if "gate" in name else 0.08)
    if variant["arch"].get("enable_weight_tying"):
        weights["tok_embeddings.weight"] = weights["lm_head.weight"].clone()
    return weights


def random_batches(variant):
    """Rows of documents of any length from 1; every token is followed by one of three."""
    rng = random.Random(variant["data_seed"])
    train, vocab = variant["train"], variant["arch"]["vocab_size"]
    successors = [[rng.randrange(vocab) for _ in range(3)] for _ in range(vocab)]
    batches = {}
    for number in range(variant["num_batches"]):
        rows = [random_row(rng, train["seq_len"], successors, variant["ignored_label_fraction"]) for _ in range(train["local_batch_size"])]
        for kind, values in zip(("tokens", "labels", "positions"), zip(*rows)):
            batches[f"{kind}.{number}"] = torch.tensor(values, dtype=torch.int32)
    return batches


def random_row(rng, length, successors, ignored_fraction):
    starts = {0} | {rng.randrange(length) for _ in range(rng.choice([0, 1, 3]))}
    tokens, labels, positions = [], [], []
    for i in range(length):
        is_start = i in starts
        tokens.append(rng.randrange(len(successors)) if is_start else following)
        following = rng.choice(successors[tokens[-1]])
        labels.append(IGNORED if i and rng.random() < ignored_fraction else following)
        positions.append(0 if is_start else positions[-1] + 1)
    return tokens, labels, positions


def least_margin(result, kind):
    """Of the steps in which experts must be the reference's: all in float32, and the first, before noise has grown, in bfloat16."""
    steps = result["steps"] if kind == "fp32experts" else result["steps"][:1]
    return min([*(s.get("router_min_margin", math.inf) for s in steps), *result["forward"]["router_min_margin"].values()])


def write_folder(folder, variant, num_tries=40):
    """Writes a folder of a variant, with other data or fewer tokens until no routing decision is a close call."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    save_file(random_weights(variant), folder / "weights.safetensors")
    for _ in range(num_tries):
        save_file(random_batches(variant), folder / "batches.safetensors")
        (folder / "variant.json").write_text(json.dumps(variant, indent=1))
        least = {"genuine": LEAST_MARGIN_OF_BFLOAT16} if is_bfloat16(variant) else LEAST_MARGIN
        if all(least_margin(compute(folder, kind)[0], kind) > margin for kind, margin in least.items()):
            write_expected(folder, kinds(variant))
            return folder
        variant["data_seed"] += 1000
    raise RuntimeError(f"{variant['name']}: every choice of data has close calls")


if __name__ == "__main__":
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    change = in_bfloat16 if arguments[0] == "--bfloat16" else (lambda variant: variant)
    out, *seeds = arguments[arguments[0] == "--bfloat16":]
    for seed in map(int, seeds):
        variant = change(random_variant(seed))
        write_folder(Path(out) / variant["name"], variant)
