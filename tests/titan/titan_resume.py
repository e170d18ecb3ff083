"""TorchTitan's own Trainer on a run of ours: `titan_resume.py RUN.json TOKENIZER DATA DUMP_FOLDER STEPS [INITIAL_LOAD_PATH]`.

As many ranks as the environment names, sharded. Resumes from what lies in DUMP_FOLDER/checkpoint, or starts from INITIAL_LOAD_PATH's model, trains to STEPS, saves at the end, and prints
a line of JSON a step. LEAVE_OUT in the environment: part of the checkpoint that is not loaded.
"""
import json
import os
import sys
from pathlib import Path

import torch
import titan_trainer


def variant_of(run):
    """The model of a configuration file of milepost-train in the words of spec_of: llama3, or deepseek_v3 without groups."""
    model = run["model"]
    if model["name"] == "llama3":
        same = ("vocab_size", "dim", "n_layers", "n_heads", "n_kv_heads", "hidden_dim")
        return {"model": "llama3", "rope": {"theta": model["rope"]["theta"]}, "arch": {key: model[key] for key in same}}
    same = ("vocab_size", "dim", "n_layers", "n_dense_layers", "n_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
            "v_head_dim", "mscale", "moe_hidden_dim", "num_experts", "num_shared_experts", "load_balance_coeff")
    renamed = {"hidden_dim": "dense_hidden_dim", "top_k": "router_top_k", "score_func": "router_score_func", "route_norm": "router_route_norm",
               "route_scale": "router_route_scale"}
    rope = {key: value for key, value in model["rope"].items() if key not in ("factor", "max_seq_len", "original_max_seq_len")}
    rope |= {"rope_factor": model["rope"]["factor"], "original_seq_len": model["rope"]["original_max_seq_len"]}
    return {"model": model["name"], "rope": rope,
            "arch": {**{key: model[key] for key in same}, **{theirs: model[ours] for ours, theirs in renamed.items()}}}


def train_of(run, steps):
    kwargs = run["optimizer"]["param_groups"][0]["optimizer_kwargs"]
    return {**run["training"], "steps": steps, "adamw": {"lr": kwargs["lr"]}, "lr_scheduler": {"total_steps": 10, **run["lr_scheduler"]}}


def main(run_file, tokenizer, data, dump_folder, steps, initial=None):
    torch.set_num_threads(1)
    titan_trainer.prepare(port=int(os.environ.get("MASTER_PORT", 0)))
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
    run = json.loads(Path(run_file).read_text())
    spec = titan_trainer.spec_of(variant_of(run), run["training"]["seq_len"])
    loader = HuggingFaceTextDataLoader.Config(dataset="c4_test", dataset_path=data)
    config = titan_trainer.trainer_config(spec, train_of(run, int(steps)), dump_folder=dump_folder, tokenizer=tokenizer, loader=loader, seed=77)
    config.checkpoint = CheckpointManager.Config(enable=True, interval=5, keep_latest_k=0, last_save_model_only=False, initial_load_path=initial)
    if "LEAVE_OUT" in os.environ:
        config.checkpoint.exclude_from_loading = [os.environ["LEAVE_OUT"]]
    if int(os.environ["WORLD_SIZE"]) > 1:
        config.parallelism.spmd_backend = "partial_dtensor"  # the default one does not run on more than one CPU rank
    trainer = config.build()
    lines = []
    trainer.metrics_processor.log = lambda step, loss, _, grad_norm, extra_metrics: lines.append(
        {"step": step, "loss": loss, "grad_norm": grad_norm, **extra_metrics})
    trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()
    if os.environ["RANK"] == "0":
        print("\n".join(map(json.dumps, lines)))


if __name__ == "__main__":
    main(*sys.argv[1:])
