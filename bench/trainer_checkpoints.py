#!/usr/bin/env python3
"""What synchronous saves and loads take in `milepost-train`, of one and several ranks, beside torch's dcp and the plainest programs.

    .venv/bin/python bench/trainer_checkpoints.py [--where tmpfs disk] [--rounds 3] [--build build/release]

The trainer's state is that of save_time.py (1.6 GB); the peers' and the limits' is bench/run.py's of that size. Seconds of a save are those of
its event, of a load those of the log: from the first look at the folder's step up to the last tensor. Every job is a run of its own, and rounds
are interleaved. Ranks share the machine's cores.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from run import Server, milepost_server, torch_server
from save_time import ROOT, THREADS, model_flags, state_bytes

SAVES = 3  # of a run; the first one is left out
LOADS = [(1, 1), (2, 2), (2, 1), (1, 2), (4, 3)]


def run_trainer(args, folder, ranks, *flags):
    """The ranks' output."""
    command = [args.build / "train/milepost-train", *model_flags(folder, 64), "--training.global-batch-size", ranks, "--dump-folder", folder, "--checkpoint.enable",
               "--checkpoint.keep-latest-k", 0, *flags, "activation-checkpoint:none"]
    port = str(20000 + os.getpid() % 20000)
    processes = [subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": str(max(1, THREADS // ranks)), "MILEPOST_ROOT": str(ROOT), "RANK": str(rank),
                                       "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                 for rank in range(ranks)]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("\n".join(output[-2000:] for output in outputs))
    return outputs


def saves(args, folder, ranks):
    """Seconds of each save but the first, which is left for the loads."""
    target = folder / f"by-{ranks}"
    shutil.rmtree(target, ignore_errors=True)
    run_trainer(args, target, ranks, "--checkpoint.interval", 1, "--training.steps", SAVES + 1, "--checkpoint.no-last-save-model-only")
    events = [json.loads(line) for line in (target / "checkpoint-events.jsonl").open()]
    for step in range(2, SAVES + 2):
        shutil.rmtree(target / f"checkpoint/step-{step}")
    return [event["seconds"] for event in events if event["event"] == "committed"][1:]


def load(args, folder, saved_by, ranks):
    target = folder / "loads"
    source = folder / f"by-{saved_by}/checkpoint/step-1"
    outputs = run_trainer(args, target, ranks, "--checkpoint.load-only", "--checkpoint.initial-load-path", source, "--checkpoint.no-initial-load-model-only",
                          "--training.steps", 2)
    shutil.rmtree(target)
    return max(float(re.search(r"Finished loading the checkpoint in ([\d.]+) seconds", output)[1]) for output in outputs)


def table(title, rows, limit):
    print(f"\n### {title}\n\n| case | seconds min (median) | x limit (medians) |\n|---|---|---|")
    least, middle = min(rows[limit]), statistics.median(rows[limit])
    for name, seconds in rows.items():
        print(f"| {name} | {min(seconds):.3f} ({statistics.median(seconds):.3f}) | {min(seconds) / least:.2f} ({statistics.median(seconds) / middle:.2f}) |", flush=True)


def measure(args, where):
    with tempfile.TemporaryDirectory(dir=args.tmpfs if where == "tmpfs" else args.disk) as name:
        folder = pathlib.Path(name)
        ours = milepost_server(args.build)
        ours(f"build {state_bytes()}")
        peers = {ranks: torch_server(ranks) for ranks in (1, 2)}
        for peer in peers.values():
            peer(f"build {state_bytes()}")
        save_rows, load_rows = {}, {}
        kind, sync = ("buffered", "nosync") if where == "tmpfs" else ("direct", "sync")

        def add(rows, key, seconds):
            rows.setdefault(key, []).extend(seconds)

        for _ in range(args.rounds):
            ours(f"write {folder}/raw 2 {kind} {sync}")  # once for memory that is not there yet
            shutil.rmtree(folder / "raw")
            for _ in range(2):
                add(save_rows, "limit: 2 threads, 2 files", [ours(f"write {folder}/raw 2 {kind} {sync}")["seconds"]])
                add(load_rows, "limit: 2 threads, 2 files", [ours(f"read {folder}/raw")["seconds"]])
                shutil.rmtree(folder / "raw")
            for ranks in (1, 2):
                add(save_rows, f"milepost-train, {ranks} ranks", saves(args, folder, ranks))
                for _ in range(2):
                    shutil.rmtree(folder / f"torch-{ranks}", ignore_errors=True)
                    add(save_rows, f"torch dcp.save, {ranks} ranks", [peers[ranks](f"save {folder}/torch-{ranks} 1")["seconds"]])
            saves(args, folder, 4)
            for saved_by, ranks in LOADS:
                add(load_rows, f"milepost-train, {saved_by} -> {ranks}", [load(args, folder, saved_by, ranks)])
                if saved_by in peers and ranks in peers:
                    add(load_rows, f"torch dcp.load, {saved_by} -> {ranks}", [peers[ranks](f"load {folder}/torch-{saved_by}")["seconds"]])
            for path in folder.iterdir():
                shutil.rmtree(path)
        for server in (ours, *peers.values()):
            server.close()
    table(f"Save by a run, {where}{', with sync' if where == 'disk' else ''}", save_rows, "limit: 2 threads, 2 files")
    table(f"Load by a run, {where}, warm", load_rows, "limit: 2 threads, 2 files")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", nargs="*", default=["tmpfs", "disk"], choices=["tmpfs", "disk"])
    parser.add_argument("--disk", default=None, help="a folder of a disk (the system's for temporary files)")
    parser.add_argument("--tmpfs", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    args = parser.parse_args()
    print(f"{state_bytes() / 1e9:.2f} GB, {args.rounds} rounds, load average {os.getloadavg()[0]:.1f}")
    for where in args.where:
        measure(args, where)


if __name__ == "__main__":
    main()
