"""The loader against the packing rules in plain Python: on 1 to 8 ranks, resumed at random batches, states exchanged both ways."""
import json
import pickle
import random
from pathlib import Path

import numpy
import pytest

from text_data.loader import Refused, loader, write_lines
from text_data.packing import PackedData, global_batches

ROWS, SEQ_LEN = 2, 24


def random_texts(seed, count):
    rng = random.Random(seed)
    alphabet = "abcdefgh äöü 中文 \n"
    return ["".join(rng.choices(alphabet, k=rng.choice([0, 1, 5, 20, 22, 23, 24, 60, 200]))) for _ in range(count)]


@pytest.fixture(scope="module")
def texts():
    return random_texts(3, 61)


@pytest.fixture
def data(tmp_path, texts):
    return write_lines(tmp_path / "data.jsonl", texts)


def plain_batches(texts, rank, world, count, infinite=True):
    packed = PackedData(texts, SEQ_LEN, rank, world, infinite)
    return [batch for _ in range(count) if (batch := packed.batch(ROWS))]


@pytest.mark.parametrize("world", range(1, 9))
def test_batches_follow_the_rules_over_several_epochs(tmp_path, texts, data, world):
    rank = world // 2
    read = loader(tmp_path, dataset_path=data, dp_rank=rank, dp_world=world, seq_len=SEQ_LEN, batches=200)
    assert read.batches == plain_batches(texts, rank, world, 200)
    assert "WARNING Dataset text is being re-looped (epoch 1)" in read.messages
    assert read.messages[0] == f"INFO Preparing text dataset from {data}"


@pytest.mark.parametrize("world", [1, 3, 8])
def test_finite_data_ends_with_an_incomplete_batch(tmp_path, texts, data, world):
    read = loader(tmp_path, dataset_path=data, dp_rank=world - 1, dp_world=world, seq_len=SEQ_LEN, batches=1000, infinite=False)
    assert read.batches == plain_batches(texts, world - 1, world, 1000, infinite=False)
    assert read.messages[-1] == "WARNING Dataset text has run out of data"


@pytest.mark.parametrize("world", range(1, 9))
def test_states_go_both_ways_at_random_batches(tmp_path, texts, data, world):
    rng = random.Random(world)
    rank = rng.randrange(world)
    packed = PackedData(texts, SEQ_LEN, rank, world)
    count, entry = 0, tmp_path / "entry"
    for _ in range(4):
        # A plain reader goes on for a while, then ours from its state, then a plain one from ours.
        for _ in range(rng.randrange(40)):
            packed.batch(ROWS)
            count += 1
        entry.write_bytes(packed.state(count, ROWS, protocol=rng.choice([2, 4, 5])))
        more = rng.randrange(1, 40)
        read = loader(tmp_path, dataset_path=data, dp_rank=rank, dp_world=world, seq_len=SEQ_LEN, batches=more,
                      prefetch=rng.random() < 0.5, restore={"titan_entry": entry, "titan_world_size": world},
                      save={"titan_entry": entry})
        assert read.batches == [packed.batch(ROWS) for _ in range(more)]
        count += more
        state = pickle.loads(entry.read_bytes())
        assert state == pickle.loads(packed.state(count, ROWS)) and read.is_exact
        packed = PackedData(texts, SEQ_LEN, rank, world)
        packed.load(state)


@pytest.mark.parametrize("world,cache", [(1, False), (2, False), (3, True), (4, False), (6, True)])
def test_global_order_deals_out_one_stream(tmp_path, texts, data, world, cache):
    steps = 120 // world
    options = {"token_cache": tmp_path / "cache"} if cache else {}
    stream = global_batches(texts, SEQ_LEN, world, ROWS)
    expected = [next(stream) for _ in range(steps)]
    for rank in range(world):
        read = loader(tmp_path, dataset_path=data, dp_rank=rank, dp_world=world, seq_len=SEQ_LEN, batches=steps, order="global", **options)
        assert read.batches == [step[rank] for step in expected]


def test_the_worked_example(tmp_path):
    data = write_lines(tmp_path / "data.jsonl", ["abcdefghij", "abcdefghijklmnopqrst", "abcdefghijklmnopqrstuvwxyzabcd"])
    tokenizer = Path(__file__).parents[1] / "assets/tokenizer"
    read = loader(tmp_path, dataset_path=data, tokenizer=tokenizer, local_batch_size=1, seq_len=16, batches=2)
    first, second = read.batches
    assert first["inputs"] == [[2002, *range(97, 107), 2002, 97, 98, 99, 100]]
    assert first["positions"] == [[*range(11), *range(5)]]
    assert first["labels"] == [[*range(97, 107), 2003, *range(97, 102)]]
    assert second["positions"] == [list(range(16))]


def test_reshuffle_is_numpys_for_many_sizes(tmp_path):
    rng = random.Random(5)
    for count in [1, 2, 3, 10, 100, *(rng.randrange(2, 3000) for _ in range(6))]:
        # Documents of one letter give one label, so a row of as many tokens as there are documents is an epoch.
        data = write_lines(tmp_path / "data.jsonl", [chr(0x4e00 + i) for i in range(count)])
        epoch = rng.randrange(1, 4)
        read = loader(tmp_path, dataset_path=data, seq_len=4 * count, local_batch_size=1, batches=epoch + 1)
        labels = read.batches[epoch]["labels"][0]
        documents = [bytes(labels[i:i + 3]).decode() for i in range(0, 4 * count, 4)]
        order = numpy.random.default_rng(42 + epoch).permutation(count)
        assert documents == [chr(0x4e00 + int(i)) for i in order]


def test_a_ledger_of_other_ranks_goes_on(tmp_path, texts, data):
    parts = []
    for rank in range(3):
        loader(tmp_path, dataset_path=data, dp_rank=rank, dp_world=3, seq_len=SEQ_LEN, batches=5, save={"ledger_part": tmp_path / "part"})
        parts.append((tmp_path / "part").read_text())
    ledger = json.loads(parts[0])
    ledger["readers"] = [json.loads(part)["readers"][0] for part in parts]
    (tmp_path / "ledger").write_text(json.dumps(ledger))
    read = loader(tmp_path, dataset_path=data, dp_rank=1, dp_world=2, seq_len=SEQ_LEN, batches=3, restore={"ledger": tmp_path / "ledger"})
    assert len(read.batches) == 3 and not read.is_exact
    with pytest.raises(Refused, match="data set 'text'.*this run reads 'text'"):
        other = write_lines(tmp_path / "other.jsonl", ["x"])
        loader(tmp_path, dataset_path=other, restore={"ledger": tmp_path / "ledger"})
