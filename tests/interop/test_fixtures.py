"""Every fixture through the tool, and what the tool wrote through real torch and safetensors.

For each source: inspect and verify it, read it in full, convert it to each format and back, reshard it; torch then loads every result
and each tensor's SHA-256, each object's value and each path must be those of expected.json.
"""
import functools
import io
import json
import subprocess
import sys

import pytest
import torch
import torch_check
from fixtures import DCP, sources, without_paths
from tool import BAD_INPUT, contents, milepost
from torch.distributed.checkpoint import FileSystemReader

RANKS = (1, 2, 3, 5, 8)


class Work:
    """One source and what is made of it, each output once."""

    def __init__(self, source, folder):
        self.source, self.folder = source, folder
        self.convert = functools.cache(self._convert)

    def make(self, command, path, name, *options):
        destination = self.folder / name
        result = milepost(command, path, destination, *options)
        milepost("verify", destination)
        return destination, result

    def _convert(self, name, to, *options):
        return self.make("convert", self.source.path, name, "--to", to, *options, *self.source.options)[0]

    def dcp(self):
        return self.convert("dcp", "dcp")

    def safetensors(self):
        dropped = self.source.keys.keys() - self.source.storable_in_safetensors().keys()
        return self.convert("safetensors", "safetensors", *(["--skip-unsupported"] if dropped else []))

    def pth(self):
        return self.convert("converted.pth", "torch")

    def back(self, path, name):
        return self.make("convert", path, name, "--to", "dcp")[0]


@pytest.fixture(scope="module", params=list(sources()), ids=str)
def work(request, tmp_path_factory):
    return Work(request.param, tmp_path_factory.mktemp("work"))


def check_contents(path, keys, *options):
    tensors, objects = contents(path, *options)
    assert tensors.keys() == {name for name, want in keys.items() if want["kind"] == "tensor"}
    assert objects.keys() == keys.keys() - tensors.keys()
    for name, got in tensors.items():
        want = keys[name]
        assert (got["dtype"], got["shape"], got["bytes"], got["sha256"]) == (
            want["dtype"], want["shape"], want["nbytes"], want["sha256"]), name
    for name, value in objects.items():
        assert value == keys[name]["json"], name


def test_inspect(work):
    source = work.source
    check_contents(source.path, source.keys, *source.options)
    text = milepost("inspect", source.path, *source.options).out
    assert str(sum(want["kind"] == "tensor" for want in source.keys.values())) in text


def test_verify(work):
    milepost("verify", work.source.path, *work.source.options)


def test_dcp(work):
    torch_check.check_dcp(work.dcp(), work.source.keys).assert_passed()
    check_contents(work.dcp(), work.source.keys)


def test_dcp_in_three_files(work):
    path = work.convert("dcp3", "dcp", "--files", "3")
    assert len(list(path.glob("*.distcp"))) == 3
    torch_check.check_dcp(path, work.source.keys).assert_passed()


def test_safetensors(work):
    keys = work.source.storable_in_safetensors()
    dropped = work.source.keys.keys() - keys.keys()
    if dropped:
        refusal = milepost("convert", work.source.path, work.folder / "refused", "--to", "safetensors", *work.source.options,
                           status=BAD_INPUT)
        assert any(name in refusal.err for name in dropped) and "--skip-unsupported" in refusal.err
        assert not (work.folder / "refused").exists()
    torch_check.check_safetensors(work.safetensors(), keys).assert_passed()
    if any("scale" in want for want in keys.values()):
        torch_check.check_dequantised(sharded(work), keys).assert_passed()


def sharded(work):
    """With an index.json, which torch's quantised reader needs."""
    path = work.convert("safetensors_sharded", "safetensors", "--shard-size", "64KB")
    assert (path / torch_check.HF_INDEX).exists()
    return path


def test_safetensors_and_back(work):
    keys = without_paths(work.source.storable_in_safetensors())
    torch_check.check_dcp(work.back(work.safetensors(), "from_safetensors"), keys).assert_passed()


def test_sharded_safetensors(work):
    keys = work.source.storable_in_safetensors()
    dropped = work.source.keys.keys() - keys.keys()
    skip = ["--skip-unsupported"] if dropped else []
    path = work.convert("shards", "safetensors", "--shard-size", "1KB", *skip)
    names = sorted(p.name for p in path.glob("*.safetensors"))
    if len(names) > 1:
        assert names == [f"model-{i + 1:05}-of-{len(names):05}.safetensors" for i in range(len(names))]
    torch_check.check_safetensors(path, keys).assert_passed()


def test_pth(work):
    torch_check.check_pth(work.pth(), work.source.keys).assert_passed()
    listed = subprocess.run([sys.executable, "-m", "zipfile", "-t", work.pth()], capture_output=True, text=True)
    assert listed.returncode == 0 and "Done testing" in listed.stdout, listed.stdout + listed.stderr


def test_pth_is_safe_to_load(work):
    """weights_only=True takes our file whenever it takes torch's own file of the same content; mmap=True always does."""
    whole = torch.load(work.pth(), weights_only=False)
    check_pth_state(torch.load(work.pth(), weights_only=False, mmap=True), work.source.keys).assert_passed()
    own = io.BytesIO()
    torch.save(whole, own)
    own.seek(0)
    try:
        torch.load(own, weights_only=True)
    except Exception as error:
        pytest.skip(f"torch refuses its own file of this content: {str(error).splitlines()[0][:100]}")
    for mmap in (False, True):
        check_pth_state(torch.load(work.pth(), weights_only=True, mmap=mmap), work.source.keys).assert_passed()


def check_pth_state(state, keys):
    report = torch_check.Report()
    for name, want in keys.items():
        report.same(name, want, torch_check.follow(state, want.get("path", [name])))
    return report


def flattened(keys):
    """Dicts that one entry holds whole, as torch before 2.4 saved them, become an entry a leaf on the way through a nested file."""
    flat = {}
    for name, want in keys.items():
        if isinstance(want.get("json"), dict) and not any(key.startswith("$") for key in want["json"]):
            path = want.get("path", [name])
            inner = {f"{name}.{key}": {"kind": "bytes", "json": value, "path": [*path, key]} for key, value in want["json"].items()}
            flat.update(flattened(inner))
        else:
            flat[name] = want
    return flat


def test_pth_and_back(work):
    torch_check.check_dcp(work.back(work.pth(), "from_pth"), flattened(work.source.keys)).assert_passed()


@pytest.mark.parametrize("ranks", RANKS)
def test_reshard(work, ranks):
    path, _ = work.make("reshard", work.source.path, f"ranks{ranks}", "--ranks", ranks, *work.source.options)
    torch_check.check_dcp(path, work.source.keys, pieces=0, nested=ranks == 2).assert_passed()
    assert sorted(p.name for p in path.glob("*.distcp")) == [f"__{rank}_0.distcp" for rank in range(ranks)]
    stored = FileSystemReader(path).read_metadata().state_dict_metadata
    for name, want in work.source.keys.items():
        if want["kind"] == "tensor" and want["shape"] and 0 not in want["shape"]:
            rows = [len(c) for c in torch.empty(want["shape"], device="meta").chunk(ranks)]
            assert [chunk.sizes[0] for chunk in stored[name].chunks] == rows, name


def test_legacy_torch_save_is_refused(tmp_path):
    path = DCP / "torch_save_files/direct_legacy.pt"
    for arguments in (["inspect", path], ["convert", path, tmp_path / "out", "--to", "dcp"]):
        assert "legacy" in milepost(*arguments, status=BAD_INPUT).err
    assert not (tmp_path / "out").exists()


def boxes_of(path):
    stored = FileSystemReader(path).read_metadata().state_dict_metadata
    return {name: sorted((tuple(c.offsets), tuple(c.sizes)) for c in entry.chunks if 0 not in c.sizes)
            for name, entry in stored.items() if hasattr(entry, "chunks")}


@pytest.mark.parametrize("fixture", ["fsdp_2rank", "fsdp_4rank", "mesh2d_2x2", "ep_2x2", "ep_2x2_shard1"])
def test_mesh_reshard_gives_the_chunks_that_torch_wrote(tmp_path, fixture):
    """The fixture was saved from DTensors: one rank's copy of it, cut again by the same placements, has the same boxes."""
    original = DCP / fixture / "ckpt"
    document = json.loads((DCP / fixture / "expected.json").read_text())
    names = document.get("mesh_dim_names") or [f"d{i}" for i in range(len(document["mesh"]))]
    mesh = ",".join(f"{name}={size}" for name, size in zip(names, document["mesh"]))
    # Some entries of the expert fixtures lie on another mesh.
    rules = {name: ps for name, ps in document["placements"].items() if len(ps) == len(names)}
    table = tmp_path / "placements.txt"
    table.write_text("# glob, then one placement a mesh dimension\n" + "".join(
        f"{name} {' '.join(p.replace(' ', '').removesuffix('()') for p in ps)}\n" for name, ps in rules.items()))
    milepost("reshard", original, tmp_path / "one", "--ranks", 1)
    milepost("reshard", tmp_path / "one", tmp_path / "cut", "--mesh", mesh, "--placements", table)
    milepost("verify", tmp_path / "cut")
    want, got = boxes_of(original), boxes_of(tmp_path / "cut")
    assert rules and {name: got[name] for name in rules} == {name: want[name] for name in rules}
    torch_check.check_dcp(tmp_path / "cut", document["keys"], nested=False).assert_passed()


def test_rank_local_metadata_needs_a_rank():
    refusal = milepost("inspect", DCP / "rank_local/ckpt", status=BAD_INPUT)
    assert "--rank" in refusal.err
