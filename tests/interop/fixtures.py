"""The fixtures under tests/data/dcp as sources: one checkpoint that the tool opens, and what it must hold."""
import dataclasses
import json

from tool import DATA

DCP = DATA / "dcp"

# Everything else a fixture holds has no place in a safetensors file.
SAFETENSORS_DTYPES = {
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}


@dataclasses.dataclass
class Source:
    name: str
    path: str
    form: str            # dcp, hf or torch
    keys: dict           # name -> record, as in expected.json
    options: tuple = ()  # what every command on it needs

    def __str__(self):
        return self.name

    def storable_in_safetensors(self):
        return {n: w for n, w in self.keys.items() if w["kind"] == "tensor" and w["dtype"] in SAFETENSORS_DTYPES}


def without_paths(keys):
    return {name: {f: v for f, v in want.items() if f != "path"} for name, want in keys.items()}


def sources():
    for folder in sorted(p.parent for p in DCP.glob("*/expected.json")):
        document = json.loads((folder / "expected.json").read_text())
        form = document["format"]
        path = folder / document.get("ckpt", "ckpt")
        if form == "dcp":
            yield Source(folder.name, path, "dcp", document["keys"])
        elif form == "dcp_rank_local":
            for rank, keys in enumerate(document["per_rank"]):
                yield Source(f"{folder.name}-{rank}", path, "dcp", keys, ("--rank", str(rank)))
        elif form in ("hf_safetensors", "hf_safetensors_fp8"):
            yield Source(folder.name, path, "hf", document["keys"])
        elif form == "torch_save":
            yield Source(folder.name + "-ckpt", path, "dcp", document["per_file"]["from_dcp.pth"])
            for file, keys in document["per_file"].items():
                if file != "direct_legacy.pt":
                    yield Source(file, folder / file, "torch", keys)
        else:
            raise ValueError(f"{folder.name}: unknown format {form}")
