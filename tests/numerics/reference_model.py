"""Llama 3 and DeepSeek-V3 in plain eager PyTorch: another writing of the models that the trainer has, to compare it with.

Parameters are a dictionary by TorchTitan's names, so nothing here knows of modules. Attention is a masked softmax over all pairs, experts
are a loop. Shapes: B sequences, L positions, D model, N heads, H head dimension, E experts, K experts a token.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F

EPSILON = 1e-5
IGNORED = -100


@dataclasses.dataclass
class Routing:
    """What a router decided for one batch, [B, L, K] and [B, L, E]; `margin` is the smallest gap between taken and left."""
    expert_ids: torch.Tensor
    weights: torch.Tensor
    scores: torch.Tensor
    margin: float


@dataclasses.dataclass
class Outputs:
    logits: list  # main, then one a depth of multi-token prediction
    hidden: dict  # by block
    routing: dict  # by block


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight


def swiglu(x, w1, w2, w3):
    return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)


def rope_frequencies(dim, rope):
    inverse = rope["theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = rope.get("scaling", "none")
    if scaling == "llama":
        factor, low, high = rope.get("scaling_factor", 8.0), rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
        turns = rope.get("original_max_position_embeddings", 8192) * inverse / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0, 1)
        return inverse * (share + (1 - share) / factor)
    if scaling == "yarn":
        length = rope.get("original_seq_len", 4096)

        def dimension_of(turns):
            return dim * math.log(length / (2 * math.pi * turns)) / (2 * math.log(rope["theta"]))
        low, high = dimension_of(rope.get("beta_fast", 32.0)), dimension_of(rope.get("beta_slow", 1.0))
        if rope.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        high += 0.001 if low == high else 0
        ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        return inverse * (1 - ramp + ramp / rope.get("rope_factor", 1.0))
    return inverse


def rotate(x_BLNH, angles_BLH2):
    """Turns the pairs of neighbours (2i, 2i + 1) by angle i of their position."""
    cos, sin = angles_BLH2.cos().float()[:, :, None], angles_BLH2.sin().float()[:, :, None]
    even, odd = x_BLNH.float()[..., ::2], x_BLNH.float()[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x_BLNH.dtype)


def attend(q_BLNH, k_BLNH, v_BLNH, scale, visible_BLL):
    scores = torch.einsum("bqnh,bknh->bnqk", q_BLNH, k_BLNH).float() * scale
    weights = scores.masked_fill(~visible_BLL[:, None], float("-inf")).softmax(-1)
    return torch.einsum("bnqk,bknh->bqnh", weights.to(v_BLNH.dtype), v_BLNH)


def visible_pairs(positions_BL):
    """[B, query, key]: keys that are not later and of the same document."""
    document = (positions_BL == 0).cumsum(1)
    length = positions_BL.shape[1]
    return (document[:, :, None] == document[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()


def shift_left(x_BL, positions_BL, distance, fill):
    """Position i gets what lies `distance` later in its document, and `fill` beyond its end. Also says where there was something."""
    out, valid = torch.full_like(x_BL, fill), torch.zeros_like(x_BL, dtype=torch.bool)
    length = x_BL.shape[1] - distance
    if length > 0:
        valid[:, :length] = positions_BL[:, distance:] == positions_BL[:, :length] + distance
        out[:, :length] = torch.where(valid[:, :length], x_BL[:, distance:], out[:, :length])
    return out, valid


class Model:
    """The forward pass of a variant (its `model`, `arch` and `rope`). `counts`: tokens of each expert, by block, added to when training."""

    def __init__(self, variant, fp32_experts):
        self.arch, self.rope = variant["arch"], variant["rope"]
        self.kind = variant["model"]
        self.fp32_experts = fp32_experts
        self.counts = {}
        self.num_depths = self.arch.get("num_mtp_layers", 0)

    def forward(self, values, tokens, positions, training=False):
        """`values`: name -> tensor, parameters in the dtype to compute in and the experts' biases in float32."""
        self.values, self.training = values, training
        self.positions, self.visible = positions, visible_pairs(positions)
        self.hidden, self.routing = {}, {}
        last = F.embedding(tokens, values["tok_embeddings.weight"])
        for layer in range(self.arch["n_layers"]):
            last = self.block(f"layers.{layer}", last)
            self.hidden[f"layers.{layer}"] = last
        outputs = [rms_norm(last, values["norm.weight"])]
        for depth in range(1, self.num_depths + 1):
            name = f"mtp_layers.{depth - 1}"
            ahead, valid = shift_left(tokens, positions, depth, fill=0)
            joined = torch.cat([rms_norm(F.embedding(ahead, values["tok_embeddings.weight"]), values[f"{name}.enorm.weight"]),
                                rms_norm(last * valid[..., None].to(last.dtype), values[f"{name}.hnorm.weight"])], -1)
            last = rms_norm(self.block(name, F.linear(joined, values[f"{name}.eh_proj.weight"])), values[f"{name}.mtp_norm.weight"])
            self.hidden[name] = last
            outputs.append(last)
        return Outputs([F.linear(x, values["lm_head.weight"]) for x in outputs], self.hidden, self.routing)

    def block(self, name, x):
        attention = self.mla if self.kind == "deepseek_v3" else self.grouped_query_attention
        x = x + attention(f"{name}.attention", rms_norm(x, self.values[f"{name}.attention_norm.weight"]))
        normed = rms_norm(x, self.values[f"{name}.ffn_norm.weight"])
        if f"{name}.moe.router.gate.weight" in self.values:
            return x + self.experts(name, normed)
        return x + self.swiglu(f"{name}.feed_forward", normed)

    def linear(self, name, x):
        return F.linear(x, self.values[f"{name}.weight"])

    def swiglu(self, name, x):
        return swiglu(x, *(self.values[f"{name}.w{i}.weight"] for i in (1, 2, 3)))

    def angles(self, dim):
        """[B, L, dim / 2], rounded as a float32 table of them is."""
        frequencies = rope_frequencies(dim, self.rope).float()
        return (self.positions[..., None].float() * frequencies).double()

    def grouped_query_attention(self, name, x):
        heads, kv_heads = self.arch["n_heads"], self.arch.get("n_kv_heads") or self.arch["n_heads"]
        dim = self.arch["dim"] // heads
        if f"{name}.qkv_linear.wqkv.weight" in self.values:
            rows = self.linear(f"{name}.qkv_linear.wqkv", x).unflatten(-1, (kv_heads, heads // kv_heads + 2, dim))
            q, k, v = rows[:, :, :, :-2].flatten(2, 3), rows[:, :, :, -2], rows[:, :, :, -1]
        else:
            q, k, v = (self.linear(f"{name}.qkv_linear.{part}", x).unflatten(-1, (-1, dim)) for part in ("wq", "wk", "wv"))
        angles = self.angles(dim)
        k, v = (t.repeat_interleave(heads // kv_heads, 2) for t in (rotate(k, angles), v))
        return self.linear(f"{name}.wo", attend(rotate(q, angles), k, v, dim**-0.5, self.visible).flatten(2))

    def mla(self, name, x):
        a = self.arch
        nope, turned, value = a["qk_nope_head_dim"], a["qk_rope_head_dim"], a["v_head_dim"]
        if a["q_lora_rank"]:
            q = self.linear(f"{name}.wq_b", rms_norm(self.linear(f"{name}.wq_a", x), self.values[f"{name}.q_norm.weight"]))
        else:
            q = self.linear(f"{name}.wq", x)
        q_nope, q_rope = q.unflatten(-1, (a["n_heads"], nope + turned)).split([nope, turned], -1)
        latent, k_rope = self.linear(f"{name}.wkv_a", x).split([a["kv_lora_rank"], turned], -1)
        kv = self.linear(f"{name}.wkv_b", rms_norm(latent, self.values[f"{name}.kv_norm.weight"]))
        k_nope, v = kv.unflatten(-1, (a["n_heads"], nope + value)).split([nope, value], -1)
        angles = self.angles(turned)
        k_rope = rotate(k_rope[:, :, None], angles).expand(-1, -1, a["n_heads"], -1)
        scale = (nope + turned) ** -0.5
        if self.rope.get("scaling") == "yarn" and self.rope.get("rope_factor", 1.0) > 1:
            scale *= (0.1 * a.get("mscale", 1.0) * math.log(self.rope["rope_factor"]) + 1) ** 2
        out = attend(torch.cat([q_nope, rotate(q_rope, angles)], -1), torch.cat([k_nope, k_rope], -1), v, scale, self.visible)
        return self.linear(f"{name}.wo", out.flatten(2))

    def experts(self, block, x):
        routing = self.route(block, x)
        self.routing[block] = routing
        if self.training:
            chosen = F.one_hot(routing.expert_ids, self.arch["num_experts"]).sum((0, 1, 2)).float()
            self.counts[block] = self.counts.get(block, 0) + chosen
        dtype = x.dtype if self.fp32_experts else torch.bfloat16
        weights = [self.values[f"{block}.moe.routed_experts.inner_experts.{w}"].to(dtype) for w in ("w1_EFD", "w2_EDF", "w3_EFD")]
        out = torch.zeros_like(x)
        for expert in range(self.arch["num_experts"]):
            b, i, slot = (routing.expert_ids == expert).nonzero(as_tuple=True)
            given = swiglu(x[b, i].to(dtype), *(w[expert] for w in weights)).to(x.dtype)
            weighted = (given.float() * routing.weights[b, i, slot, None]).to(x.dtype)
            out = out.index_put((b, i), weighted, accumulate=True)
        return out + self.swiglu(f"{block}.moe.shared_experts", x)

    def route(self, block, x):
        a = self.arch
        logits = F.linear(x.float(), self.values[f"{block}.moe.router.gate.weight"].float())
        scores = logits.sigmoid() if a["router_score_func"] == "sigmoid" else logits.softmax(-1)
        choice = scores.detach()
        if f"{block}.moe.expert_bias_E" in self.values:
            choice = choice + self.values[f"{block}.moe.expert_bias_E"]
        margin = math.inf
        groups, limit = a.get("router_num_expert_groups"), a.get("router_num_limited_groups")
        if groups:
            grouped = choice.unflatten(-1, (groups, -1))
            of_group = grouped.topk(2, -1).values.sum(-1)
            kept, margin = best(of_group, limit)
            allowed = torch.zeros_like(of_group, dtype=torch.bool).scatter(-1, kept, True)
            choice = grouped.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
        ids, gap = best(choice, a["router_top_k"])
        weights = scores.gather(-1, ids)
        if a.get("router_route_norm", False):
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return Routing(ids, weights * a.get("router_route_scale", 1.0), scores, min(margin, gap))


def best(x, count):
    """Indices of the largest, and the smallest distance to what was left."""
    values, ids = x.sort(dim=-1, descending=True, stable=True)
    gap = float((values[..., count - 1] - values[..., count]).min()) if count < x.shape[-1] else math.inf
    return ids[..., :count], gap
