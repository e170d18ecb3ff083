#!/usr/bin/env python3
"""Imports and exports of a model by Milepost, by torchtitan, and by the plainest streaming program, in interleaved rounds.

    bench/models.py --peer .venv/bin/python          # all jobs
    bench/models.py import export --gb 0.4 --where tmpfs
    bench/models.py --full-16b                       # 31.4 GB there and back; needs 64 GB of disk and half an hour

import    Hugging Face -> DCP: bf16 -> float32, bf16 -> bf16, fp8 -> bf16
export    DCP -> Hugging Face: bf16 -> bf16, float32 -> bf16, float32 -> float32
pth       DCP -> one torch file, float32
memory    conversions of a large model, bf16 and fp8, there and back, each under a limit on its data segment
plan      the 671B model as sparse files: how long an import takes to plan

Models are synthetic DeepSeek-V3 (`milepost synth`). The source is in the page cache, the result is synced, and removed after every run. Seconds of Milepost are
those of the whole process, of torchtitan those of the conversion without imports, in a fresh process; its import has but one result, float32. The limit is
stream_limit, buffered or with O_DIRECT. Needs a release build (build/release), and torchtitan 0.3.0 in the interpreter that --peer names.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
BLOCK = 8 * MIB


def run_process(argv, folder, watched=False):
    """Seconds, CPU seconds and, if it is watched, the peak of anonymous memory (bytes, sampled) of a process, and the JSON that it printed."""
    peak, ended = 0, threading.Event()

    def watch(pid):
        nonlocal peak
        while not ended.wait(0.01):
            try:
                with open(f"/proc/{pid}/status") as status:
                    fields = dict(line.split(":", 1) for line in status)
                peak = max(peak, int(fields.get("RssAnon", "0 kB").split()[0]) * 1024)
            except (OSError, ValueError):
                return

    with tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder)
        watcher = threading.Thread(target=watch, args=(process.pid,)) if watched else None
        if watcher:
            watcher.start()
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        if watcher:
            watcher.join()
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"{' '.join(map(str, argv))}: exit status {process.returncode}\n{errors.read()[-2000:]}")
    try:
        printed = json.loads(text)
    except ValueError:
        printed = json.loads(text.splitlines()[-1])
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": peak, "printed": printed}


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def data_files(folder):
    return sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".distcp"))


def size_of(path):
    return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.iterdir())


def blocks(file, size, buffer):
    while size > 0:
        count = file.readinto(memoryview(buffer)[: min(size, len(buffer))])
        if count == 0:
            raise SystemExit(f"{file.name} ends too soon")
        size -= count
        yield memoryview(buffer)[:count]


def warm(folder):
    buffer = bytearray(BLOCK)
    for path in data_files(folder):
        with open(path, "rb", buffering=0) as file:
            for _ in blocks(file, path.stat().st_size, buffer):
                pass


def safetensors_header(path):
    """Name -> dtype, shape and offsets of each tensor, and where the data starts."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def unquantised_bytes(folder):
    total = 0
    for path in data_files(folder):
        for name, tensor in safetensors_header(path)[0].items():
            if tensor["dtype"] != "F8_E4M3" and not name.endswith("_scale_inv"):
                total += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    return total


def tensor_hashes(folder):
    """Name -> dtype, shape, SHA-256 of the data."""

    def of_file(path):
        header, start = safetensors_header(path)
        hashes, buffer = {}, bytearray(BLOCK)
        with open(path, "rb", buffering=0) as file:
            for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                begin, end = tensor["data_offsets"]
                file.seek(start + begin)
                digest = hashlib.sha256()
                for block in blocks(file, end - begin, buffer):
                    digest.update(block)
                hashes[name] = (tensor["dtype"], tuple(tensor["shape"]), digest.hexdigest())
        return hashes

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {name: digest for hashes in pool.map(of_file, data_files(folder)) for name, digest in hashes.items()}


@dataclass
class Case:
    name: str
    argv: list
    source: pathlib.Path
    result: pathlib.Path
    kind: str  # tool, limit or peer
    answers: list = field(default_factory=list)

    def run(self, count):
        warm(self.source)
        remove(self.result)
        if self.kind == "limit":
            self.result.mkdir()
        answer = run_process(self.argv, self.result.parent, watched=self.kind == "peer")
        remove(self.result)
        printed = answer["printed"]
        if self.kind == "tool":
            answer["peak_bytes"] = printed["peak_anonymous_bytes"]
        else:
            answer["seconds"], answer["cpu_seconds"] = printed["seconds"], printed["cpu_seconds"]
        if count:
            self.answers.append(answer)


class Bench:
    """One scratch folder, and the commands to run in it."""

    def __init__(self, args, where):
        self.args, self.where = args, where
        base = pathlib.Path(args.tmpfs if where == "tmpfs" else args.disk).resolve()
        self.folder = base / f"milepost-models-{os.getpid()}"
        self.tool = args.build.resolve() / "cli" / "milepost"

    def __enter__(self):
        self.folder.mkdir()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def need(self, num_bytes):
        free = shutil.disk_usage(self.folder).free
        if free < num_bytes:
            raise SystemExit(f"{self.folder} has {free / 1e9:.1f} GB of free space; this job takes {num_bytes / 1e9:.1f} GB")

    def milepost(self, *argv, prefix=()):
        return run_process([*prefix, self.tool, *argv, "--json"], self.folder)

    def synth(self, name, num_bytes, *options):
        """Several shards, as torchtitan does not know the name of a single one."""
        shard = max(1, min(512_000_000, int(num_bytes / 3)))
        self.milepost("synth", "deepseek_v3", name, "--bytes", int(num_bytes), "--shard-size", shard, *options)
        return self.folder / name

    def cases(self, source, argv, mode, peer=None, plain=0, result="out"):
        """The limits of `mode`, then milepost with the arguments `argv`, then the peer's step."""
        result = self.folder / result
        limit = [self.args.build.resolve() / "bench" / "stream_limit", mode, result, *data_files(source), "--plain", plain]
        cases = [Case("limit: buffered", limit, source, result, "limit")]
        if self.where == "disk":
            cases.append(Case("limit: O_DIRECT", [*limit, "--direct"], source, result, "limit"))
        command, *options = argv
        cases.append(Case(f"milepost {' '.join(argv)}", [self.tool, command, source, result, *options, "--json"], source, result, "tool"))
        if peer and self.args.peer:
            step, *options = peer
            script = [self.args.peer, ROOT / "bench" / "titan_peer.py", step, source, result, *options]
            cases.append(Case(f"torchtitan {step}", script, source, result, "peer"))
        return cases

    def rounds(self, title, source, cases):
        for r in range(-1, self.args.rounds):
            for case in cases:
                if r >= 0 or case.kind != "peer":
                    case.run(r >= 0)
        source_bytes = sum(p.stat().st_size for p in data_files(source))
        best = {case.name: min(a["seconds"] for a in case.answers) for case in cases}
        median = {case.name: statistics.median(a["seconds"] for a in case.answers) for case in cases}
        limits = [case.name for case in cases if case.kind == "limit"]
        print(f"\n### {title}, {self.where} ({source_bytes / 1e9:.3f} GB, {self.args.rounds} rounds, load average {os.getloadavg()[0]:.1f})\n")
        print("| case | seconds min (median) | GB/s | CPU s | x limit (medians) | peak anonymous MiB |\n|---|---|---|---|---|---|")
        for case in cases:
            ratio = f"{best[case.name] / min(best[n] for n in limits):.2f} ({median[case.name] / min(median[n] for n in limits):.2f})"
            cpu = min(a["cpu_seconds"] for a in case.answers)
            peak = "" if case.kind == "limit" else f"{max(a['peak_bytes'] for a in case.answers) / MIB:.0f}"
            print(f"| {case.name} | {best[case.name]:.3f} ({median[case.name]:.3f}) | {source_bytes / best[case.name] / 1e9:.2f} | {cpu:.2f} "
                  f"| {ratio} | {peak} |", flush=True)


def import_job(bench):
    hf = bench.synth("hf", bench.args.gb * 1e9)
    bench.rounds("HF -> DCP, bf16 -> float32", hf, bench.cases(hf, ["import", "--dtype", "float32"], "widen", ["from_hf"]))
    bench.rounds("HF -> DCP, bf16 -> bf16", hf, bench.cases(hf, ["import"], "copy"))
    remove(hf)
    hf = bench.synth("hf", bench.args.gb * 0.5e9, "--fp8")  # about the same model
    cases = bench.cases(hf, ["import"], "fp8", ["from_hf", "--fp8"], unquantised_bytes(hf))
    bench.rounds("HF -> DCP, fp8 -> bf16", hf, cases)
    remove(hf)


def export_job(bench):
    hf, narrow, wide = bench.synth("hf", bench.args.gb * 1e9), bench.folder / "bf16", bench.folder / "float32"
    bench.milepost("import", hf, narrow)
    bench.milepost("import", hf, wide, "--dtype", "float32")
    for label, source, options, mode, dtype in (
        ("bf16 -> bf16", narrow, [], "copy", "bfloat16"),
        ("float32 -> bf16", wide, ["--dtype", "bfloat16"], "narrow", "bfloat16"),
        ("float32 -> float32", wide, [], "copy", "float32"),
    ):
        peer = ["to_hf", "--assets", hf, "--dtype", dtype]
        bench.rounds(f"DCP -> HF, {label}", source, bench.cases(source, ["export", *options, "--like", "hf"], mode, peer))
    for path in (hf, narrow, wide):
        remove(path)


def pth_job(bench):
    hf, wide = bench.synth("hf", bench.args.gb * 1e9), bench.folder / "float32"
    bench.milepost("import", hf, wide, "--dtype", "float32")
    remove(hf)
    bench.rounds("DCP -> torch file, float32", wide, bench.cases(wide, ["convert", "--to", "torch"], "copy", ["to_pth"], result="out.pth"))
    remove(wide)


class Steps:
    """A table of conversions that run once, one after the other."""

    def __init__(self, bench, title, prefix=()):
        self.bench, self.prefix = bench, prefix
        print(f"\n### {title}, {bench.where} (load average {os.getloadavg()[0]:.1f})\n")
        print("| step | GB in | GB out | s | GB/s | peak anonymous MiB |\n|---|---|---|---|---|---|")

    def run(self, label, command, source, result, *options):
        paths = [p for p in (source, result) if p]
        answer = self.bench.milepost(command, *(["deepseek_v3"] if command == "synth" else []), *paths, *options, prefix=self.prefix)
        printed, seconds = answer["printed"], answer["seconds"]
        moved = max(printed["bytes_in"], printed["bytes_out"])
        rate = "" if printed["dry_run"] or "--sparse" in options else f"{moved / seconds / 1e9:.2f}"
        print(f"| {label} | {printed['bytes_in'] / 1e9:.2f} | {printed['bytes_out'] / 1e9:.2f} | {seconds:.1f} | {rate} "
              f"| {printed['peak_anonymous_bytes'] / MIB:.0f} |", flush=True)

    def note(self, label, seconds, num_bytes):
        print(f"| {label} | {num_bytes / 1e9:.2f} | | {seconds:.1f} | {num_bytes / seconds / 1e9:.2f} | |", flush=True)


def memory_job(bench):
    num_bytes, limit = int(bench.args.memory_gb * 1e9), bench.args.limit_mib
    bench.need(5.3 * num_bytes)
    steps = Steps(bench, f"Memory, each under prlimit --data={limit} MiB", ["prlimit", f"--data={limit * MIB}"])
    steps.run("synth bf16", "synth", None, "hf", "--bytes", num_bytes)
    steps.run("import bf16 -> bf16", "import", "hf", "dcp")
    steps.run("export bf16 -> bf16", "export", "dcp", "back", "--like", "hf")
    for name in ("dcp", "back"):
        remove(bench.folder / name)
    steps.run("import bf16 -> float32", "import", "hf", "dcp", "--dtype", "float32")
    steps.run("export float32 -> bf16", "export", "dcp", "back", "--like", "hf", "--dtype", "bfloat16")
    remove(bench.folder / "back")
    steps.run("export float32 -> float32", "export", "dcp", "back", "--like", "hf")
    remove(bench.folder / "back")
    steps.run("convert float32 -> torch file", "convert", "dcp", "out.pth", "--to", "torch")
    for name in ("hf", "dcp", "out.pth"):
        remove(bench.folder / name)
    steps.run("synth fp8", "synth", None, "hf", "--bytes", num_bytes, "--fp8")
    steps.run("import fp8 -> bf16", "import", "hf", "dcp")
    steps.run("export bf16 -> fp8", "export", "dcp", "back", "--like", "hf", "--fp8")
    remove(bench.folder / "back")
    steps.run("export bf16 -> bf16", "export", "dcp", "back", "--config", "hf")
    for name in ("hf", "dcp", "back"):
        remove(bench.folder / name)


def plan_job(bench):
    steps = Steps(bench, "Planning: 671B as fp8, sparse files")
    steps.run("synth --sparse", "synth", None, "hf", "--flavor", "671B", "--fp8", "--sparse")
    steps.run("import --dry-run", "import", "hf", "dcp", "--dry-run")
    remove(bench.folder / "hf")


def full_round_trip(bench, flavor, num_bytes):
    """bf16 -> DCP -> bf16 of a whole flavor; the source goes before the way back, so that the disk never holds more than two copies."""
    bench.need(2.02 * num_bytes)
    hf, dcp, back = bench.folder / "hf", bench.folder / "dcp", bench.folder / "back"
    steps = Steps(bench, f"The whole {flavor} there and back")
    steps.run("synth", "synth", None, hf, "--flavor", flavor)

    def hashed(folder, label):
        start, files = time.perf_counter(), sum(p.stat().st_size for p in data_files(folder))
        hashes = tensor_hashes(folder)
        steps.note(f"{label}: SHA-256 of {len(hashes)} tensors (Python)", time.perf_counter() - start, files)
        return hashes

    before = hashed(hf, "source")
    steps.run("import", "import", hf, dcp)
    for path in data_files(hf):  # what is left tells --like the names of shards
        path.unlink()
    steps.run("export --like", "export", dcp, back, "--like", hf)
    remove(dcp)
    after = hashed(back, "result")
    differing = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if differing:
        raise SystemExit(f"{len(differing)} tensors differ after the round trip, first {differing[0]}")
    print(f"\nall {len(before)} tensors have the hashes that they had")


def usable_peer(python):
    probe = "import importlib.metadata as m; import torchtitan.models.deepseek_v3; assert m.version('torchtitan') == '0.3.0', 'another version'"
    done = subprocess.run([python, "-c", probe], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"without torchtitan 0.3.0: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return done.returncode == 0


def main():
    jobs = {"import": import_job, "export": export_job, "pth": pth_job, "memory": memory_job, "plan": plan_job}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=[], metavar="JOB", help=f"{', '.join(jobs)} (default: all)")
    parser.add_argument("--gb", type=float, default=1.6, help="size of the bf16 model (default 1.6)")
    parser.add_argument("--memory-gb", type=float, default=8.5, help="size of the models of the job memory (default 8.5)")
    parser.add_argument("--limit-mib", type=int, default=256, help="limit on the data segment in the job memory (default 256)")
    parser.add_argument("--full-16b", action="store_true", help="the whole 16B flavor there and back; alone unless jobs are named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tmpfs", default="/dev/shm")
    parser.add_argument("--disk", default=".")
    parser.add_argument("--where", default="disk", help="tmpfs, disk or both with a comma, for import, export and pth (default disk)")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with torchtitan 0.3.0")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    args = parser.parse_args()
    if unknown := set(args.jobs) - set(jobs):
        parser.error(f"no such job: {', '.join(sorted(unknown))}")
    if args.peer and not usable_peer(args.peer):
        args.peer = None
    for name in args.jobs or ([] if args.full_16b else jobs):
        for where in ["disk"] if name in ("memory", "plan") else args.where.split(","):
            with Bench(args, where) as bench:
                jobs[name](bench)
    if args.full_16b:
        with Bench(args, "disk") as bench:
            full_round_trip(bench, "16B", 31_420_000_000)


if __name__ == "__main__":
    main()
