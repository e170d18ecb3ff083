"""torch reads our trainer's checkpoints and finds in them what TorchTitan writes: the same entries, shapes, dtypes and Python types."""
import io
import pickle
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from cli.training import TITAN, train
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

OWN = {"milepost.rng.rank_0", "milepost.data_ledger", "milepost.run"}


def entries(step):
    """{name: tensor or value}, as torch decodes them."""
    reader = dcp.FileSystemReader(step)
    metadata = reader.read_metadata()
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in metadata.state_dict_metadata.items()
               if not isinstance(entry, BytesStorageMetadata)}
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    out = {}
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, BytesStorageMetadata):
            out[name] = tensors[name]
            continue
        place = metadata.storage_data[MetadataIndex(name)]
        with open(step / place.relative_path, "rb") as file:
            file.seek(place.offset)
            out[name] = torch.load(io.BytesIO(file.read(place.length)), weights_only=False)
    return out, metadata


@pytest.fixture(scope="module")
def step_10(tmp_path_factory):
    """Ours of step 10, after TorchTitan's of step 5."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copytree(TITAN / "one_rank/step-5", folder / "checkpoint/step-5")
    train(folder)
    return folder / "checkpoint/step-10"


def test_entries_are_torchtitans(step_10):
    (ours, our_metadata), (theirs, their_metadata) = entries(step_10), entries(TITAN / "one_rank/step-10")
    assert ours.keys() - theirs.keys() == OWN and theirs.keys() <= ours.keys()
    for name, want in theirs.items():
        got = ours[name]
        assert type(got) is type(want), name
        if isinstance(want, torch.Tensor):
            assert (got.dtype, got.shape) == (want.dtype, want.shape), name
            assert torch.allclose(got, want, rtol=0.05, atol=2e-3), name
        elif isinstance(want, float):
            assert got == pytest.approx(want, abs=1e-9), name
        elif isinstance(want, bytes):
            assert pickle.loads(got) == pickle.loads(want), name  # of other protocols
        else:
            assert got == want, name
            assert not isinstance(want, tuple) or [type(x) for x in got] == [type(x) for x in want], name
    assert [n for n in our_metadata.state_dict_metadata if n not in OWN] == list(their_metadata.state_dict_metadata)
    assert {n: p for n, p in our_metadata.planner_data.items() if n not in OWN} == their_metadata.planner_data


def test_the_generators_state_is_torchs(step_10):
    values, _ = entries(step_10)
    torch.set_rng_state(torch.frombuffer(bytearray(values["milepost.rng.rank_0"]), dtype=torch.uint8))


def test_torch_loads_it_nested(step_10):
    state = {"train_state": {"step": 0, "ntokens_seen": 0}, "lr_scheduler": {"last_epoch": 0}, "norm.weight": torch.zeros(16)}
    dcp.load(state, checkpoint_id=step_10, no_dist=True)
    assert state["train_state"] == {"step": 10, "ntokens_seen": 1280} and state["lr_scheduler"]["last_epoch"] == 10
    assert state["norm.weight"].abs().min() > 0
