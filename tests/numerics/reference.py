"""Folders of known results: `python reference.py FOLDER` computes what a variant must give, by the models of reference_model.py.

A folder holds `variant.json` (the model and its training), `weights.safetensors` (starting values by TorchTitan's names),
`batches.safetensors` (`tokens.I`, `labels.I`, `positions.I`) and what is computed from them: `expected.json` and `expected.safetensors`
with the routed experts in bfloat16, `expected_fp32experts.*` with them in float32.
"""
import copy
import json
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from reference_model import IGNORED, Model, shift_left
from safetensors.torch import load_file, save_file

SMALL = 700  # elements of a tensor whose values are kept
KINDS = {"genuine": "", "fp32experts": "_fp32experts"}


def schedule(options, num_steps):
    """Factors of the learning rate, a step each."""
    total = options.get("total_steps") or num_steps
    warmup = min(options.get("warmup_steps", 200), total)
    ratio = options.get("decay_ratio")
    decay = min(round(total * ratio), total - warmup) if ratio is not None else total - warmup
    stable = total + 1 - warmup - decay
    least = options.get("min_lr_factor", 0.0)
    curves = {"linear": lambda p: 1 - p, "sqrt": lambda p: 1 - math.sqrt(p), "cosine": lambda p: 0.5 * (1 + math.cos(math.pi * p))}
    factors = []
    for i in range(num_steps):
        if i < warmup:
            factors.append((i + 1) / warmup)
        elif i < warmup + stable:
            factors.append(1.0)
        else:
            factors.append(least + (1 - least) * curves[options.get("decay_type", "linear")]((i + 1 - warmup - stable) / decay))
    return factors


def loss_sum(outputs, labels, positions, mtp_scale):
    def cross_entropy(logits, of):
        return F.cross_entropy(logits.float().flatten(0, 1), of.flatten(), reduction="sum", ignore_index=IGNORED)
    main = cross_entropy(outputs.logits[0], labels)
    depths = [cross_entropy(logits, shift_left(labels, positions, k, IGNORED)[0]) for k, logits in enumerate(outputs.logits[1:], 1)]
    return main, main + mtp_scale * sum(depths) / len(depths) if depths else main


def is_expert_bias(name):
    return name.endswith("expert_bias_E")


class Run:
    """Parameters as the trainer keeps them: fused projections of llama3 as one, tied weights once."""

    def __init__(self, variant, weights, fp32_experts):
        self.variant, self.train = variant, variant["train"]
        self.model = Model(variant, fp32_experts)
        self.biases = {name: value.clone() for name, value in weights.items() if is_expert_bias(name)}
        values = {name: value.clone() for name, value in weights.items() if not is_expert_bias(name)}
        if variant["model"] == "llama3":
            values = fuse_projections(values, variant["arch"])
        self.tied = variant["arch"].get("enable_weight_tying", False)
        if self.tied:
            del values["lm_head.weight"]
        self.parameters = {name: value.requires_grad_() for name, value in values.items()}
        options = {"lr": 8e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, **self.train["adamw"]}
        self.base_lr = options["lr"]
        self.optimizer = torch.optim.AdamW(self.parameters.values(), **{**options, "betas": tuple(options["betas"])}, foreach=False)
        self.compute_dtype = getattr(torch, self.train.get("mixed_precision_param", "float32"))

    def forward(self, tokens, positions, training):
        values = {name: value.to(self.compute_dtype) for name, value in self.parameters.items()} | self.biases
        if self.tied:
            values["lm_head.weight"] = values["tok_embeddings.weight"]
        return self.model.forward(values, tokens, positions, training)

    def step(self, batches, lr):
        """Trains on the micro-batches of one step. Returns what is recorded of it."""
        valid = sum(int((labels != IGNORED).sum()) for _, labels, _ in batches)
        total, margin = 0.0, math.inf
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        for tokens, labels, positions in batches:
            outputs = self.forward(tokens, positions, training=True)
            loss = loss_sum(outputs, labels, positions, self.train.get("mtp_scale", 0.3))[1] / valid
            loss.backward()
            total += float(loss.detach())
            margin = min([margin, *(r.margin for r in outputs.routing.values())])
        record = {"tokens_per_expert": {block: [int(x) for x in counts] for block, counts in self.model.counts.items()}}
        self.gradients = {name: p.grad.clone() for name, p in self.parameters.items()}
        norm = float(torch.stack([g.norm() for g in self.gradients.values()]).norm())
        factor = min(1.0, self.train.get("max_norm", 1.0) / (norm + 1e-6))
        for parameter in self.parameters.values():
            parameter.grad.mul_(factor)
        self.balance()
        self.optimizer.step()
        record.update(loss=total, grad_norm=norm, lr=[lr])
        if outputs.routing:
            record["expert_bias"] = {name.removesuffix(".moe.expert_bias_E"): bias.tolist() for name, bias in self.biases.items()}
            record["router_min_margin"] = margin
        return record

    def balance(self):
        """Towards even load in the main layers; those of multi-token prediction go on counting and keep their bias."""
        coefficient = self.variant["arch"].get("load_balance_coeff", 1e-3)
        for name, bias in self.biases.items():
            if name.startswith("layers."):
                counts = self.model.counts.pop(name.removesuffix(".moe.expert_bias_E"))
                delta = coefficient * (counts.mean() - counts).sign()
                bias += delta - delta.mean()


def fuse_projections(values, arch):
    """One weight instead of wq, wk, wv: for each key head its query heads' rows, the key's, the value's."""
    if not arch.get("fuse_qkv", True):
        return values
    dim = arch["dim"] // arch["n_heads"]
    out = {}
    for name, value in values.items():
        prefix, _, part = name.rpartition("qkv_linear.")
        if part == "wq.weight":
            kv_heads = values[f"{prefix}qkv_linear.wk.weight"].shape[0] // dim
            parts = [values[f"{prefix}qkv_linear.{w}.weight"].reshape(kv_heads, -1, dim, arch["dim"]) for w in ("wq", "wk", "wv")]
            out[f"{prefix}qkv_linear.wqkv.weight"] = torch.cat(parts, 1).reshape(-1, arch["dim"])
        elif part not in ("wk.weight", "wv.weight"):
            out[name] = value
    return out


def read_batches(folder):
    stored = load_file(folder / "batches.safetensors")
    return [tuple(stored[f"{kind}.{i}"].long() for kind in ("tokens", "labels", "positions")) for i in range(len(stored) // 3)]


def forward_results(run, batch):
    """What the first batch gives before any step: (record, tensors)."""
    tokens, labels, positions = batch
    with torch.no_grad():
        outputs = run.forward(tokens, positions, training=False)
        main, total = (float(x) for x in loss_sum(outputs, labels, positions, run.train.get("mtp_scale", 0.3)))
    valid = int((labels != IGNORED).sum())
    record = {"loss_sum": main, "valid_tokens": valid, "loss_mean": main / valid,
              "router_min_margin": {block: r.margin for block, r in outputs.routing.items()}}
    if run.model.num_depths:
        record["loss_with_mtp"] = total / valid
        record["mtp_loss"] = (total - main) / valid / run.train.get("mtp_scale", 0.3)
    tensors = {"logits": outputs.logits[0], **{f"mtp_logits.{k}": t for k, t in enumerate(outputs.logits[1:])}}
    tensors |= {f"hidden.{block}": t for block, t in outputs.hidden.items()}
    for block, routing in outputs.routing.items():
        order = routing.expert_ids.argsort(-1)
        tensors[f"router.{block}.expert_ids"] = routing.expert_ids.gather(-1, order).int()
        tensors[f"router.{block}.weights"] = routing.weights.gather(-1, order)
        tensors[f"router.{block}.scores"] = routing.scores
    return record, {name: t if t.dtype == torch.int32 else t.float() for name, t in tensors.items()}


def compute(folder, kind):
    """(expected.json's value, expected.safetensors' tensors) of a folder's variant, weights and batches."""
    folder = Path(folder)
    variant = json.loads((folder / "variant.json").read_text())
    batches = read_batches(folder)
    run = Run(variant, load_file(folder / "weights.safetensors"), kind == "fp32experts")
    train, result = run.train, {"mode": kind, "steps": []}
    result["forward"], tensors = forward_results(run, batches[0])
    micro_steps = max(1, train.get("global_batch_size", -1) // train["local_batch_size"])
    factors = schedule(train["lr_scheduler"], train["steps"])
    for step in range(1, train["steps"] + 1):
        taken = [batches[i % len(batches)] for i in range((step - 1) * micro_steps, step * micro_steps)]
        record = run.step(taken, run.base_lr * factors[step - 1])
        record.update(step=step, ntokens_seen=step * micro_steps * train["local_batch_size"] * train["seq_len"])
        if step in (1, 2):
            record["param_grad_norms"] = {name: float(g.double().norm()) for name, g in run.gradients.items()}
        if step == 1:
            tensors |= {f"grad1.{name}": g for name, g in run.gradients.items() if g.numel() <= SMALL}
        if step in (1, train["steps"]):
            record["param_norms_after"] = {name: float(p.detach().double().norm()) for name, p in run.parameters.items()}
        result["steps"].append(record)
    tensors |= {f"param{train['steps']}.{name}": p.detach() for name, p in run.parameters.items()
                if p.numel() <= SMALL and train["steps"] > 1}
    for curve, key in (("loss_curve", "loss"), ("grad_norm_curve", "grad_norm")):
        result[curve] = [record[key] for record in result["steps"]]
    result["lr_used"] = [record["lr"][0] for record in result["steps"]]
    if variant.get("num_hidden", 1) == 0:
        tensors = {name: t for name, t in tensors.items() if not name.startswith("hidden.layers")}
    return result, tensors if kind == "genuine" else {"logits": tensors["logits"]}


def write_expected(folder, kinds=tuple(KINDS)):
    for kind in kinds:
        result, tensors = compute(folder, kind)
        (Path(folder) / f"expected{KINDS[kind]}.json").write_text(json.dumps(result))
        save_file({name: copy.copy(t).contiguous() for name, t in tensors.items()}, Path(folder) / f"expected{KINDS[kind]}.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for argument in sys.argv[1:]:
        write_expected(Path(argument))
