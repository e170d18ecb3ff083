"""torchtitan's conversions of a DeepSeek-V3 folder, as its scripts do them, for bench/models.py: one conversion a process.

    titan_peer.py from_hf HF DCP [--fp8]
    titan_peer.py to_hf DCP HF --assets HF [--dtype bfloat16]
    titan_peer.py to_pth DCP FILE

The model is built from config.json, so that any scaled-down model will do. Prints {"seconds", "cpu_seconds"} of the conversion, without the start of
the interpreter and imports. Needs torchtitan 0.3.0, which needs triton even without a GPU.
"""
import argparse
import json
import pathlib
import time
import warnings


def model_spec(folder):
    """torchtitan's specification of the model that folder/config.json describes; the names and shapes of weights are what matters."""
    import torchtitan.models.deepseek_v3 as titan
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm

    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    dim, vocab = config["hidden_size"], config["vocab_size"]

    def make(attn_backend, moe_comm_backend, non_blocking_capacity_factor=None, num_mtp_layers=0):
        layers = titan._build_dsv3_layers(
            n_layers=config["num_hidden_layers"],
            n_dense_layers=config["first_k_dense_replace"],
            dim=dim,
            n_heads=config["num_attention_heads"],
            q_lora_rank=config["q_lora_rank"] or 0,
            kv_lora_rank=config["kv_lora_rank"],
            qk_nope_head_dim=config["qk_nope_head_dim"],
            qk_rope_head_dim=config["qk_rope_head_dim"],
            v_head_dim=config["v_head_dim"],
            mscale=1.0,
            dense_hidden_dim=config["intermediate_size"],
            moe_hidden_dim=config["moe_intermediate_size"],
            num_experts=config["n_routed_experts"],
            num_shared_experts=config["n_shared_experts"],
            router_top_k=config["num_experts_per_tok"],
            router_score_func=config["scoring_func"],
            attn_backend=attn_backend,
            moe_comm_backend=moe_comm_backend,
            non_blocking_capacity_factor=non_blocking_capacity_factor,
            rope=ComplexRoPE.Config(dim=config["qk_rope_head_dim"], max_seq_len=4096, theta=config["rope_theta"]),
        )
        return titan.DeepSeekV3Model.Config(
            vocab_size=vocab,
            dim=dim,
            tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim),
            norm=RMSNorm.Config(normalized_shape=dim),
            lm_head=Linear.Config(in_features=dim, out_features=vocab),
            layers=layers,
            mtp_layers=[],
        )

    titan.deepseekv3_configs["bench"] = make
    return titan.model_registry("bench")


def from_hf(args):
    import torch
    import torch.distributed.checkpoint as dcp
    from torchtitan.components.checkpointer import ModelWrapper

    spec = model_spec(args.src)
    with torch.inference_mode():
        with torch.device("cpu"):
            model = ModelWrapper(spec.model.build())
        adapter = spec.state_dict_adapter(spec.model, None)
        weights = adapter.to_hf(model._get_state_dict())
        dcp.load(weights, storage_reader=adapter.get_hf_storage_reader(args.src, args.fp8))
        dcp.save(adapter.from_hf(weights), checkpoint_id=args.dst)


def to_hf(args):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torchtitan.components.checkpointer import ModelWrapper

    spec = model_spec(args.assets)
    with torch.inference_mode():
        with torch.device("cpu"):
            model = ModelWrapper(spec.model.build())
        adapter = spec.state_dict_adapter(spec.model, args.assets)
        weights = model._get_state_dict()
        dcp.load(weights, checkpoint_id=args.src)
        weights = adapter.to_hf(weights)
        if args.dtype != "float32":
            weights = {name: tensor.to(getattr(torch, args.dtype)) for name, tensor in weights.items()}
        writer = HuggingFaceStorageWriter(path=args.dst, save_distributed=True, fqn_to_index_mapping=adapter.fqn_to_index_mapping,
                                          enable_consolidation=True, thread_count_consolidation=5)
        dcp.save(weights, storage_writer=writer)


def to_pth(args):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(args.src, args.dst)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["from_hf", "to_hf", "to_pth"])
    parser.add_argument("src")
    parser.add_argument("dst")
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--assets")
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    # The imports that the steps repeat, so that they are not in the seconds.
    import torch.distributed.checkpoint.format_utils
    import torchtitan.components.checkpointer
    import torchtitan.models.deepseek_v3  # noqa: F401

    start, cpu_start = time.perf_counter(), time.process_time()
    {"from_hf": from_hf, "to_hf": to_hf, "to_pth": to_pth}[args.step](args)
    print(json.dumps({"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu_start}))


if __name__ == "__main__":
    main()
