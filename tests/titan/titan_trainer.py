"""TorchTitan 0.3.0's own Trainer on the CPU, one rank: what it asks of a GPU is replaced, what it computes is not.

`prepare()` before anything of torchtitan is imported. Replaced: the device module, the check that refuses flex attention's backward pass
on a CPU (its eager form has one), a barrier and a reduction that gloo lacks. By choice: attention or routed experts by other code.
"""
import dataclasses
import importlib.util
import os
import socket
import sys
import types
import warnings

import torch
import torch.nn.functional as F
import torchtitan_models

ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "HF_DATASETS_OFFLINE": "1",
               "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class CpuModule(types.ModuleType):
    """What torchtitan asks of torch.cuda."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)


def device_module():
    module = CpuModule("cpu_device_module")
    for name, value in {"device_count": 1, "current_device": 0, "get_device_name": "CPU", "memory_stats": {}, "set_device": None,
                        "synchronize": None, "reset_peak_memory_stats": None, "empty_cache": None,
                        "get_device_properties": types.SimpleNamespace(total_memory=1 << 34)}.items():
        setattr(module, name, lambda *_, value=value, **__: value)
    return module


def prepare(port=0):
    """Makes the Trainer importable and usable. `port`: of the process group's store; 0 takes one that is free."""
    warnings.filterwarnings("ignore", message=".*CPU autocast.*")
    if "torchtitan" not in sys.modules:
        torchtitan_models.prepare()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["MASTER_PORT"] = str(port or free_port())
    keep = torch._utils._get_available_device_type, torch._utils._get_device_module
    module = device_module()
    torch._utils._get_available_device_type, torch._utils._get_device_module = lambda: "cpu", lambda _: module
    import torchtitan.tools.utils as tools
    torch._utils._get_available_device_type, torch._utils._get_device_module = keep
    assert tools.device_type == "cpu", "torchtitan was imported before"
    tools.get_local_device = lambda: torch.device("cpu")
    replace_what_needs_a_gpu(tools)
    replace_what_is_not_installed()


def replace_what_is_not_installed():
    """Event files are not written here."""
    if importlib.util.find_spec("tensorboard") is None:
        sys.modules["torch.utils.tensorboard"] = types.ModuleType("torch.utils.tensorboard")
        sys.modules["torch.utils.tensorboard"].SummaryWriter = None


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def replace_what_needs_a_gpu(tools):
    import torch.nn.attention.flex_attention as flex
    import torchtitan.distributed.fsdp as fsdp
    import torchtitan.distributed.utils as distributed
    from torchtitan.models.common.attention import FlexAttention
    distributed.get_local_device = tools.get_local_device
    distributed.set_pg_timeouts = lambda **_: None
    flex._validate_device = lambda *_: None
    FlexAttention._compiled_flex_attn = flex.flex_attention
    divide = fsdp.disable_fsdp_gradient_division

    def divide_and_sum(model):
        """gloo has no pre-multiplied sum; the divisor is 1 anyway."""
        divide(model)
        for part in model.modules():
            if isinstance(part, fsdp.FSDPModule):
                part.set_force_sum_reduction_for_comms(True)
    fsdp.disable_fsdp_gradient_division = divide_and_sum


def use_scaled_dot_product_attention():
    """Instead of eager flex attention, for rows of one document. Values are padded to the keys' size, which the CPU's flash kernel wants."""
    from torchtitan.models.common.attention import FlexAttention
    from torchtitan.models.common.decoder import Decoder

    def forward(self, q_BLNH, k_BLNH, v_BLNH, *, attention_masks=None, scale=None, enable_gqa=False, **_):
        value_dim = v_BLNH.shape[-1]
        padded = F.pad(v_BLNH, (0, k_BLNH.shape[-1] - value_dim)) if k_BLNH.shape[-1] > value_dim else v_BLNH
        q, k, v = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, padded))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa)
        return out.transpose(1, 2)[..., :value_dim]
    FlexAttention.forward = forward
    Decoder.get_attention_masks = lambda *_, **__: None


def use_fp32_experts(is_on):
    from torchtitan.models.common.moe import GroupedExperts
    GroupedExperts.original_forward = getattr(GroupedExperts, "original_forward", GroupedExperts.forward)
    GroupedExperts.forward = fp32_experts if is_on else GroupedExperts.original_forward


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach()


def fp32_experts(self, x, counts):
    w1, w2, w3 = (local(w) for w in (self.w1_EFD, self.w2_EDF, self.w3_EFD))
    groups = x[:int(counts.sum())].split([int(n) for n in counts])
    return torch.cat([F.linear(F.silu(F.linear(g, w1[e])) * F.linear(g, w3[e]), w2[e]) for e, g in enumerate(groups)])


def fixed_loader(batches):
    """The configuration of a loader that gives [(tokens, labels, positions)] over and over."""
    from torchtitan.components.dataloader import BaseDataLoader

    class FixedLoader(BaseDataLoader):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):
            pass

        def __init__(self, config, **_):
            self.next = 0

        def __iter__(self):
            while True:
                tokens, labels, positions = batches[self.next % len(batches)]
                self.next += 1
                yield {"input": tokens.clone(), "positions": positions.clone()}, labels.clone()

        def state_dict(self):
            return {"next": self.next}

        def load_state_dict(self, state):
            self.next = state["next"]
    return FixedLoader.Config()


def spec_of(variant, max_seq_len):
    """The ModelSpec of a numerics folder's variant."""
    import torchtitan.distributed.pipeline_parallel as pipeline
    import torchtitan.models.deepseek_v3 as deepseek_v3
    import torchtitan.models.llama3 as llama3
    from torchtitan.components.optimizer import register_moe_load_balancing_hook
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.protocols.model_spec import ModelSpec
    a, is_llama = dict(variant["arch"]), variant["model"] == "llama3"
    module = llama3 if is_llama else deepseek_v3
    dim, vocab = a["dim"], a.pop("vocab_size")
    tied = a.pop("enable_weight_tying", False)
    common = {
        "vocab_size": vocab, "dim": dim, "norm": RMSNorm.Config(normalized_shape=dim, param_init=module._NORM_INIT),
        "lm_head": Linear.Config(in_features=dim, out_features=vocab, param_init=module._output_linear_init(dim)),
        "tok_embeddings": Embedding.Config(num_embeddings=vocab, embedding_dim=dim,
                                           param_init=llama3._EMBEDDING_SKIP_INIT if tied else module._EMBEDDING_INIT)}
    rope_dim = dim // a["n_heads"] if is_llama else a["qk_rope_head_dim"]
    rope = ComplexRoPE.Config(dim=rope_dim, max_seq_len=max_seq_len, **variant["rope"])
    if is_llama:
        layers = llama3._build_llama3_layers(rope=rope, attn_backend="flex", **{"fuse_qkv": True, **a})
        return ModelSpec(name="llama3", flavor="tiny", model=llama3.Llama3Model.Config(enable_weight_tying=tied, layers=layers, **common),
                         parallelize_fn=llama3.parallelize_llama, pipelining_fn=pipeline.pipeline_llm, post_optimizer_build_fn=None,
                         state_dict_adapter=llama3.Llama3StateDictAdapter)
    depths, coefficient = a.pop("num_mtp_layers", 0), a.pop("load_balance_coeff", 1e-3)
    layers = deepseek_v3._build_dsv3_layers(rope=rope, attn_backend="flex", moe_comm_backend="standard", non_blocking_capacity_factor=None, **a)
    for layer in layers:
        if layer.moe is not None:
            layer.moe.load_balance_coeff = coefficient
    mtp = deepseek_v3._build_mtp_layers(layers[-1], dim=dim, num_mtp_layers=depths)
    return ModelSpec(name="deepseek_v3", flavor="tiny", model=deepseek_v3.DeepSeekV3Model.Config(layers=layers, mtp_layers=mtp, **common),
                     parallelize_fn=deepseek_v3.parallelize_deepseekv3, pipelining_fn=pipeline.pipeline_llm,
                     post_optimizer_build_fn=register_moe_load_balancing_hook, state_dict_adapter=deepseek_v3.DeepSeekV3StateDictAdapter)


def trainer_config(spec, train, *, dump_folder, tokenizer, loader, depths=0, seed=0):
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
    from torchtitan.config import ParallelismConfig, TrainingConfig
    from torchtitan.models.deepseek_v3.mtp import MTPLoss
    from torchtitan.trainer import Trainer
    vocab = spec.model.vocab_size
    loss = MTPLoss.Config(global_vocab_size=vocab, mtp_scale=train.get("mtp_scale", 0.3)) if depths else ChunkedLossWrapper.Config(
        num_chunks=train.get("loss_chunks", 8), loss_fn=CrossEntropyLoss.Config(global_vocab_size=vocab))
    config = Trainer.Config(
        loss=loss, hf_assets_path=str(tokenizer), metrics=MetricsProcessor.Config(log_freq=1, disable_color_printing=True), model_spec=spec,
        dataloader=loader, optimizer=default_adamw(**train["adamw"]), lr_scheduler=LRSchedulersContainer.Config(**train["lr_scheduler"]),
        training=TrainingConfig(
            local_batch_size=train["local_batch_size"], global_batch_size=train.get("global_batch_size", -1), seq_len=train["seq_len"],
            steps=train["steps"], max_norm=train.get("max_norm", 1.0), mixed_precision_param=train.get("mixed_precision_param", "float32"),
            disable_cuda_graphs=True),
        parallelism=ParallelismConfig(), checkpoint=CheckpointManager.Config(enable=False), activation_checkpoint=None,
        dump_folder=str(dump_folder))
    config.debug.seed = seed
    config.debug.enable_structured_logging = False
    return config
