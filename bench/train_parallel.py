#!/usr/bin/env python3
"""Training in several processes of this machine: do losses stay, what does it cost, what does a rank hold.

    .venv/bin/python bench/train_parallel.py [losses] [speed] [memory] [--build build/release]

losses: the largest relative difference of 20 losses from those of one process, for tiny models in one order of data (tests/cli/ranks.py).
speed:  tokens a second of two processes of one thread beside one process of two, interleaved, at equal global batches; and what rank 0's
        steps waited for the other.
memory: the most that each rank held, less what a process holds that has loaded libtorch and trains nothing, beside its parts of parameters,
        gradients and moments, two blocks' whole parameters, one block's whole gradients, and activations.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
HSDP = ("--parallelism.data-parallel-replicate-degree", 2, "--parallelism.data-parallel-shard-degree", 2)
LAYOUTS = {"2 ranks": (2,), "3 ranks": (3,), "4 ranks": (4,), "HSDP 2 x 2": (4, *HSDP)}


def losses(args, folder):
    from cli.ranks import configuration, run_ranks
    from cli.training import records
    print("| model | " + " | ".join(LAYOUTS) + " | target |\n|---|" + "---|" * (len(LAYOUTS) + 1))
    for model, fp32_experts, target in (("llama3", True, "1e-5"), ("deepseek_v3", True, "1e-5"), ("deepseek_v3", False, "3e-3")):
        source = configuration(folder, model, fp32_experts)
        curves = []
        for name, (world, *flags) in {"alone": (1,), **LAYOUTS}.items():
            dump = folder / f"{model}-{fp32_experts}-{name}"
            run_ranks(dump, world, *flags, source=source)
            curves.append([record["loss"] for record in records(dump).values()])
        worst = [max(abs(a - b) / b for a, b in zip(curve, curves[0], strict=True)) for curve in curves[1:]]
        experts = "" if model == "llama3" else ", float32 experts" if fp32_experts else ", bfloat16 experts"
        print(f"| {model}{experts} | " + " | ".join(f"{value:.1e}" for value in worst) + f" | {target} |", flush=True)


def speed(args, folder):
    from cli.ranks import run_ranks
    from train import WARM_UP, parse, write_one_document
    data = folder / "data.jsonl"

    def steps(case, world, threads):
        """Of each step: (seconds, seconds that it waited for others)."""
        name, dtype, batch, seq_len = parse(case)
        write_one_document(data, 4 * (args.steps + WARM_UP) * batch * seq_len)
        with tempfile.TemporaryDirectory(dir=folder) as dump:
            source = ("--module", name, "--config", f"{name}_debugmodel", "--hf-assets-path", ROOT / "tests/assets/tokenizer", "--dataloader.dataset", "text",
                      "--dataloader.dataset-path", data, "--dataloader.order", "global", "--training.seq-len", seq_len, "--training.mixed-precision-param", dtype,
                      "--training.local-batch-size", batch // world, "--training.global-batch-size", batch)
            run_ranks(pathlib.Path(dump), world, "--training.steps", args.steps + WARM_UP, "activation-checkpoint:none", source=source,
                      env={"OMP_NUM_THREADS": threads}, timeout=3600)
            lines = [json.loads(line) for line in (pathlib.Path(dump) / "metrics.jsonl").open()]
        return [(line["seconds"]["total"], sum(line.get("exposed_seconds", {}).values())) for line in lines[WARM_UP:]]

    print("| model, dtype, rows | 1 process x 2 threads, tokens/s (median) | 2 processes x 1 thread | ratio | target | of a step, waiting for the other |\n"
          "|---|---|---|---|---|---|")
    for case in args.cases.split(","):
        _, _, batch, seq_len = parse(case)
        one, two = [], []
        for _ in range(args.rounds):
            one += steps(case, 1, 2)
            two += steps(case, 2, 1)
        tokens = batch * seq_len

        def cell(all_steps):
            seconds = [step[0] for step in all_steps]
            return f"{tokens / min(seconds):.0f} ({tokens / statistics.median(seconds):.0f})"
        waiting = statistics.median(waited / seconds for seconds, waited in two)
        print(f"| {case} | {cell(one)} | {cell(two)} | {min(one)[0] / min(two)[0]:.2f} | 0.8 | {waiting:.1%} |", flush=True)


# A llama3 whose libtorch is small beside it.
DIM, HIDDEN, LAYERS, HEADS, VOCABULARY, SEQ_LEN = 768, 2304, 8, 8, 2048, 256


def memory_config(folder, dtype):
    file = folder / f"{dtype}.json"
    file.write_text(json.dumps({
        "module": "llama3", "config": "llama3_debugmodel",
        "model": {"name": "llama3", "flavor": "debugmodel", "vocab_size": VOCABULARY, "dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": HEADS,
                  "head_dim": DIM // HEADS, "hidden_dim": HIDDEN, "rope": {"theta": 10000.0, "max_seq_len": SEQ_LEN, "scaling": "none"}},
        "training": {"local_batch_size": 1, "seq_len": SEQ_LEN, "mixed_precision_param": dtype}, "metrics": {"log_freq": 1}}))
    return ("--config-file", file, "--hf-assets-path", ROOT / "tests/assets/tokenizer", "--dataloader.dataset", "c4_test")


def expected_bytes(world, dtype):
    size = 2 if dtype == "bfloat16" else 4
    block = 4 * DIM * DIM + 3 * DIM * HIDDEN + 2 * DIM
    count = LAYERS * block + 2 * VOCABULARY * DIM + DIM
    kept = LAYERS * (8 * DIM + 3 * HIDDEN) + 3 * DIM  # as in train_models.py
    activations = SEQ_LEN * (kept * size + LAYERS * HEADS * 4) + 3 * 4 * SEQ_LEN / 8 * VOCABULARY
    copies = count * size * (dtype == "bfloat16")
    return {"parts of parameters, gradients, moments": 16 * count / world, "two whole blocks": 2 * block * size if world > 1 else copies,
            "a block's gradients": 4 * block if world > 1 else 0, "activations": activations}


def peaks(folder, world, steps, source):
    from cli.ranks import start
    job = start(folder, world, *source, "--dump-folder", folder, "--training.steps", steps, "activation-checkpoint:none")
    most = []
    for rank, process in enumerate(job.processes):
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(job.logs[rank][-3000:])
        process.returncode = 0
        most.append(usage.ru_maxrss * 1024)
    return most


def memory(args, folder):
    rows = []
    for dtype in ("float32", "bfloat16"):
        source = memory_config(folder, dtype)
        start_up = peaks(folder / "none", 1, 0, source)[0]
        for world in (1, 2, 4):
            most = max(peaks(folder / f"{dtype}-{world}", world, 3, source)) - start_up
            rows.append((dtype, world, most, expected_bytes(world, dtype)))
    print("| dtype | ranks | most less start-up, MiB | " + " | ".join(rows[0][3]) + " | sum | measured / sum | target |\n|" + "---|" * 10)
    for dtype, world, most, parts in rows:
        cells = " | ".join(f"{value / MIB:.0f}" for value in (*parts.values(), sum(parts.values())))
        print(f"| {dtype} | {world} | {most / MIB:.0f} | {cells} | {most / sum(parts.values()):.2f} | 0.75 to 1.25 |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["losses", "speed", "memory"])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--cases", default="deepseek_v3-float32-4x512,deepseek_v3-bfloat16-4x512,llama3-float32-4x512,llama3-bfloat16-4x512")
    args = parser.parse_args()
    os.environ["MILEPOST_TRAIN"] = str((args.build / "train/milepost-train").resolve())
    sys.path.insert(0, str(ROOT / "tests"))
    for part in args.parts:
        print(f"\n### {part.capitalize()}\n", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            {"losses": losses, "speed": speed, "memory": memory}[part](args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
