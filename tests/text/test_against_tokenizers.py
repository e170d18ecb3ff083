"""The ids of `milepost tokenize` are those of the `tokenizers` package: bundled tokenizers, and one of each kind that is trained here."""
import importlib.metadata
import json
import pathlib

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


def shipped_tokenizers():
    """tokenizer.json files of installed packages; anthropic 0.34.2 (install it without dependencies) has a real one of 65000 tokens."""
    files = [file for package in importlib.metadata.distributions() for file in package.files or [] if file.name == "tokenizer.json"]
    return [pathlib.Path(file.locate()) for file in files]


@pytest.mark.parametrize("path", shipped_tokenizers(), ids=str)
def test_real_tokenizers_of_installed_packages(path, tmp_path):
    folder = peers.save(json.loads(path.read_text(encoding="utf-8")), tmp_path)
    peers.assert_equal_ids(folder, corpus.text(9, 1_000_000, ["<EOT>", "<META>"]))


BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
# Splits show in ids through the suffix that the last character of a piece has.
VISIBLE = [c for c in map(chr, range(0x20, 0x250))] + list("\n\t漢字ーかα")


def visible_pieces(pre_tokenizer, normalizer=None):
    vocab = {token: i for i, token in enumerate([c + end for end in ("", "</w>") for c in VISIBLE])}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": "</w>",
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []}}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


SPLITS = [split({kind: text}, behavior, invert) for kind, text in [("String", " "), ("Regex", r"\s+"), ("Regex", r"[^\W\d]*"), ("String", "ab")]
          for behavior in BEHAVIORS for invert in (False, True)]
SPLITS += [split({"Regex": pattern}) for pattern in [
    r"\b", r"\B", r"^", r"$", r"^.", r"(?m).+", r".$", r"\h+", r"(?<=a)b", r"(?<!\w)\w", r"[[:alpha:]]+", r"[\W_]+", r"\p{^L}+", r"\p{Han}",
    r"(?i:s|ſ|k)", r"a{,2}", r"x++", r"(a|b)\1", r"(?<n>[a-z])\k<n>", r"\p{Lu}\p{Ll}*", r"[a-c&d]", r"[]a]", r"\R", "[\\x{41}-\\u0044]"]]
SPLITS += [{"type": "Punctuation", "behavior": behavior} for behavior in BEHAVIORS]
SPLITS += [{"type": "Digits", "individual_digits": flag} for flag in (False, True)]
SPLITS += [{"type": "Whitespace"}, {"type": "WhitespaceSplit"}]


@pytest.mark.parametrize("pre_tokenizer", SPLITS, ids=str)
def test_pieces_of_each_split(pre_tokenizer, tmp_path):
    folder = peers.save(visible_pieces(pre_tokenizer), tmp_path)
    peers.assert_equal_ids(folder, corpus.text(3, 70_000), decodes=False)


NORMALIZERS = [{"type": name} for name in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]]
NORMALIZERS += [{"type": "Strip", "strip_left": left, "strip_right": right} for left in (False, True) for right in (False, True)]
NORMALIZERS += [{"type": "Prepend", "prepend": "▁x"}, {"type": "Replace", "pattern": {"String": "a"}, "content": "bc"},
                {"type": "Replace", "pattern": {"Regex": r"\p{P}+|x*"}, "content": ""}, {"type": "ByteLevel"}]


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=str)
def test_normalizers_on_every_character(normalizer, tmp_path):
    """A tokenizer of bytes shows the normalized text: every character alone, and between a letter and two marks."""
    document = visible_pieces({"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}, normalizer)
    alphabet = peers.byte_alphabet()
    document["model"].update(vocab={c: i for i, c in enumerate(alphabet)}, end_of_word_suffix=None)
    folder = peers.save(document, tmp_path)
    characters = [chr(c) for c in [*range(0x14000), *range(0x16000, 0x17000), *range(0x1D000, 0x20000)] if not 0xD800 <= c <= 0xDFFF]
    for text in ("\n".join(characters), "".join(f"e{c}\u0301\u0323 " for c in characters)):
        peers.assert_equal_ids(folder, f" {text}\u3000", decodes=False)
