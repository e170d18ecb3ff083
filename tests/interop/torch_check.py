#!/usr/bin/env python3
"""Loads a checkpoint with real torch and compares every entry with its record in an expected.json.

    torch_check.py CKPT EXPECTED.json [--as dcp|hf|torch]

CKPT is a DCP folder, a safetensors folder or a torch.save file. Ends with `N passed, M failed`; exits with 1 when M is not 0.

A DCP folder is loaded three times: flat into preallocated tensors (planner_data unused), nested from planner_data as
dcp_to_torch_save does, and every tensor as dim-0 pieces, as a load on another number of ranks would.
"""
import argparse
import copy
import io
import json
import logging
import os
import sys
import warnings
import zipfile

warnings.simplefilter("ignore")
import safetensors
import safetensors.torch
import torch
from torch_records import dtype_name, differences, tensor_record
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader, HuggingFaceStorageReader
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, ChunkStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

logging.disable(logging.ERROR)

HF_INDEX = "model.safetensors.index.json"
# dtypes for which torch's own DCP reader of safetensors has no name, though safetensors has.
NOT_IN_TORCH_HF_READER = {"float8_e8m0fnu", "float4_e2m1fn_x2"}


class Report:
    def __init__(self):
        self.passed = 0
        self.failures = []

    def check(self, name, good, why=""):
        if good:
            self.passed += 1
        else:
            self.failures.append(f"{name}: {why}")
        return good

    def same(self, name, want, value):
        why = differences(want, value)
        return self.check(name, not why, why)

    def assert_passed(self):
        assert self.passed
        assert not self.failures, "\n".join(self.failures[:20]) + f"\n{len(self.failures)} failures"


def reason(error):
    """The last line of an error: for torch's CheckpointException (not an Exception) that is the cause on the failing rank."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"


class FlatPlanner(DefaultLoadPlanner):
    def __init__(self):
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)


class PiecePlanner(FlatPlanner):
    """Asks for each tensor as pieces of its first dimension."""

    def __init__(self, pieces):
        super().__init__()
        self.pieces = pieces

    def rows(self, tensor):
        return max(1, -(-tensor.shape[0] // self.pieces))

    def create_local_plan(self):
        items = []
        for name, tensor in self.state_dict.items():
            chunks = [ChunkStorageMetadata(torch.Size([]), torch.Size([]))]
            if tensor.dim():
                step, rest = self.rows(tensor), list(tensor.shape[1:])
                chunks = [ChunkStorageMetadata(torch.Size([start] + [0] * len(rest)),
                                               torch.Size([min(step, tensor.shape[0] - start)] + rest))
                          for start in range(0, tensor.shape[0], step)]
            items += create_read_items_for_chunk_list(name, self.metadata.state_dict_metadata[name], chunks)
        return LoadPlan(items)

    def lookup_tensor(self, index):
        tensor = self.state_dict[index.fqn]
        if tensor.dim() == 0:
            return tensor
        return tensor[index.offset[0]:index.offset[0] + self.rows(tensor)]


def blank(want):
    """Memory for a tensor, filled with a pattern so that a hole in the chunks cannot pass."""
    tensor = torch.empty(want["shape"], dtype=getattr(torch, want["dtype"]))
    if tensor.numel() and tensor.dtype != torch.bool:
        tensor.view(-1).view(torch.uint8).fill_(0xA5)
    return tensor


def load(reader, targets, planner):
    _load_state_dict(targets, reader, no_dist=True, planner=planner)
    return targets


def load_or_name(report, label, path, targets, make_planner):
    """Loads all at once; where that fails, one by one, so that each failure is named."""
    try:
        return load(FileSystemReader(path), copy.deepcopy(targets), make_planner())
    except BaseException:
        loaded = {}
        for name, target in targets.items():
            try:
                loaded |= load(FileSystemReader(path), {name: copy.deepcopy(target)}, make_planner())
            except BaseException as error:
                report.check(f"[{label}] {name}", False, reason(error))
        return loaded


def follow(value, path):
    for element in path:
        value = value[element]
    return value


def targets_of(report, metadata, keys):
    """What to load into, for the entries whose metadata is as expected; the others are reported."""
    stored = metadata.state_dict_metadata
    report.check("<keys>", stored.keys() == keys.keys(), f"missing {keys.keys() - stored.keys()}, extra {stored.keys() - keys.keys()}")
    targets = {}
    for name, want in keys.items():
        entry = stored.get(name)
        if want["kind"] == "tensor" and isinstance(entry, TensorStorageMetadata):
            got = (dtype_name(entry.properties.dtype), list(entry.size))
            if report.check(f"[metadata] {name}", got == (want["dtype"], want["shape"]), f"{got}"):
                targets[name] = blank(want)
        elif want["kind"] != "tensor" and isinstance(entry, BytesStorageMetadata):
            targets[name] = "<not loaded>"
        elif entry is not None:
            report.check(f"[metadata] {name}", False, f"{type(entry).__name__} for a {want['kind']} entry")
    return targets


def check_dcp(path, keys, pieces=3, nested=True):
    report = Report()
    try:
        metadata = FileSystemReader(path).read_metadata()
    except BaseException as error:
        report.check("<.metadata>", False, reason(error))
        return report
    targets = targets_of(report, metadata, keys)
    for name, value in load_or_name(report, "flat", path, targets, FlatPlanner).items():
        report.same(f"[flat] {name}", keys[name], value)
    if pieces:
        tensors = {name: t for name, t in targets.items() if isinstance(t, torch.Tensor)}
        for name, value in load_or_name(report, "pieces", path, tensors, lambda: PiecePlanner(pieces)).items():
            report.same(f"[pieces] {name}", keys[name], value)
    if nested and metadata.planner_data is not None:
        check_nested(report, path, metadata.planner_data, {name: keys[name] for name in targets})
    check_items(report, path, metadata)
    return report


def check_nested(report, path, planner_data, keys):
    state = {}
    try:
        load(FileSystemReader(path), state, _EmptyStateDictLoadPlanner())
    except BaseException as error:
        report.check("[nested]", False, reason(error))
        return
    for name, want in keys.items():
        place = planner_data.get(name)
        if "path" in want:
            report.check(f"[path] {name}", place is not None and list(place) == want["path"], f"want {want['path']} got {place}")
        try:
            report.same(f"[nested] {name}", want, follow(state, place))
        except (KeyError, IndexError, TypeError) as error:
            report.check(f"[nested] {name}", False, reason(error))


def check_items(report, path, metadata):
    """Every item is a zip archive whose CRCs Python's own reader finds right."""
    for index, info in metadata.storage_data.items():
        with open(os.path.join(path, info.relative_path), "rb") as file:
            file.seek(info.offset)
            item = io.BytesIO(file.read(info.length))
        try:
            bad = zipfile.ZipFile(item).testzip()
            report.check(f"[zip] {index.fqn}", bad is None, f"record {bad}")
        except zipfile.BadZipFile as error:
            report.check(f"[zip] {index.fqn}", False, reason(error))


def check_safetensors(path, keys):
    """By the safetensors library, tensor by tensor, and by torch's DCP reader where it knows all dtypes."""
    report = Report()
    files = [path] if os.path.isfile(path) else [os.path.join(path, f) for f in sorted(os.listdir(path)) if f.endswith(".safetensors")]
    found = {}
    for file in files:
        with safetensors.safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                report.check(f"<one file> {name}", name not in found, f"in {found.get(name)} and {file}")
                found[name] = os.path.basename(file)
                if name in keys:
                    report.same(f"[safetensors] {name}", keys[name], tensors.get_tensor(name))
    report.check("<keys>", found.keys() == keys.keys(), f"missing {keys.keys() - found.keys()}, extra {found.keys() - keys.keys()}")
    if os.path.isdir(path):
        check_index(report, path, found, keys)
        if not any(want["dtype"] in NOT_IN_TORCH_HF_READER for want in keys.values()):
            check_by_torch_reader(report, path, keys)
    return report


def check_index(report, path, found, keys):
    index = os.path.join(path, HF_INDEX)
    if len(set(found.values())) > 1:
        report.check(f"<{HF_INDEX}>", os.path.exists(index), "there are several files and no index")
    if os.path.exists(index):
        with open(index) as file:
            document = json.load(file)
        report.check("<weight_map>", document["weight_map"] == found, f"{document['weight_map']} but {found}")
        total = sum(want["nbytes"] for want in keys.values())
        report.check("<total_size>", document["metadata"]["total_size"] == total, f"want {total}, {document['metadata']}")


def check_by_torch_reader(report, path, keys):
    try:
        loaded = load(HuggingFaceStorageReader(path), {name: blank(want) for name, want in keys.items()}, FlatPlanner())
    except BaseException as error:
        report.check("[torch's reader]", False, reason(error))
        return
    for name, want in keys.items():
        report.same(f"[torch's reader] {name}", want, loaded[name])


def check_dequantised(path, keys):
    """torch's quantised reader gives the recorded results for the block-quantised weights."""
    report = Report()
    for dtype in ("float32", "bfloat16"):
        targets = {name: torch.empty(want["shape"], dtype=getattr(torch, dtype)) for name, want in keys.items() if "scale" in want}
        reader = QuantizedHuggingFaceStorageReader(path, target_dtype=getattr(torch, dtype))
        for name, value in load(reader, targets, FlatPlanner()).items():
            report.check(f"[{dtype}] {name}", tensor_record(value)["sha256"] == keys[name][f"dequant_{dtype}"], "hash differs")
    return report


def check_pth(path, keys):
    """Each entry at its path (flat where it has none), by the unrestricted torch.load; nothing else is in the file."""
    report = Report()
    bad = zipfile.ZipFile(path).testzip()
    report.check("<zip>", bad is None, f"record {bad}")
    state = torch.load(path, map_location="cpu", weights_only=False)
    for name, want in keys.items():
        try:
            report.same(name, want, follow(state, want.get("path", [name])))
        except (KeyError, IndexError, TypeError) as error:
            report.check(name, False, reason(error))
    tops = {want.get("path", [name])[0] for name, want in keys.items()}
    report.check("<top-level keys>", set(state) == tops, f"extra {set(state) - tops}")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ckpt")
    parser.add_argument("expected")
    parser.add_argument("--as", dest="form", choices=["dcp", "hf", "torch"], default="dcp")
    options = parser.parse_args()
    with open(options.expected) as file:
        keys = json.load(file)["keys"]
    if options.form == "hf":
        keys = {name: want for name, want in keys.items() if want["kind"] == "tensor"}
    report = {"dcp": check_dcp, "hf": check_safetensors, "torch": check_pth}[options.form](options.ckpt, keys)
    print(*(f"FAIL {failure}" for failure in report.failures), sep="\n")
    print(f"{report.passed} passed, {len(report.failures)} failed")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
