"""torchtitan's own loader and ours read the same batches and go on from each other's states. Needs torchtitan, torchdata and datasets."""
import os
import random

import pytest
import torchtitan_models
from text_data.loader import loader, write_lines
from text_data.packing import byte_ids

ROWS, SEQ_LEN = 2, 24


@pytest.fixture(scope="module", autouse=True)
def titan():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for package in ("datasets", "torchdata"):
        pytest.importorskip(package, reason=f"{package} is not installed (requirements/datasets.txt)")
    torchtitan_models.prepare()
    from torchtitan.hf_datasets import text_datasets
    return text_datasets


class ByteTokenizer:
    def encode(self, text, add_bos, add_eos):
        assert add_bos and add_eos
        return byte_ids(text)


class TitanLoader:
    def __init__(self, titan, folder, rank, world):
        config = titan.HuggingFaceTextDataLoader.Config(dataset="c4_test", dataset_path=str(folder))
        self.loader = titan.HuggingFaceTextDataLoader(config, dp_world_size=world, dp_rank=rank, tokenizer=ByteTokenizer(),
                                                      seq_len=SEQ_LEN, local_batch_size=ROWS)
        self.batches = None

    def read(self, count):
        self.batches = self.batches or iter(self.loader)
        out = []
        for _ in range(count):
            inputs, labels = next(self.batches)
            out.append({"inputs": inputs["input"].tolist(), "positions": inputs["positions"].tolist(), "labels": labels.tolist()})
        return out


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_states_go_both_ways(titan, tmp_path, monkeypatch, world):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rng = random.Random(world)
    texts = ["".join(rng.choices("abcdefgh äö\n", k=rng.choice([1, 5, 22, 24, 60, 200]))) for _ in range(61)]
    folder = tmp_path / "data"
    folder.mkdir()
    write_lines(folder / "data.json", texts)
    rank, entry = rng.randrange(world), tmp_path / "entry"
    options = {"dataset": "c4_test", "dataset_path": folder, "dp_rank": rank, "dp_world": world, "seq_len": SEQ_LEN}

    whole = TitanLoader(titan, folder, rank, world).read(300)
    assert loader(tmp_path, **options, batches=300).batches == whole

    at, peer = 0, TitanLoader(titan, folder, rank, world)
    while at < 200:
        more = rng.randrange(1, 40)
        assert peer.read(more) == whole[at:at + more]
        at += more
        state = peer.loader.state_dict()
        entry.write_bytes(state[f"dp_rank_{rank}"])
        more = rng.randrange(1, 40)
        read = loader(tmp_path, **options, batches=more, restore={"titan_entry": entry, "titan_world_size": state["world_size"]},
                      save={"titan_entry": entry})
        assert read.batches == whole[at:at + more]
        at += more
        peer = TitanLoader(titan, folder, rank, world)
        peer.loader.load_state_dict({f"dp_rank_{rank}": entry.read_bytes(), "world_size": world})
