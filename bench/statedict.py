"""The training state that state_bench.cc builds, as torch tensors, for the peers.

Per parameter: a bf16 weight, three fp32 states and a scalar step (14 bytes an element), and six optimizer numbers
saved as Python objects. Weights and states are DTensors sharded on dim 0 over all ranks.
"""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

BYTES_PER_ELEMENT = 14


def numel(shapes):
    total = 0
    for shape in shapes.values():
        count = 1
        for size in shape:
            count *= size
        total += count
    return total


def shapes(target_bytes):
    """Parameter name -> shape, so that the whole state is close to `target_bytes`."""
    if target_bytes >= 1 << 30:
        dim, vocab, heads, hidden, experts = 512, 32768, 8, 256, 16
    elif target_bytes >= 256 << 20:
        dim, vocab, heads, hidden, experts = 256, 16384, 4, 128, 16
    else:
        dim, vocab, heads, hidden, experts = 128, 4096, 4, 64, 8
    out = {"tok_embeddings.weight": (vocab, dim), "norm.weight": (dim,), "lm_head.weight": (vocab, dim)}

    def layer(i):
        p = f"layers.{i}."
        d = {
            p + "attention.wq.weight": (heads * 192, dim),
            p + "attention.wkv_a.weight": (576, dim),
            p + "attention.kv_norm.weight": (512,),
            p + "attention.wkv_b.weight": (heads * 256, 512),
            p + "attention.wo.weight": (dim, heads * 128),
            p + "attention_norm.weight": (dim,),
            p + "ffn_norm.weight": (dim,),
        }
        if i == 0:
            d |= {p + f"feed_forward.w{n}.weight": (dim, 4 * dim) if n == 2 else (4 * dim, dim) for n in (1, 2, 3)}
            return d
        e = p + "moe.routed_experts.inner_experts."
        d |= {e + "w1_EFD": (experts, hidden, dim), e + "w2_EDF": (experts, dim, hidden), e + "w3_EFD": (experts, hidden, dim)}
        d |= {p + "moe.router.gate.weight": (experts, dim), p + "moe.expert_bias_E": (experts,)}
        d |= {p + f"moe.shared_experts.w{n}.weight": (dim, hidden) if n == 2 else (hidden, dim) for n in (1, 2, 3)}
        return d

    out |= layer(0)
    num_moe = max(2, int((target_bytes // BYTES_PER_ELEMENT - numel(out)) / numel(layer(1)) + 0.5))
    for i in range(1, num_moe + 1):
        out |= layer(i)
    return out


def build(target_bytes, world):
    """This rank's state dict, nested as torchtitan nests it."""
    mesh = init_device_mesh("cpu", (world,))
    noise = torch.randint(0, 2**15, (4 << 20,), dtype=torch.int16)

    def sharded(shape, dtype):
        local = torch.empty((shape[0] // world, *shape[1:]), dtype=dtype)
        flat = local.view(-1).view(torch.int16)
        for at in range(0, flat.numel(), noise.numel()):
            count = min(noise.numel(), flat.numel() - at)
            flat[at : at + count] = noise[:count]
        return DTensor.from_local(local, mesh, [Shard(0)], run_check=False)

    weights, optimizer = {}, {}
    for fqn, shape in shapes(target_bytes).items():
        weights[fqn] = sharded(shape, torch.bfloat16)
        optimizer[f"state.{fqn}.step"] = torch.tensor(7.0)
        for kind in ("master", "exp_avg", "exp_avg_sq"):
            optimizer[f"state.{fqn}.{kind}"] = sharded(shape, torch.float32)
        numbers = {"lr": 2.2e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "initial_lr": 2.2e-4, "amsgrad": False}
        optimizer |= {f"param_groups.{fqn}.{name}": value for name, value in numbers.items()}
    return {**weights, "optimizer": optimizer, "lr_scheduler": {"last_epoch": 1000}}
