#!/usr/bin/env python3
"""Metadata, planning, hashing and start-up at scale: Milepost, the peers and the machine's limit in interleaved rounds.

    bench/scale.py                     # all
    bench/scale.py metadata --chunks 1000000
    bench/scale.py plan sha256 inspect

metadata  a `.metadata` of N chunks made by torch: read and written by pickle (as torch does it) and by Milepost; limit: the plain read
plan      the coordinator's part of a save for 256 ranks with 1200 items each by torch's planner, and Milepost's plan_global on the same state
sha256    a manifest of 8 files: hashlib with two threads, `openssl dgst` with two processes, `milepost manifest write` and `verify`; limit: OpenSSL on a hot block, two threads
inspect   `milepost inspect` of a small checkpoint, the whole process; limit: `/bin/true`

Needs a release build (build/release); metadata and plan need torch.
"""
import argparse
import gc
import hashlib
import json
import os
import pathlib
import pickle
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent


def timed(run):
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    gc.enable()
    return result if isinstance(result, float) else seconds


def table(title, cases, rounds, nbytes=0):
    """`cases`: name -> (function, is_limit). A function may return its own seconds."""
    samples = {name: [] for name in cases}
    for r in range(-1, rounds):
        for name, (run, _) in cases.items():
            seconds = timed(run)
            if r >= 0:
                samples[name].append(seconds)
    limits = [min(samples[name]) for name, (_, is_limit) in cases.items() if is_limit]
    print(f"\n### {title} ({rounds} rounds)\n\n| case | seconds min (median) |{' GB/s |' if nbytes else ''} x limit |")
    print("|---|---|---|" + ("---|" if nbytes else ""))
    for name in cases:
        best, median = min(samples[name]), statistics.median(samples[name])
        rate = f" {nbytes / best / 1e9:.2f} |" if nbytes else ""
        ratio = f" {best / min(limits):.2f} |" if limits else " |"
        print(f"| {name} | {best:.4f} ({median:.4f}) |{rate}{ratio}", flush=True)


def last_json(argv):
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def metadata_job(args):
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
                                                       TensorProperties, TensorStorageMetadata)

    ranks, tensors = 1000, args.chunks // 1000
    state, storage, offsets = {}, {}, [0] * ranks
    for t in range(tensors):
        fqn = f"optimizer.state.layers.{t // 60}.moe.routed_experts.inner_experts.w{t % 60}.exp_avg"
        chunks = []
        for r in range(ranks):
            offset = torch.Size((r * 16, 0))
            chunks.append(ChunkStorageMetadata(offset, torch.Size((16, 7168))))
            size = 16 * 7168 * 4 + 1200
            storage[MetadataIndex(fqn, offset, r)] = _StorageInfo(f"__{r}_0.distcp", offsets[r], size)
            offsets[r] += size
        state[fqn] = TensorStorageMetadata(TensorProperties(dtype=torch.float32), torch.Size((16 * ranks, 7168)), chunks)
    path = pathlib.Path(args.folder) / ".metadata"

    def dump():
        with open(path, "wb") as file:
            pickle.dump(metadata, file)

    def load():
        with open(path, "rb") as file:
            pickle.load(file)

    metadata = Metadata(state, None, storage, StorageMeta(), "1.0.0")
    dump()
    ours = {}

    def milepost():
        ours.update(last_json([str(args.build / "bench" / "metadata_bench"), "--file", str(path), "--rounds", "1"]))
        return ours["read_s"]

    table(f"`.metadata` of {tensors * ranks:,} chunks, read", {
        "limit: plain read": (lambda: float(timed(lambda: path.read_bytes())), True),
        "milepost read_metadata": (milepost, False),
        "torch (pickle.load)": (load, False),
    }, args.rounds)
    table(f"`.metadata` of {tensors * ranks:,} chunks, write", {
        "milepost write_metadata": (lambda: (milepost(), ours["write_s"])[1], False),
        "torch (pickle.dump)": (dump, False),
    }, args.rounds)
    print(f"\nfile {ours['file_bytes_per_chunk']} bytes a chunk (torch {path.stat().st_size / (tensors * ranks):.1f}), "
          f"catalog {ours['index_bytes_per_chunk']} bytes a chunk, peak of the read {ours['peak_bytes_per_chunk']}")


def plan_job(args):
    import torch
    from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
    from torch.distributed.checkpoint.default_planner import _validate_global_plan, create_default_global_save_plan
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

    world, rows, columns = 256, 8, 7168
    properties = TensorProperties(dtype=torch.float32)

    def item(fqn, kind, offset, sizes, shape):
        chunk = ChunkStorageMetadata(torch.Size(offset), torch.Size(sizes))
        return WriteItem(MetadataIndex(fqn, chunk.offsets), kind, tensor_data=TensorWriteData(chunk, properties, torch.Size(shape)))

    plans = []
    for r in range(world):
        items = []
        for t in range(300):
            fqn = f"layers.{t // 16}.block.w{t % 16}.weight"
            for name in (fqn, f"optimizer.state.{fqn}.exp_avg", f"optimizer.state.{fqn}.exp_avg_sq"):
                items.append(item(name, WriteItemType.SHARD, (r * rows, 0), (rows, columns), (rows * world, columns)))
            items.append(item(f"optimizer.state.{fqn}.step", WriteItemType.TENSOR, (), (), ()))
        plans.append(SavePlan(items))

    def torch_plan():
        chosen = dedup_save_plans(plans)
        chosen, metadata = create_default_global_save_plan(chosen)
        assert not _validate_global_plan(chosen, metadata)

    def ours(case):
        return lambda: last_json([str(args.build / "bench" / "plan_bench"), "--rounds", "1", "--case", case])["seconds"]

    table("Planning a save: dedup, global plan, validation", {
        "milepost, 256 ranks x 1200 items": (ours("256 ranks x 1200 items, rows"), False),
        "torch, 256 ranks x 1200 items": (torch_plan, False),
        "milepost, 1024 ranks x 3075 tensors (4.2 M items)": (ours("1024 ranks x 3075 tensors, rows or columns"), False),
    }, min(args.rounds, 3))
    coordinator = last_json([str(args.build / "bench" / "plan_bench"), "--rounds", str(args.rounds), "--coordinator", args.folder])
    print(f"\nAll that rank 0 does in a save by 1024 ranks beside its data, {coordinator['chunks']:,} chunks: {coordinator['seconds']:.2f} s "
          f"(median {coordinator['median_s']:.2f})", flush=True)


def sha256_job(args):
    folder = pathlib.Path(args.folder) / "hash"
    folder.mkdir()
    per_file = args.mib * (1 << 20) // 8
    files = [folder / f"__{i}_0.distcp" for i in range(8)]
    for file in files:
        file.write_bytes(os.urandom(per_file))
    hot = os.urandom(1 << 20)
    count = 8 * per_file >> 20

    def hash_hot(blocks):
        digest = hashlib.sha256()
        for _ in range(blocks):
            digest.update(hot)

    def digest(path):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def in_threads(jobs):
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(lambda job: job(), jobs))

    def openssl(names):
        subprocess.run(["openssl", "dgst", "-sha256", *map(str, names)], check=True, stdout=subprocess.DEVNULL)

    def hashlib_files():
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(digest, files))

    cases = {
        "limit: OpenSSL on a hot block, 2 threads": (lambda: in_threads([lambda: hash_hot(count // 2)] * 2), True),
        "milepost manifest write (whole process)": (lambda: subprocess.run([args.tool, "manifest", "write", str(folder)], check=True, stdout=subprocess.DEVNULL) and None, False),
        "milepost manifest verify (whole process)": (lambda: subprocess.run([args.tool, "manifest", "verify", str(folder)], check=True, stdout=subprocess.DEVNULL) and None, False),
        "hashlib.file_digest, 2 threads": (hashlib_files, False),
    }
    if shutil.which("openssl"):
        cases["openssl dgst, 2 processes"] = (lambda: in_threads([lambda: openssl(files[:4]), lambda: openssl(files[4:])]), False)
    table("SHA-256 of 8 files in memory", cases, args.rounds, 8 * per_file)
    shutil.rmtree(folder)


def inspect_job(args):
    small = ROOT / "tests" / "data" / "dcp" / "titan_dsv3_1rank" / "ckpt" / "step-3"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    table("`milepost inspect` of a small checkpoint, whole process", {
        "limit: /bin/true": (lambda: subprocess.run(["/bin/true"], **quiet) and None, True),
        "milepost inspect": (lambda: subprocess.run([args.tool, "inspect", str(small)], **quiet) and None, False),
    }, 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--mib", type=int, default=1536)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tmpfs", default="/dev/shm")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    args = parser.parse_args()
    args.tool = str(args.build / "cli" / "milepost")
    args.folder = f"{args.tmpfs}/milepost-scale-{os.getpid()}"
    os.makedirs(args.folder)
    jobs = {"metadata": metadata_job, "plan": plan_job, "sha256": sha256_job, "inspect": inspect_job}
    try:
        for job in args.jobs or jobs:
            if job not in jobs:
                sys.exit(f"unknown job {job}: choose from {', '.join(jobs)}")
            jobs[job](args)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
