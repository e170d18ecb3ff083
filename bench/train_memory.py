#!/usr/bin/env python3
"""Peak memory of training beside what the training state and its activations take.

    bench/train_memory.py [--build build/release] [--cases deepseek_v3-float32-4x512,...]

Measured: the most memory that the process had, as the system counted it, less the most of a run of no steps, which loads libtorch, reads the
configuration and builds the model without memory; and the same of anonymous memory alone, without the pages of libtorch's code that training
is the first to touch. Expected: bench/train_models.py, from the sizes alone. Target: within 25 %.
"""
import argparse
import os
import pathlib
import subprocess
import tempfile
import time

import train
from train_models import memory_bytes

MIB = 1 << 20


def peak_bytes(command, environment):
    """(resident, of it anonymous): the first as the system counted it, the second sampled."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        anonymous, ended = 0, 0
        while not ended:
            anonymous = max(anonymous, anonymous_bytes(process.pid))
            time.sleep(0.01)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{output.read()[-3000:]}")
    return usage.ru_maxrss * 1024, anonymous


def anonymous_bytes(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def measure(case, build, threads, folder):
    milepost = train.Milepost(case, build, threads, folder, [])
    data = pathlib.Path(folder) / "data.jsonl"
    train.write_one_document(data, 8 * milepost.tokens)

    def run(steps):
        command = [*milepost.command, "--dataloader.dataset-path", str(data), "--training.steps", str(steps), "--dump-folder", str(folder),
                   "activation-checkpoint:none"]
        return peak_bytes(command, milepost.environment)
    return [most - start for most, start in zip(run(4), run(0))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(train.CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=train.ROOT / "build/release")
    args = parser.parse_args()
    print("| model, dtype, rows | peak less start-up, MiB | of it anonymous | parameters | gradients | moments | activations | sum | "
          "measured / sum | anonymous / sum |\n|---|---|---|---|---|---|---|---|---|---|")
    for case in args.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            resident, anonymous = measure(case, args.build, args.threads, folder)
        parts = memory_bytes(*train.parse(case))
        cells = " | ".join(f"{value / MIB:.0f}" for value in (*parts.values(), sum(parts.values())))
        total = sum(parts.values())
        print(f"| {case} | {resident / MIB:.0f} | {anonymous / MIB:.0f} | {cells} | {resident / total:.2f} | {anonymous / total:.2f} |", flush=True)


if __name__ == "__main__":
    main()
