"""The ids of `milepost tokenize` are those of the `tokenizers` package: bundled tokenizers, and one of each kind that is trained here."""
import corpus
import kinds
import peers
import pytest

import tool

ASSETS = tool.DATA.parent / "assets"
SPECIAL = [*kinds.SPECIAL, "<mask>", "<r>", "<both>", "<unk>", "fox", "DEF", "café", "<s>"]


@pytest.mark.parametrize("name", ["tokenizer", "deepseek_v3"])
def test_bundled_tokenizers(name):
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>"]
    peers.assert_equal_ids(ASSETS / name, corpus.text(1, 1_000_000, special), decodes=name != "tokenizer")


@pytest.mark.parametrize("name", kinds.KINDS)
def test_trained_tokenizers(name, tmp_path):
    folder = peers.save(kinds.KINDS[name](), tmp_path)
    peers.assert_equal_ids(folder, corpus.text(2, 1_000_000, SPECIAL))
    for seed in range(5):
        peers.assert_equal_ids(folder, corpus.text(100 + seed, 50, SPECIAL))
    peers.assert_equal_ids(folder, "")
