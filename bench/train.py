#!/usr/bin/env python3
"""Tokens a second of training beside plain PyTorch and TorchTitan's own trainer, in interleaved rounds of one run.

    bench/train.py                                        # every case
    bench/train.py --cases deepseek_v3-float32-4x512 --rounds 5 --build build/release
    bench/train.py --without milepost                     # the peers alone

Two threads, one document a row, no activation checkpointing, no checkpoints. Each round runs every contestant for some steps and the
products of the model's projections alone (the GEMM rate). Tokens a second are those of the fastest step (of the median one in brackets).
Utilisation: operations of a step, scores as far as causality leaves them, over the seconds that they would take at the GEMM rate.
The peers need torch; `torchtitan` is installed into the build folder when it is not there (see tests/titan).
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from train_models import flops_of_a_step, multiply_seconds

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ["deepseek_v3-float32-4x512", "deepseek_v3-float32-1x2048", "deepseek_v3-bfloat16-4x512", "deepseek_v3-bfloat16-1x2048",
         "llama3-float32-4x512", "llama3-bfloat16-4x512"]
TARGETS = dict(zip(CASES, [1.2, 1.15, 2.0, 2.0, 1.1, 1.3]))
PEERS = {"eager": "plain PyTorch, eager", "titan": "TorchTitan 0.3.0's Trainer (scaled_dot_product_attention)", "flex": "TorchTitan 0.3.0's Trainer (its eager flex attention)"}
WARM_UP = 2


def parse(case):
    name, dtype, rows = case.split("-")
    batch, seq_len = map(int, rows.split("x"))
    return name, dtype, batch, seq_len


class Peer:
    """A process that trains as many steps as it is asked for and answers with their seconds."""

    def __init__(self, kind, case, threads):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", kind, "--cases", case, "--threads", str(threads)],
                                        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.steps(WARM_UP)

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("a peer ended early")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve(kind, case, threads):
    import torch
    torch.set_num_threads(threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    name, dtype, batch, seq_len = parse(case)
    if kind == "gemm":
        def step():
            return multiply_seconds(name, getattr(torch, dtype), batch * seq_len, time.perf_counter)
    else:
        if kind == "eager":
            from eager_models import Trainer
            trainer = Trainer(name, dtype, batch, seq_len)
        else:
            from titan_trainer_peer import Trainer
            trainer = Trainer(name, dtype, batch, seq_len, uses_flex=kind == "flex")

        def step():
            start = time.perf_counter()
            trainer.step()
            return time.perf_counter() - start
    for line in sys.stdin:
        print(json.dumps([step() for _ in range(int(line))]), file=answers, flush=True)


class Milepost:
    """The trainer as a person runs it, a process a round; seconds of its steps are in metrics.jsonl."""

    def __init__(self, case, build, threads, folder, options):
        name, dtype, batch, seq_len = parse(case)
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MILEPOST_ROOT": str(ROOT)}
        self.folder = pathlib.Path(folder)
        self.tokens = batch * seq_len
        self.command = [str(build / "train/milepost-train"), "--module", name, "--config", f"{name}_debugmodel",
                        "--hf-assets-path", str(ROOT / "tests/assets/tokenizer"), "--dataloader.dataset", "text",
                        "--training.local-batch-size", str(batch), "--training.seq-len", str(seq_len),
                        "--training.mixed-precision-param", dtype, "--metrics.log-freq", "1", *options]
        self.parts = {}

    def steps(self, count):
        with tempfile.TemporaryDirectory(dir=self.folder) as dump:
            data = pathlib.Path(dump) / "data.jsonl"
            write_one_document(data, 3 * (count + WARM_UP) * self.tokens)
            command = [*self.command, "--dataloader.dataset-path", str(data), "--training.steps", str(count + WARM_UP), "--dump-folder", dump,
                       "activation-checkpoint:none"]
            done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}")
            records = [json.loads(line) for path in pathlib.Path(dump).rglob("metrics.jsonl") for line in path.open()]
        return [self.seconds(record) for record in records[WARM_UP:]]

    def seconds(self, record):
        """Of one step, from a line of metrics; keeps where they went."""
        parts = {name: value for name, value in record["seconds"].items() if name not in ("total", "checkpoint", "validation")}
        for name, value in parts.items():
            self.parts[name] = self.parts.get(name, 0) + value
        return sum(parts.values())

    def close(self):
        pass


def write_one_document(path, num_letters):
    """One document that is longer than all rows together: so no row holds a border."""
    rng = random.Random(0)
    words = []
    while num_letters > 0:
        words.append("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))))
        num_letters -= len(words[-1])
    path.write_text(json.dumps({"text": " ".join(words)}) + "\n")


def figure(seconds, tokens):
    return f"{tokens / min(seconds):.0f} ({tokens / statistics.median(seconds):.0f})"


def run(case, args, folder):
    name, _, batch, seq_len = parse(case)
    kinds = [k for k in ("eager", "titan", "flex") if k not in args.without and (k != "flex" or "flex" in args.also)]
    contestants = {k: Peer(k, case, args.threads) for k in kinds}
    contestants["gemm"] = Peer("gemm", case, args.threads)
    if "milepost" not in args.without:
        contestants["milepost"] = Milepost(case, args.build, args.threads, folder, args.option)
    seconds, products = {k: [] for k in contestants if k != "gemm"}, []
    for _ in range(args.rounds):
        for kind, contestant in contestants.items():
            if kind == "gemm":
                products += contestant.steps(5)
            else:
                seconds[kind] += contestant.steps(args.steps)
    for contestant in contestants.values():
        contestant.close()
    rate = max(flops / taken for flops, taken in products)
    report(case, seconds, rate, flops_of_a_step(name, batch, seq_len), batch * seq_len, contestants.get("milepost"))


def report(case, seconds, rate, flops, tokens, milepost):
    base = min(seconds["titan"]) if "titan" in seconds else None
    for kind in [k for k in ("milepost", *PEERS) if k in seconds]:
        ratio = f"{base / min(seconds[kind]):.2f}" if base else ""
        target = f">= {TARGETS[case]}" if kind == "milepost" and case in TARGETS else ""
        print(f"| {case} | {PEERS.get(kind, kind)} | {figure(seconds[kind], tokens)} | {ratio} | {target} | {rate / 1e9:.0f} | "
              f"{flops / min(seconds[kind]) / rate:.0%} |", flush=True)
    if milepost:
        total = sum(milepost.parts.values())
        outside = 1 - sum(milepost.parts[part] for part in ("forward", "backward", "optimizer")) / total
        shares = ", ".join(f"{name} {value / total:.1%}" for name, value in sorted(milepost.parts.items(), key=lambda p: -p[1]))
        print(f"| | of milepost's step | {shares}; outside model and optimizer {outside:.1%} (target <= 5 %) | | | | |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="MODEL-DTYPE-ROWSxLENGTH, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of each contestant in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--without", nargs="*", default=[], choices=["milepost", "eager", "titan"])
    parser.add_argument("--also", nargs="*", default=[], choices=["flex"])
    parser.add_argument("--option", nargs="*", default=[], help="further options of milepost-train, as --option=--training.max-norm=2")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve, args.cases, args.threads)
    print(f"{args.threads} threads, {args.rounds} rounds of {args.steps} steps, load average {os.getloadavg()[0]:.1f}\n")
    print("| model, dtype, rows | trainer | tokens/s of the fastest step (median) | x TorchTitan | target | GEMM GFLOP/s | utilisation |\n"
          "|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for case in args.cases.split(","):
            run(case, args, folder)


if __name__ == "__main__":
    main()
