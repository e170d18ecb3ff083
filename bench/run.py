#!/usr/bin/env python3
"""Saves and loads of one training state by Milepost, by the peers, and by the plainest programs, in interleaved rounds.

    bench/run.py                       # everything at 1.6 GB, and the small state
    bench/run.py save load --mib 512   # some jobs, a smaller state

Each round runs every case of a job once, so that a busy minute hits all of them alike. The table gives minimum (median) seconds,
GB/s at the minimum, and the ratio to the limit: our minimum over the minimum of the fastest limit of the same job.
Needs a release build (build/release) and torch and safetensors in the interpreter that runs it.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20


class Server:
    """One or several processes that answer every command line with a line of JSON; the slowest counts."""

    def __init__(self, commands):
        self.processes = [
            subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for argv, env in commands
        ]

    def __call__(self, command):
        for process in self.processes:
            process.stdin.write(command + "\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for process in self.processes]
        for answer in answers:
            if "error" in answer:
                raise SystemExit(f"{command}: {answer['error']}")
        out = dict(answers[0])
        out["seconds"] = max(answer["seconds"] for answer in answers)
        out["cpu_seconds"] = sum(answer["cpu_seconds"] for answer in answers)
        return out

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()


def milepost_server(build):
    return Server([([str(build / "bench" / "state_bench")], {})])


def torch_server(world):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Server([
        ([sys.executable, str(ROOT / "bench" / "torch_peer.py")],
         {"RANK": str(r), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "2"})
        for r in range(world)
    ])


class Case:
    def __init__(self, name, run, before=None, after=None, limit=False):
        self.name, self.run, self.before, self.after, self.limit = name, run, before, after, limit
        self.answers = []


def run_rounds(title, nbytes, cases, rounds):
    for r in range(-1, rounds):
        for case in cases:
            if case.before:
                case.before()
            answer = case.run()
            if case.after:
                case.after()
            if r >= 0:
                case.answers.append(answer)
    limits = [min(a["seconds"] for a in c.answers) for c in cases if c.limit]
    limit_medians = [statistics.median(a["seconds"] for a in c.answers) for c in cases if c.limit]
    print(f"\n### {title} ({nbytes / 1e9:.3f} GB, {rounds} rounds)\n")
    print("| case | seconds min (median) | GB/s | CPU s | x limit (medians) |\n|---|---|---|---|---|")
    for case in cases:
        seconds = [a["seconds"] for a in case.answers]
        best, median = min(seconds), statistics.median(seconds)
        ratio = f"{best / min(limits):.2f} ({median / min(limit_medians):.2f})" if limits else ""
        cpu = min(a["cpu_seconds"] for a in case.answers)
        extra = ""
        if "read" in case.answers[0] and case.answers[0]["wanted"]:
            extra = f"; read {case.answers[0]['read'] / case.answers[0]['wanted']:.3f} x wanted"
        print(f"| {case.name}{extra} | {best:.4f} ({median:.4f}) | {nbytes / best / 1e9:.2f} | {cpu:.3f} | {ratio} |", flush=True)


def save_job(args, ours, peer, peer2, nbytes, where, folder, label):
    sync = "sync" if where == "disk" else "nosync"
    def fresh(name):
        path = f"{folder}/{name}"
        return path, (lambda: shutil.rmtree(path, ignore_errors=True))
    cases = []
    def add(name, command, server, path_name, limit=False):
        path, clean = fresh(path_name)
        cases.append(Case(name, lambda: server(command.format(path=path)), clean, clean, limit))
    add("limit: 1 thread", f"write {{path}} 1 buffered {sync}", ours, "l1", True)
    add("limit: 2 threads, 2 files", f"write {{path}} 2 buffered {sync}", ours, "l2", True)
    if where == "disk":
        add("limit: O_DIRECT, 2 threads, 2 files", f"write {{path}} 2 direct {sync}", ours, "ld", True)
    add("milepost, 1 rank", f"save {{path}} 1 0 {sync}", ours, "m1")
    add("milepost, 1 rank, with hashes", f"save {{path}} 1 0 {sync} hash", ours, "mh")
    add("milepost, 1 rank, 1 file", f"save {{path}} 1 1 {sync}", ours, "m2")
    add("milepost, 2 ranks", f"save {{path}} 2 0 {sync}", ours, "m3")
    add("torch dcp.save, 1 rank", "save {path} 1", peer, "t1")
    add("torch dcp.save, 1 rank, thread_count=2", "save {path} 2", peer, "t2")
    if peer2:
        add("torch dcp.save, 2 ranks", "save {path} 1", peer2, "t3")
    run_rounds(f"Save, {label}, {where}{', with sync' if where == 'disk' else ''}", nbytes, cases, args.rounds)


def load_job(args, ours, peer, peer2, nbytes, where, folder, label):
    raw, one, two, theirs = (f"{folder}/{n}" for n in ("raw", "one", "two", "theirs"))
    ours(f"write {raw}2 2 buffered nosync")
    ours(f"write {raw}1 1 buffered nosync")
    ours(f"save {one} 1 1 nosync")
    ours(f"save {two} 2 1 nosync")
    peer(f"save {theirs} 1")
    cases = [
        Case("limit: 1 thread", lambda: ours(f"read {raw}1"), limit=True),
        Case("limit: 2 threads, 2 files", lambda: ours(f"read {raw}2"), limit=True),
        Case("milepost 1 -> 1", lambda: ours(f"load {one} 1")),
        Case("milepost 1 -> 1, torch's files", lambda: ours(f"load {theirs} 1")),
        Case("milepost 2 -> 2", lambda: ours(f"load {two} 2")),
        Case("milepost 1 -> 2", lambda: ours(f"load {one} 2")),
        Case("milepost 2 -> 1", lambda: ours(f"load {two} 1")),
        Case("torch dcp.load 1 -> 1", lambda: peer(f"load {theirs}")),
        Case("torch dcp.load 2 -> 1", lambda: peer(f"load {two}")),
    ]
    if peer2:
        cases.append(Case("torch dcp.load 1 -> 2", lambda: peer2(f"load {theirs}")))
    run_rounds(f"Load, {label}, {where}, warm", nbytes, cases, args.rounds)
    if where == "disk" and nbytes > 500 * MIB:
        cold = [
            Case("limit: 2 threads, 2 files", lambda: ours(f"read {raw}2"), lambda: ours(f"drop {raw}2"), limit=True),
            Case("milepost 1 -> 1", lambda: ours(f"load {one} 1"), lambda: ours(f"drop {one}")),
            Case("milepost 2 -> 2", lambda: ours(f"load {two} 2"), lambda: ours(f"drop {two}")),
            Case("milepost 1 -> 2", lambda: ours(f"load {one} 2"), lambda: ours(f"drop {one}")),
            Case("torch dcp.load 1 -> 1", lambda: peer(f"load {theirs}"), lambda: ours(f"drop {theirs}")),
        ]
        run_rounds(f"Load, {label}, {where}, cold", nbytes, cold, args.rounds)
    for path in (raw + "1", raw + "2", one, two, theirs):
        shutil.rmtree(path)


def safetensors_job(args, ours, peer, nbytes, folder):
    mine, theirs, raw = f"{folder}/m.safetensors", f"{folder}/t.safetensors", f"{folder}/raw"
    weights = nbytes // 7
    def remove(path):
        return lambda: os.path.exists(path) and os.unlink(path)
    run_rounds("Safetensors save (bf16 weights), tmpfs", weights, [
        Case("limit: 1 thread", lambda: ours(f"write-weights {raw}1 1 buffered nosync"), limit=True),
        Case("limit: 2 threads, 2 files", lambda: ours(f"write-weights {raw}2 2 buffered nosync"), limit=True),
        Case("milepost", lambda: ours(f"safetensors-save {mine}"), remove(mine)),
        Case("safetensors save_file", lambda: peer(f"safetensors-save {theirs}"), remove(theirs)),
    ], args.rounds)
    run_rounds("Safetensors load into existing tensors, tmpfs, warm", weights, [
        Case("limit: 1 thread", lambda: ours(f"read-weights {raw}1"), limit=True),
        Case("limit: 2 threads, 2 files", lambda: ours(f"read-weights {raw}2"), limit=True),
        Case("milepost", lambda: ours(f"safetensors-load {mine}")),
        Case("safetensors safe_open + copy", lambda: peer(f"safetensors-load {theirs}")),
    ], args.rounds)
    os.unlink(mine)
    os.unlink(theirs)
    shutil.rmtree(raw + "1")
    shutil.rmtree(raw + "2")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=[], metavar="JOB", help="save, load, small, safetensors (default: all)")
    parser.add_argument("--mib", type=int, default=1524, help="size of the large state (default 1.6 GB)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tmpfs", default="/dev/shm")
    parser.add_argument("--disk", default=".")
    parser.add_argument("--where", default="tmpfs,disk")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    args = parser.parse_args()
    jobs = args.jobs or ["save", "load", "small", "safetensors"]
    folders = {w: f"{os.path.abspath(args.tmpfs if w == 'tmpfs' else args.disk)}/milepost-bench-{os.getpid()}" for w in args.where.split(",")}
    ours, peer, peer2 = milepost_server(args.build), torch_server(1), torch_server(2)
    try:
        for folder in folders.values():
            os.makedirs(folder)
        for label, mib, wanted in (("large state", args.mib, [j for j in jobs if j != "small"]), ("small state", 66, ["save", "load"] if "small" in jobs else [])):
            if not wanted:
                continue
            nbytes = ours(f"build {mib * MIB}")["bytes"]
            peer(f"build {mib * MIB}")
            peer2(f"build {mib * MIB}")
            for where, folder in folders.items():
                if label == "small state" and where == "disk":
                    continue
                if "save" in wanted:
                    save_job(args, ours, peer, peer2, nbytes, where, folder, label)
                if "load" in wanted:
                    load_job(args, ours, peer, peer2, nbytes, where, folder, label)
                if "safetensors" in wanted and where == "tmpfs":
                    safetensors_job(args, ours, peer, nbytes, folder)
    finally:
        for server in (ours, peer, peer2):
            server.close()
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
