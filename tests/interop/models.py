"""Known models as files: their tensors as records (torch_records), under both kinds of names, and reading them with the real peers."""
import dataclasses
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from tool import DATA, milepost
from torch.distributed.checkpoint import FileSystemReader, HuggingFaceStorageReader
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader
from torch_check import HF_INDEX, FlatPlanner, load
from torch_records import tensor_record

TITAN_RUNS = DATA / "titan_runs"
SAFETENSORS_DTYPES = {"F32": torch.float32}


@dataclasses.dataclass
class Fixture:
    """A folder of tests/data/numerics: what torchtitan's adapter makes of native weights."""
    name: str

    def __str__(self):
        return self.name

    @property
    def folder(self):
        return DATA / "numerics" / self.name

    @property
    def weights(self):
        return self.folder / "weights.safetensors"

    @property
    def hf(self):
        return self.folder / "hf"

    @property
    def config(self):
        return self.hf / "config.json"

    def native_records(self):
        return records(load_file(self.weights))

    def hf_records(self):
        listed = json.loads((self.hf / "tensors.json").read_text())
        return {name: hashed_record(SAFETENSORS_DTYPES[t["dtype"]], t["shape"], t["sha256"]) for name, t in listed.items()}

    def native_dcp(self, path):
        """The native weights as DCP."""
        milepost("import", self.weights, path, "--config", self.config)
        return path


LLAMA, GROUPS = Fixture("llama3"), Fixture("deepseek_v3/a_sigmoid_groups")
SOFTMAX, MTP = Fixture("deepseek_v3/b_softmax"), Fixture("deepseek_v3_mtp")
FIXTURES = [LLAMA, GROUPS, SOFTMAX, MTP]
FIXTURES_WITH_FILES = [LLAMA, GROUPS]  # of the others, only hashes of the Hugging Face side are kept


def hashed_record(dtype, shape, sha256):
    size = torch.empty(shape, dtype=dtype, device="meta").nbytes
    return {"kind": "tensor", "dtype": str(dtype).removeprefix("torch."), "shape": shape, "nbytes": size, "sha256": sha256}


def records(tensors):
    return {name: tensor_record(tensor) for name, tensor in tensors.items()}


def load_folder(folder):
    """All tensors of a folder's safetensors files, by the safetensors library."""
    return {name: tensor for file in sorted(Path(folder).glob("*.safetensors")) for name, tensor in load_file(file).items()}


def load_by(reader):
    """All tensors of a checkpoint, as the metadata that the reader has found describes them."""
    stored = reader.read_metadata().state_dict_metadata
    targets = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored.items() if hasattr(entry, "chunks")}
    return load(reader, targets, FlatPlanner())


def load_dcp(path):
    return load_by(FileSystemReader(path))


def load_dequantised(path, dtype):
    """What torch's reader makes of codes and scales; plain tensors come in the dtype asked for as well."""
    shapes = HuggingFaceStorageReader(path).read_metadata().state_dict_metadata
    targets = {name: torch.empty(entry.size, dtype=dtype) for name, entry in shapes.items() if not name.endswith("_scale_inv")}
    return load(QuantizedHuggingFaceStorageReader(path, target_dtype=dtype), targets, FlatPlanner())


def weight_map(folder):
    return json.loads((Path(folder) / HF_INDEX).read_text())["weight_map"]


def config_of(folder):
    return json.loads((Path(folder) / "config.json").read_text())


def folder_with_index(path, index):
    """A folder that holds nothing of a model but where its tensors go."""
    path.mkdir()
    shutil.copyfile(index, path / HF_INDEX)
    return path


def differing(want, got):
    """Names of tensors that are not equal to the bit; both sides must have the same names."""
    assert want.keys() == got.keys(), f"missing {want.keys() - got.keys()}, extra {got.keys() - want.keys()}"
    return [name for name in want if tensor_record(want[name]) != tensor_record(got[name])]
