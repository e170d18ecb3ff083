#!/usr/bin/env python3
"""What a checkpoint costs the training that goes on: beside torch's `async_save` in a loop of the same model, interleaved.

    .venv/bin/python bench/save_time.py [--where disk tmpfs] [--steps short long] [--build build/release]

A llama3 of 133 M parameters, 1.6 GB of state with AdamW's. Short steps are shorter than a save in the background, long ones longer.
Lost, a save: (time of steps with saves - as many of the median step without) / saves. Of it the pause: until training goes on. A warm memcpy of
the state, and what the disk takes of it (written around the page cache and synced by two threads), are of the same run.
"""
import argparse
import json
import mmap
import os
import pathlib
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
SEQ_LEN = {"short": 64, "long": 1024}
INTERVAL = {"short": 16, "long": 2}  # steps from save to save
SAVES = 3                            # that count; the first one is left out
MODES = ["async", "async_with_pinned_mem"]


def milepost(args, folder, mode, steps):
    """([seconds of a step], [pause of a save], [seconds of a save]) of a run of its own."""
    configuration = folder / "model.json"
    configuration.write_text(json.dumps({
        "module": "llama3", "config": "llama3_debugmodel",
        "model": {"name": "llama3", "flavor": "debugmodel", "vocab_size": VOCABULARY, "dim": SHAPE["dim"], "n_layers": SHAPE["layers"],
                  "n_heads": SHAPE["heads"], "n_kv_heads": SHAPE["heads"], "head_dim": SHAPE["dim"] // SHAPE["heads"], "hidden_dim": SHAPE["hidden"],
                  "rope": {"theta": 10000.0, "max_seq_len": SEQ_LEN[steps], "scaling": "none"}},
        "training": {"local_batch_size": 1, "seq_len": SEQ_LEN[steps], "mixed_precision_param": "float32"}, "metrics": {"log_freq": 1}}))
    dump = pathlib.Path(tempfile.mkdtemp(dir=folder))
    every = INTERVAL[steps]
    count = every * (SAVES + 2) if mode else every + 3
    flags = ["--checkpoint.enable", "--checkpoint.interval", every, "--checkpoint.async-mode", mode, "--checkpoint.keep-latest-k", 2] if mode else []
    command = [args.build / "train/milepost-train", "--config-file", configuration, "--hf-assets-path", ROOT / "tests/assets/tokenizer",
               "--dataloader.dataset", "c4_test", "--training.steps", count, "--dump-folder", dump, *flags, "activation-checkpoint:none"]
    done = subprocess.run([str(word) for word in command], env={**os.environ, "OMP_NUM_THREADS": str(THREADS), "MILEPOST_ROOT": str(ROOT)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:])
    seconds = [json.loads(line)["seconds"]["total"] for line in next(dump.rglob("metrics.jsonl")).open()]
    events = [json.loads(line) for path in dump.rglob("checkpoint-events.jsonl") for line in path.open()]
    shutil.rmtree(dump)
    committed = [event for event in events if event["event"] == "committed"][1:-1]
    # From the step of the second save on (its save ends the step), up to before that of the last one, which is synchronous.
    counted = seconds[2 * every - 1:-1] if mode else seconds[2:]
    return counted, [event["pause_seconds"] for event in committed], [event["seconds"] for event in committed]


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
        for _ in range(2):
            self.trainer.step()

    def state(self):
        optimizer = self.trainer.optimizer.state_dict()["state"]
        return {"model": self.trainer.model.state_dict(), "optimizer": {str(i): moments for i, moments in optimizer.items()}}

    def run(self, folder):
        """The same three lists, without (folder None) and with saves."""
        import torch.distributed.checkpoint as dcp
        future, seconds, pauses, saves = None, [], [], []
        count = self.every * (SAVES + 2) - 1 if folder else self.every + 1
        for step in range(1, count + 1):
            start = time.perf_counter()
            self.trainer.step()
            if folder and step % self.every == 0:
                if future:
                    future.result()
                shutil.rmtree(folder, ignore_errors=True)
                begun = time.perf_counter()
                future = dcp.async_save(self.state(), checkpoint_id=str(folder))
                pauses.append(time.perf_counter() - begun)
                future.add_done_callback(lambda _, begun=begun: saves.append(time.perf_counter() - begun))
            seconds.append(time.perf_counter() - start)
        if future:
            future.result()
            shutil.rmtree(folder)
        return (seconds[2 * self.every - 1:], pauses[1:], saves[1:]) if folder else (seconds, pauses, saves)


def serve(steps):
    answers, sys.stdout = sys.stdout, sys.stderr
    loop = TorchLoop(steps)
    for line in sys.stdin:
        print(json.dumps(loop.run(pathlib.Path(line.strip()) if line.strip() else None)), file=answers, flush=True)


class Torch:
    def __init__(self, steps):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", steps], env={**os.environ, "OMP_NUM_THREADS": str(THREADS)},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, folder):
        self.process.stdin.write(f"{folder or ''}\n")
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


def lost(with_saves, without, saves):
    return (sum(with_saves) - len(with_saves) * statistics.median(without)) / saves


def measure(args, where, steps):
    with tempfile.TemporaryDirectory(dir=args.tmpfs if where == "tmpfs" else args.disk) as name:
        folder = pathlib.Path(name)
        memcpy, write = limits(folder)
        peer = Torch(steps)
        contestants = {"torch async_save": peer.run, **{f"milepost {mode}": lambda path, mode=mode: milepost(args, folder, path and mode, steps)
                                                        for mode in MODES}}
        runs = {kind: ([], [], [], []) for kind in contestants}
        for _ in range(args.rounds):
            for kind, run in contestants.items():
                runs[kind][0].extend(run(None)[0])
                for results, more in zip(runs[kind][1:], run(folder / "saved"), strict=True):
                    results.append(more)
        peer.close()
    base = None
    for kind, (without, with_saves, pauses, saves) in runs.items():
        costs = [lost(seconds, without, SAVES) for seconds in with_saves]
        cost, pause = statistics.median(costs), statistics.median(sum(pauses, []))
        base = base or cost
        print(f"| {where}, {steps} steps | {kind} | {statistics.median(without):.2f} | {cost:.2f} ({min(costs):.2f} to {max(costs):.2f}) | {cost / base:.2f} | "
              f"{pause:.3f} | {pause / memcpy:.2f} | {cost - pause:.2f} | {statistics.median(sum(saves, [])):.2f} | "
              f"{statistics.median(sum(saves, [])) / write:.2f} |", flush=True)


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
    print("| where | who | step, s | lost a save, s (rounds) | x torch | pause, s | x memcpy | slowed down by, s | a save, s | x limit |\n" + "|---" * 10 + "|")
    for where in args.where:
        for steps in args.steps:
            measure(args, where, steps)


if __name__ == "__main__":
    main()
