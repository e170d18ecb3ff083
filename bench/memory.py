#!/usr/bin/env python3
"""Peak memory of conversions of a large checkpoint, each run under a limit on its data segment.

    bench/memory.py                      # 8 GB
    bench/memory.py --gb 2 --limit-mib 256

The source is one safetensors file of bf16 tensors, one of them half of the whole, so that anything that grows with tensor sizes shows. Each conversion must
succeed under `prlimit --data` and say how much memory it took. Nothing but the release build of the tool is needed.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write_source(path, total_bytes):
    """A valid safetensors file whose data repeats a random block."""
    rows = total_bytes // 2 // 8192 // 2
    tensors = {"big": [rows, 8192]} | {f"layers.{i}.w": [max(1, rows // 16), 8192] for i in range(16)}
    header, offset = {}, 0
    for name, shape in sorted(tensors.items()):
        size = shape[0] * shape[1] * 2
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = os.urandom(64 << 20)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while offset:
            offset -= file.write(noise[: min(offset, len(noise))])


def peak_of(argv, limit_bytes, folder):
    process = subprocess.Popen(["prlimit", f"--data={limit_bytes}", *argv], stdout=subprocess.PIPE, cwd=folder)
    peak, start = 0, time.perf_counter()
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status") as status:
                fields = dict(line.split(":", 1) for line in status)
            peak = max(peak, int(fields.get("RssAnon", "0 kB").split()[0]))
        except (OSError, ValueError):
            pass
        time.sleep(0.005)
    process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: exit status {process.returncode}")
    return peak / 1024, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=8)
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--disk", default=".")
    parser.add_argument("--tool", default=str(ROOT / "build" / "release" / "cli" / "milepost"))
    args = parser.parse_args()
    folder = pathlib.Path(args.disk).resolve() / f"milepost-memory-{os.getpid()}"
    folder.mkdir()
    tool = os.path.abspath(args.tool)
    try:
        write_source(folder / "model.safetensors", int(args.gb * 1e9))
        jobs = [
            ("convert safetensors -> dcp", ["convert", "model.safetensors", "dcp", "--to", "dcp"], None),
            ("reshard dcp -> 8 ranks", ["reshard", "dcp", "ranks8", "--ranks", "8"], None),
            ("convert 8 ranks -> safetensors", ["convert", "ranks8", "hf", "--to", "safetensors"], "ranks8"),
            ("convert dcp -> float32 dcp", ["convert", "dcp", "wide", "--to", "dcp", "--dtype", "float32"], "wide"),
            ("convert dcp -> torch", ["convert", "dcp", "one.pth", "--to", "torch"], "one.pth"),
            ("diff safetensors, torch", ["diff", "hf", "dcp"], None),
            ("verify dcp", ["verify", "dcp"], None),
        ]
        print(f"| job ({args.gb:g} GB, under prlimit --data={args.limit_mib} MiB) | peak anonymous MiB | s |\n|---|---|---|")
        for label, argv, done_with in jobs:
            peak, seconds = peak_of([tool, *argv], args.limit_mib << 20, folder)
            print(f"| {label} | {peak:.0f} | {seconds:.1f} |", flush=True)
            if done_with:
                target = folder / done_with
                shutil.rmtree(target) if target.is_dir() else target.unlink()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
