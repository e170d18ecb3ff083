"""llama3 and deepseek_v3 debug models as one would write them in plain PyTorch for a CPU: the peer of bench/train.py.

Attention by scaled_dot_product_attention with is_causal (values padded to the size of keys, which its flash kernel asks for and which is
faster than its other path), fused AdamW, float32 master weights cast to the compute dtype where they are used, routed experts in bfloat16
as the reference has them, the loss over all logits at once. One document a row.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.02)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-5)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(dim, hidden), Linear(hidden, dim), Linear(dim, hidden)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def rotate(x_BLNH, cis_LH):
    return torch.view_as_real(torch.view_as_complex(x_BLNH.float().unflatten(-1, (-1, 2))) * cis_LH[:, None]).flatten(-2).to(x_BLNH.dtype)


def attend(q_BLNH, k_BLNH, v_BLNH, scale):
    missing = k_BLNH.shape[-1] - v_BLNH.shape[-1]
    q, k, v = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, F.pad(v_BLNH, (0, missing)) if missing else v_BLNH))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2)[..., :v_BLNH.shape[-1]].flatten(2)


class GroupedQueryAttention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.head_dim, self.heads = dim // heads, [heads, kv_heads, kv_heads]
        self.wqkv, self.wo = Linear(dim, sum(self.heads) * self.head_dim), Linear(dim, dim)

    def forward(self, x, cis):
        q, k, v = self.wqkv(x).unflatten(-1, (-1, self.head_dim)).split(self.heads, 2)
        return self.wo(attend(rotate(q, cis), rotate(k, cis), v, self.head_dim**-0.5))


class LatentAttention(nn.Module):
    def __init__(self, dim, heads, rank, nope, rope, value, scale):
        super().__init__()
        self.heads, self.sizes, self.latent_sizes, self.scale = heads, (nope, rope), (rank, rope), scale
        self.wq, self.wkv_a, self.kv_norm = Linear(dim, heads * (nope + rope)), Linear(dim, rank + rope), Norm(rank)
        self.wkv_b, self.wo = Linear(rank, heads * (nope + value)), Linear(heads * value, dim)

    def forward(self, x, cis):
        q_nope, q_rope = self.wq(x).unflatten(-1, (self.heads, -1)).split(self.sizes, -1)
        latent, k_rope = self.wkv_a(x).split(self.latent_sizes, -1)
        kv = self.wkv_b(self.kv_norm(latent)).unflatten(-1, (self.heads, -1))
        k_nope, v = kv[..., :self.sizes[0]], kv[..., self.sizes[0]:]
        k_rope = rotate(k_rope[:, :, None], cis).expand(-1, -1, self.heads, -1)
        return self.wo(attend(torch.cat([q_nope, rotate(q_rope, cis)], -1), torch.cat([k_nope, k_rope], -1), v, self.scale))


class Experts(nn.Module):
    def __init__(self, dim, hidden, experts, shared, top_k):
        super().__init__()
        self.top_k, self.gate, self.shared = top_k, Linear(dim, experts), FeedForward(dim, shared * hidden)
        self.w1, self.w3 = (nn.Parameter(torch.randn(experts, hidden, dim) * 0.02) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(experts, dim, hidden) * 0.02)
        self.register_buffer("bias", torch.zeros(experts))
        self.counts = 0

    def forward(self, x_BLD):
        x_TD = x_BLD.flatten(0, 1)
        scores_TE = self.gate(x_TD.float()).softmax(-1)
        ids_TK = (scores_TE + self.bias).topk(self.top_k, -1).indices
        slots_TK = scores_TE.gather(1, ids_TK)
        self.counts = self.counts + ids_TK.flatten().bincount(minlength=len(self.bias)).float()
        narrow_TD, out_TD = x_TD.bfloat16(), torch.zeros_like(x_TD)
        w1, w2, w3 = (w.bfloat16() for w in (self.w1, self.w2, self.w3))
        for expert in range(len(self.bias)):
            tokens, slots = (ids_TK == expert).nonzero(as_tuple=True)
            x = narrow_TD[tokens]
            y = F.linear(F.silu(F.linear(x, w1[expert])) * F.linear(x, w3[expert]), w2[expert])
            out_TD = out_TD.index_add(0, tokens, (y.float() * slots_TK[tokens, slots, None]).to(x_TD.dtype))
        return (out_TD + self.shared(x_TD)).view_as(x_BLD)

    def balance(self):
        delta = 1e-3 * (self.counts.mean() - self.counts).sign()
        self.bias += delta - delta.mean()
        self.counts = 0


class Block(nn.Module):
    def __init__(self, dim, attention, feed_forward):
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.ffn_norm = Norm(dim), Norm(dim)

    def forward(self, x, cis):
        x = x + self.attention(self.attention_norm(x), cis)
        return x + self.feed_forward(self.ffn_norm(x))


class Model(nn.Module):
    """`shape`: of another llama3 than the debug model: dim, layers, heads, hidden."""

    def __init__(self, name, seq_len, dtype, shape=None):
        super().__init__()
        shape = shape or {"dim": 256}
        self.dim, vocab, self.dtype = shape["dim"], 2048, dtype
        self.embedding = nn.Parameter(torch.randn(vocab, self.dim))
        self.layers = nn.ModuleList({"llama3": llama3_blocks, "deepseek_v3": deepseek_v3_blocks}[name](**shape))
        self.norm, self.head = Norm(self.dim), Linear(self.dim, vocab)
        rope_dim, theta = {"llama3": (self.dim // shape.get("heads", 16), 500000.0), "deepseek_v3": (64, 10000.0)}[name]
        angles = torch.arange(seq_len)[:, None] * theta ** (-torch.arange(0, rope_dim, 2) / rope_dim)
        self.register_buffer("cis", torch.polar(torch.ones_like(angles), angles))

    def forward(self, tokens_BL):
        x = F.embedding(tokens_BL, self.embedding).to(self.dtype)
        for layer in self.layers:
            x = layer(x, self.cis)
        return self.head(self.norm(x))


def llama3_blocks(dim, layers=6, heads=16, hidden=768):
    return [Block(dim, GroupedQueryAttention(dim, heads, heads), FeedForward(dim, hidden)) for _ in range(layers)]


def deepseek_v3_blocks(dim):
    scale = 192**-0.5 * (0.1 * 0.7 * math.log(40) + 1) ** 2
    return [Block(dim, LatentAttention(dim, 16, 512, 128, 64, 128, scale), Experts(dim, 256, 8, 2, 3) if layer else FeedForward(dim, 1024))
            for layer in range(6)]


class Trainer:
    def __init__(self, name, dtype, batch, seq_len, shape=None):
        torch.manual_seed(0)
        self.model = Model(name, seq_len, getattr(torch, dtype), shape)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.tokens_BL = torch.randint(0, 2000, (batch, seq_len + 1))

    def step(self):
        logits = self.model(self.tokens_BL[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), self.tokens_BL[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for layer in self.model.layers:
            if isinstance(layer.feed_forward, Experts):
                layer.feed_forward.balance()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())
