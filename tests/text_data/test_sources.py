"""Files of documents through the loader: Parquet, compressed, mixed, damaged; the token cache across processes."""
import gzip
import json
import os
import random
import signal
import subprocess
import time

import pytest

from text_data.loader import Refused, loader, write_lines
from text_data.packing import PackedData

TEXTS = [f"document {i} " * (i % 7) for i in range(300)]
SKIP = {"on_bad_record": "skip"}


def batches(texts, count, rows=2, seq_len=16):
    packed = PackedData(texts, seq_len)
    return [packed.batch(rows) for _ in range(count)]


def parquet(path, texts, column="text", **options):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet
    table = pyarrow.table({"id": list(range(len(texts))), column: texts})
    pyarrow.parquet.write_table(table, path, **options)
    return path


@pytest.mark.parametrize("options", [{}, {"row_group_size": 17}, {"compression": "zstd"}, {"compression": "gzip"},
                                     {"use_dictionary": False, "data_page_version": "2.0"}])
def test_parquet_gives_the_documents_of_its_rows(tmp_path, options):
    data = parquet(tmp_path / "data.parquet", TEXTS, **options)
    assert loader(tmp_path, dataset_path=data, batches=100).batches == batches(TEXTS, 100)


def test_parquet_strings_of_large_type(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    data = parquet(tmp_path / "data.parquet", pyarrow.array(TEXTS, pyarrow.large_string()))
    assert loader(tmp_path, dataset_path=data, batches=10).batches == batches(TEXTS, 10)


def test_parquet_rows_without_text_are_bad_records(tmp_path):
    data = parquet(tmp_path / "data.parquet", ["first document", None, "third document"])
    with pytest.raises(Refused, match=r"data.parquet.*row 2: field 'text' is null"):
        loader(tmp_path, dataset_path=data, batches=3)
    assert loader(tmp_path, dataset_path=data, batches=1, infinite=False, **SKIP).skipped == 1


def test_parquet_refusals_name_the_file_and_what_is_wrong(tmp_path):
    data = parquet(tmp_path / "data.parquet", TEXTS)
    with pytest.raises(Refused, match="data.parquet: no column 'content' .it has 'id', 'text'"):
        loader(tmp_path, dataset_path=data, text_field="content")
    with pytest.raises(Refused, match="column 'id' is of type int64, expected strings"):
        loader(tmp_path, dataset_path=data, text_field="id")
    whole = data.read_bytes()
    for size in (0, 3, 11, 100, len(whole) // 2, len(whole) - 1):
        data.write_bytes(whole[:size])
        with pytest.raises(Refused, match="data.parquet.*(cut short|no Parquet file)"):
            loader(tmp_path, dataset_path=data)


def test_damaged_parquet_never_crashes(tmp_path):
    data = parquet(tmp_path / "data.parquet", TEXTS)
    whole = data.read_bytes()
    rng = random.Random(1)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(4, len(whole) - 4)] = rng.randrange(256)
        data.write_bytes(damaged)
        try:
            loader(tmp_path, dataset_path=data, batches=1, **SKIP)
        except Refused as refusal:
            assert "data.parquet" in str(refusal)
            refused += 1
    assert refused > 0


def test_a_folder_is_read_in_order_of_its_paths(tmp_path):
    folder = tmp_path / "data"
    (folder / "b").mkdir(parents=True)
    write_lines(folder / "a.json", TEXTS[:100])
    (folder / "b/0.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in TEXTS[100:200]).encode()))
    write_lines(folder / "c.ndjson", TEXTS[200:])
    (folder / "README.md").write_text("not data")
    assert loader(tmp_path, dataset_path=folder, batches=300).batches == batches(TEXTS, 300)


def test_a_corrupt_line_is_named_or_passed_over_and_counted(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "first"}\n{"text": "second\n{"text": "third"}\n{"text": 4}\n{"txt": ""}\n')
    with pytest.raises(Refused, match=r"data.jsonl: line 2: not valid JSON.*on-bad-record=skip"):
        loader(tmp_path, dataset_path=data)
    read = loader(tmp_path, dataset_path=data, infinite=False, local_batch_size=1, seq_len=6, batches=9, **SKIP)
    assert read.skipped == 3 and read.batches == batches(["first", "third"], 2, rows=1, seq_len=6)
    assert sum("Bad record passed over" in message for message in read.messages) == 3
    assert "WARNING Dataset text: 3 bad records passed over so far" in read.messages
    ahead = loader(tmp_path, dataset_path=data, infinite=False, local_batch_size=1, seq_len=6, batches=9, prefetch=True, **SKIP)
    assert ahead.skipped == 3 and ahead.batches == read.batches and sorted(ahead.messages) == sorted(read.messages)


def test_empty_and_absent_data_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(Refused, match="empty.jsonl: the data set has no documents"):
        loader(tmp_path, dataset_path=tmp_path / "empty.jsonl")
    with pytest.raises(Refused, match="absent"):
        loader(tmp_path, dataset_path=tmp_path / "absent")


def test_ids_beyond_the_models_vocabulary_are_refused(tmp_path):
    data = write_lines(tmp_path / "data.jsonl", ["ab", "c\x7f"])
    with pytest.raises(Refused, match="data.jsonl: line 2: token id 127 is beyond the model's vocabulary of 120"):
        loader(tmp_path, dataset_path=data, model_vocab_size=120, tokenizer=_tokenizer_without_specials(tmp_path))


def _tokenizer_without_specials(tmp_path):
    """Byte-level tokens and no configuration, so no begin or end tokens either."""
    from pathlib import Path
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((Path(__file__).parents[1] / "assets/tokenizer/tokenizer.json").read_bytes())
    return folder


def test_sources_are_mixed_by_weight(tmp_path):
    numpy = pytest.importorskip("numpy")
    first = write_lines(tmp_path / "a.jsonl", TEXTS[:50])
    second = write_lines(tmp_path / "b.jsonl", TEXTS[50:80])
    sources = [{"dataset_path": first, "weight": 3}, {"dataset_path": second, "weight": 1}]
    rng, texts, left = numpy.random.default_rng(42), [], [list(TEXTS[:50]), list(TEXTS[50:80])]
    while all(left):
        texts.append(left[int(rng.choice(2, size=1, p=[0.75, 0.25])[0])].pop(0))
    read = loader(tmp_path, sources=sources, batches=1000, infinite=False)
    packed = PackedData(texts, 16, infinite=False)
    assert read.batches == [batch for _ in range(1000) if (batch := packed.batch(2))]


@pytest.mark.parametrize("strategy", ["first_exhausted", "all_exhausted"])
def test_mixing_is_that_of_the_datasets_package(tmp_path, strategy):
    datasets = pytest.importorskip("datasets")
    parts = [TEXTS[:50], TEXTS[50:80], TEXTS[80:200]]
    mixed = datasets.interleave_datasets([datasets.Dataset.from_dict({"text": part}) for part in parts],
                                         probabilities=[0.5, 0.3, 0.2], seed=42, stopping_strategy=strategy)["text"]
    sources = [{"dataset_path": write_lines(tmp_path / f"{i}.jsonl", part), "weight": w}
               for i, (part, w) in enumerate(zip(parts, [5, 3, 2]))]
    read = loader(tmp_path, sources=sources, batches=10000, infinite=False, stopping_strategy=strategy)
    packed = PackedData(list(mixed), 16, infinite=False)
    assert read.batches == [batch for _ in range(10000) if (batch := packed.batch(2))]


def test_the_token_cache_changes_nothing_and_is_shared(tmp_path):
    texts = TEXTS * 20
    data = write_lines(tmp_path / "data.jsonl", texts)
    cache = tmp_path / "cache"
    plain = [loader(tmp_path, dataset_path=data, dp_rank=r, dp_world=2, batches=2500, local_batch_size=8).batches for r in (0, 1)]
    for _ in range(2):
        for rank in (0, 1):
            read = loader(tmp_path, dataset_path=data, dp_rank=rank, dp_world=2, batches=2500, local_batch_size=8, token_cache=cache)
            assert read.batches == plain[rank]
    files = sorted(path for path in cache.rglob("*") if path.is_file())
    assert [path.name for path in files if path.suffix == ".tokens"] == ["00000000.tokens", "00000001.tokens"]


def test_a_killed_process_leaves_a_cache_that_serves(tmp_path):
    texts = TEXTS * 60
    data = write_lines(tmp_path / "data.jsonl", texts)
    request = {"dataset_path": str(data), "token_cache": str(tmp_path / "cache"), "batches": 10**9}
    path = tmp_path / "endless.json"
    path.write_text(json.dumps(request))
    process = subprocess.Popen([os.environ["MILEPOST_LOADER_TOOL"], path], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "cache").rglob("00000001.tokens")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list((tmp_path / "cache").rglob("00000000.tokens"))
    read = loader(tmp_path, **{**request, "batches": 3000}, local_batch_size=8)
    assert read.batches == batches(texts, 3000, rows=8)
