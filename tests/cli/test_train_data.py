"""`milepost-train --count-tokens`: the data of a run, read as training would read it."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MILEPOST_TRAIN", str(ROOT / "build/dev/train/milepost-train"))
DEBUGMODEL = ("--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel", "--count-tokens",
              "--training.local-batch-size", "2", "--training.seq-len", "64")
TOKENIZER = ("--hf-assets-path", str(ROOT / "tests/assets/tokenizer"))


def count(cwd, *flags, status=0, env=None):
    done = subprocess.run([PROGRAM, *DEBUGMODEL, *map(str, flags)], cwd=cwd, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "MILEPOST_ROOT": str(ROOT), **(env or {})})
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stderr


def tokens(log):
    return int(re.findall(r"tokens: (\d+)", log)[-1])


def documents(folder, lines):
    (folder / "data.jsonl").write_text("".join(line + "\n" for line in lines))
    return "--dataloader.dataset", "text", "--dataloader.dataset-path", folder


def test_counts_what_the_steps_take(tmp_path):
    log = count(tmp_path, "--training.steps", 7)
    assert tokens(log) == 7 * 2 * 64
    assert "step:  7" in log


def test_finds_the_bundled_data_from_any_folder(tmp_path):
    assert tokens(count(ROOT, "--training.steps", 1)) == tokens(count(tmp_path, "--training.steps", 1)) == 128


def test_a_global_batch_takes_several_batches_a_step(tmp_path):
    assert tokens(count(tmp_path, "--training.steps", 3, "--training.global-batch-size", 8)) == 3 * 8 * 64


def test_a_global_batch_that_does_not_divide_is_refused(tmp_path):
    log = count(tmp_path, "--training.global-batch-size", 3, status=1)
    assert "global batch size must be multiple of local batch size times data-parallel degree (3 % (2 * 1) != 0)" in log


def test_ranks_share_the_documents(tmp_path):
    data = documents(tmp_path, ['{"text": "%s"}' % ("abc" * 40) for _ in range(8)])
    flags = (*TOKENIZER, *data, "--dataloader.no-infinite", "--training.steps", 1000)
    alone = tokens(count(tmp_path, *flags))
    halves = [tokens(count(tmp_path, *flags, env={"WORLD_SIZE": "2", "RANK": rank})) for rank in "01"]
    assert 0 < sum(halves) <= alone and max(halves) < alone


def test_degrees_that_do_not_make_the_world_are_refused(tmp_path):
    log = count(tmp_path, "--parallelism.data-parallel-shard-degree", 4, status=1, env={"WORLD_SIZE": "2"})
    assert "dp_shard(4)" in log and "WORLD_SIZE(2)" in log


def test_one_process_stands_for_many(tmp_path):
    assert tokens(count(tmp_path, "--comm.mode", "fake_backend", "--training.steps", 2, env={"NGPU": "8", "RANK": "3"})) == 2 * 128


def test_finite_data_runs_out(tmp_path):
    data = documents(tmp_path, ['{"text": "%s"}' % ("x" * 300)])
    log = count(tmp_path, *TOKENIZER, *data, "--dataloader.no-infinite", "--training.steps", 100)
    assert "has run out of data" in log and "Ran out of data; last step was canceled." in log


def test_data_that_fill_no_batch_are_an_error(tmp_path):
    data = documents(tmp_path, ['{"text": "short"}'])
    assert "the data fill no batch" in count(tmp_path, *TOKENIZER, *data, "--dataloader.no-infinite", status=1)


def test_a_missing_tokenizer_is_named(tmp_path):
    log = count(tmp_path, "--hf-assets-path", "nowhere", status=1)
    assert "FileNotFoundError" in log and "Tokenizer path 'nowhere' does not exist" in log


def test_a_broken_tokenizer_is_named_with_its_key(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}}')
    log = count(tmp_path, "--hf-assets-path", tmp_path, status=1)
    assert "tokenizer.json" in log and "vocab" in log


@pytest.mark.parametrize("policy, status", [("fail", 1), ("skip", 0)])
def test_a_corrupt_line_is_named_or_counted(tmp_path, policy, status):
    data = documents(tmp_path, ['{"text": "%s"}' % ("y" * 400), '{"text": "torn', '{"text": "%s"}' % ("z" * 400)])
    log = count(tmp_path, *TOKENIZER, *data, "--dataloader.on-bad-record", policy, "--dataloader.no-infinite", "--training.steps", 100,
                status=status)
    assert "data.jsonl" in log and "2" in log
    if policy == "skip":
        assert "1 bad records were passed over" in log


def test_no_documents_are_an_error(tmp_path):
    log = count(tmp_path, *TOKENIZER, *documents(tmp_path, []), status=1)
    assert str(tmp_path) in log


def test_an_unknown_data_set_lists_the_known(tmp_path):
    log = count(tmp_path, "--dataloader.dataset", "pile", status=1)
    assert "Dataset pile is not supported. Supported datasets are: " in log and "c4_test" in log


def test_ids_beyond_the_vocabulary_are_refused(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 1, "b": 5000}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "text").mkdir()
    data = documents(tmp_path / "text", ['{"text": "ababab"}'])
    log = count(tmp_path, "--hf-assets-path", tmp_path, *data, status=1)
    assert "5000" in log and "2048" in log
