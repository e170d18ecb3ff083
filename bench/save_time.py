#!/usr/bin/env python3
"""What a checkpoint costs the training that goes on: beside torch's `async_save` in a loop of the same model, interleaved.

    .venv/bin/python bench/save_time.py [--where disk tmpfs] [--steps short long] [--build build/release]

A llama3 of 133 M parameters, 1.6 GB of state with AdamW's. Short steps are shorter than a save in the background, long ones longer.
Lost, a save: the time of the steps from the one that saves up to the one in which the save ends, less as many medians of the other steps of
the same run. Of it the pause: until training goes on. A warm memcpy of the state, and what the disk takes of it (written around the page
cache and synced by two threads), are of the same run. Memory is how much the peak of the resident memory grows by saving so.
"""
import argparse
import json
import mmap
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPE = {"dim": 1024, "layers": 10, "heads": 16, "hidden": 2816}
VOCABULARY, THREADS = 2048, 2
SEQ_LEN = {"short": 64, "long": 512}
INTERVAL = {"short": 12, "long": 3}  # steps from save to save
SAVES = 5                            # that count; the first one is left out
MODES = ["async", "async_with_pinned_mem"]


def costs(seconds, pauses, saves, every):
    """{what: [of each save but the first]} of the steps of a run that ends before its last save is due; steps end with their saves."""
    affected = {}
    for number, (pause, save) in enumerate(zip(pauses, saves, strict=True), 1):
        first = last = number * every - 1
        elapsed = pause
        while elapsed < save and last + 1 < len(seconds):
            last += 1
            elapsed += seconds[last]
        affected[number] = range(first, last + 1)
    # The first steps and the first save find memory that is not there yet.
    quiet = set(range(every, len(seconds))) - {step for steps in affected.values() for step in steps}
    step = statistics.median(seconds[i] for i in quiet)
    lost = [sum(seconds[i] - step for i in affected[number]) for number in affected if number > 1]
    return {"step": [step], "lost": lost, "pause": pauses[1:], "save": saves[1:]}


def model_flags(folder, seq_len):
    """Of a trainer of that model; a file of its configuration goes into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "model.json"
    configuration.write_text(json.dumps({
        "module": "llama3", "config": "llama3_debugmodel",
        "model": {"name": "llama3", "flavor": "debugmodel", "vocab_size": VOCABULARY, "dim": SHAPE["dim"], "n_layers": SHAPE["layers"],
                  "n_heads": SHAPE["heads"], "n_kv_heads": SHAPE["heads"], "head_dim": SHAPE["dim"] // SHAPE["heads"], "hidden_dim": SHAPE["hidden"],
                  "rope": {"theta": 10000.0, "max_seq_len": seq_len, "scaling": "none"}},
        "training": {"local_batch_size": 1, "seq_len": seq_len, "mixed_precision_param": "float32"}, "metrics": {"log_freq": 1}}))
    return "--config-file", configuration, "--hf-assets-path", ROOT / "tests/assets/tokenizer", "--dataloader.dataset", "c4_test"


def milepost(args, folder, mode, steps):
    """A run of its own."""
    dump = pathlib.Path(tempfile.mkdtemp(dir=folder))
    every = INTERVAL[steps]
    command = [args.build / "train/milepost-train", *model_flags(dump, SEQ_LEN[steps]), "--training.steps", every * (SAVES + 2), "--dump-folder", dump,
               "--checkpoint.enable", "--checkpoint.interval", every, "--checkpoint.async-mode", mode, "--checkpoint.keep-latest-k", 2,
               "activation-checkpoint:none"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([str(word) for word in command], env={**os.environ, "OMP_NUM_THREADS": str(THREADS), "MILEPOST_ROOT": str(ROOT)},
                                   stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            log.seek(0)
            raise SystemExit(log.read()[-3000:])
    seconds = [json.loads(line)["seconds"]["total"] for line in next(dump.rglob("metrics.jsonl")).open()]
    events = [json.loads(line) for path in dump.rglob("checkpoint-events.jsonl") for line in path.open()]
    shutil.rmtree(dump)
    committed = [event for event in events if event["event"] == "committed"][:-1]  # the last one is synchronous
    of_run = costs(seconds[:-1], [event["pause_seconds"] for event in committed], [event["seconds"] for event in committed], every)
    return {**of_run, "memory": [usage.ru_maxrss * 1024]}


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class TorchLoop:
    """Steps of the same model in plain PyTorch, whose state `async_save` writes."""

    def __init__(self, steps):
        import torch
        import torch.distributed as dist
        from eager_models import Trainer
        torch.set_num_threads(THREADS)
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        self.trainer = Trainer("llama3", "float32", 1, SEQ_LEN[steps], SHAPE)
        self.every = INTERVAL[steps]
        self.least_memory = None  # before the first save
        for _ in range(2):
            self.trainer.step()

    def state(self):
        optimizer = self.trainer.optimizer.state_dict()["state"]
        return {"model": self.trainer.model.state_dict(), "optimizer": {str(i): moments for i, moments in optimizer.items()}}

    def run(self, folder):
        import torch.distributed.checkpoint as dcp
        future, seconds, pauses, saves = None, [], [], []
        self.least_memory = self.least_memory or peak_memory()
        for step in range(1, self.every * (SAVES + 2)):
            start = time.perf_counter()
            self.trainer.step()
            if step % self.every == 0:
                if future:
                    future.result()
                shutil.rmtree(folder, ignore_errors=True)
                begun = time.perf_counter()
                future = dcp.async_save(self.state(), checkpoint_id=str(folder))
                pauses.append(time.perf_counter() - begun)
                future.add_done_callback(lambda _, begun=begun: saves.append(time.perf_counter() - begun))
            seconds.append(time.perf_counter() - start)
        future.result()
        shutil.rmtree(folder)
        return {**costs(seconds, pauses, saves, self.every), "memory": [peak_memory() - self.least_memory]}


def serve(steps):
    answers, sys.stdout = sys.stdout, sys.stderr
    loop = TorchLoop(steps)
    for line in sys.stdin:
        print(json.dumps(loop.run(pathlib.Path(line.strip()))), file=answers, flush=True)


class Torch:
    def __init__(self, steps):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", steps], env={**os.environ, "OMP_NUM_THREADS": str(THREADS)},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, folder):
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("the peer ended early")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def state_bytes():
    dim, hidden, layers = SHAPE["dim"], SHAPE["hidden"], SHAPE["layers"]
    return 12 * (layers * (4 * dim * dim + 3 * dim * hidden + 2 * dim) + 2 * VOCABULARY * dim + dim)


def in_two_threads(work):
    threads = [threading.Thread(target=work, args=(part,)) for part in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def limits(folder):
    """(memcpy, write) of the state, seconds; the best of five and of three."""
    import numpy
    size = state_bytes() // THREADS // 4096 * 4096
    source, copy = ([numpy.full(size, value, numpy.uint8) for _ in range(THREADS)] for value in (1, 2))
    memcpy = min(in_two_threads(lambda part: numpy.copyto(copy[part], source[part])) for _ in range(5))
    del source, copy
    block = mmap.mmap(-1, 8 << 20)
    block.write(os.urandom(8 << 20))

    def write(part):
        flags = os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if "shm" not in str(folder) else 0)
        file = os.open(folder / f"limit-{part}", flags, 0o600)
        for _ in range(size // (8 << 20)):
            os.write(file, block)
        os.fsync(file)
        os.close(file)
    seconds = []
    for _ in range(3):
        seconds.append(in_two_threads(write))
        for part in range(THREADS):
            (folder / f"limit-{part}").unlink()
    return memcpy, min(seconds)


def measure(args, where, steps):
    with tempfile.TemporaryDirectory(dir=args.tmpfs if where == "tmpfs" else args.disk) as name:
        folder = pathlib.Path(name)
        memcpy, write = limits(folder)
        peer = Torch(steps)
        contestants = {"torch async_save": peer.run, **{f"milepost {mode}": lambda path, mode=mode: milepost(args, path.parent, mode, steps) for mode in MODES}}
        runs = {kind: [] for kind in contestants}
        for _ in range(args.rounds):
            for kind, run in contestants.items():
                runs[kind].append(run(folder / "saved"))
        peer.close()
        waiting = milepost(args, folder, "disabled", steps)["memory"][0]
    base = None
    for kind, of_rounds in runs.items():
        all_of = {what: sum((costs[what] for costs in of_rounds), []) for what in of_rounds[0]}
        step, lost, pause, save = (statistics.median(all_of[what]) for what in ("step", "lost", "pause", "save"))
        low, _, high = statistics.quantiles(all_of["lost"], n=4)
        base = base or lost
        memory = max(all_of["memory"]) - (waiting if kind.startswith("milepost") else 0)
        print(f"| {where}, {steps} steps | {kind} | {step:.2f} | {lost:.2f} ({low:.2f} to {high:.2f}) | {lost / base:.2f} | {pause:.3f} | "
              f"{pause / memcpy:.2f} | {lost - pause:.2f} | {1 - (lost - pause) / (save - pause):.0%} | {save:.2f} | {save / write:.2f} | "
              f"{memory / state_bytes():.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--where", nargs="*", default=["disk", "tmpfs"], choices=["disk", "tmpfs"])
    parser.add_argument("--steps", nargs="*", default=["short", "long"], choices=["short", "long"])
    parser.add_argument("--disk", default=None, help="a folder of a disk (the system's for temporary files)")
    parser.add_argument("--tmpfs", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve)
    print(f"{state_bytes() / 1e9:.2f} GB of state, {THREADS} threads, {args.rounds} rounds of {SAVES} saves, load average {os.getloadavg()[0]:.1f}\n")
    print("| where | who | step, s | lost a save, s (quartiles) | x torch | pause, s | x memcpy | slowed down by, s | speed meanwhile | a save, s | x limit | memory x state |\n"
          + "|---" * 12 + "|")
    for where in args.where:
        for steps in args.steps:
            measure(args, where, steps)


if __name__ == "__main__":
    main()
