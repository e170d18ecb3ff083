#!/usr/bin/env python3
"""Write src/text/newer_characters.inc: characters that the `tokenizers` package knows and PCRE2 10.42 (Unicode 14) does not.

Needs tokenizers (requirements/interop.txt) and a Python whose unicodedata is that of Unicode 14 (3.11). The package is asked: a
character has a category when a split at \\p{category} isolates it. Each range gets a stand-in, an older character of the same
category, script (Han or not) and length in UTF-8.
"""
import json
import pathlib
import unicodedata

from tokenizers import Tokenizer

OUT = pathlib.Path(__file__).resolve().parent.parent / "src/text/newer_characters.inc"
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
              "Sk", "So", "Cf"]
MODEL = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": "</w>",
         "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "merges": []}


def splits_at(pattern, characters):
    """Those of `characters` that the pattern isolates: between two others, which it does not match, they end the word before them."""
    left, right = "12" if pattern.startswith(r"\p{L") else "ab"
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
        "decoder": None, "model": {**MODEL, "vocab": {left: 0, f"{left}</w>": 1, right: 2, f"{right}</w>": 3}},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern + "|,"}, "behavior": "Isolated", "invert": False}}))
    found = []
    for begin in range(0, len(characters), 5000):
        part = characters[begin:begin + 5000]
        ids = tokenizer.encode(",".join(left + c + right for c in part)).ids
        assert len(ids) == 2 * len(part)
        found += [c for c, first in zip(part, ids[::2]) if first == 1]
    return found


def stand_in(category, is_han, character):
    """The first character of Unicode 14 that is like this one; the most common code points come late, so that scripts differ least."""
    length = len(character.encode())
    if is_han:
        return "\U00020000"
    span = range(0x80, 0x800) if length == 2 else range(0x800, 0x10000) if length == 3 else range(0x10000, 0x110000)
    return next(chr(c) for c in span if unicodedata.category(chr(c)) == category)


def main():
    assert unicodedata.unidata_version == "14.0.0"
    unassigned = [chr(c) for c in [*range(0x80, 0x33480), *range(0xE0000, 0xE0200)] if unicodedata.category(chr(c)) == "Cn"]
    still_unassigned = set(splits_at(r"\p{Cn}", unassigned))
    newer = [c for c in unassigned if c not in still_unassigned]
    han = set(splits_at(r"\p{Han}", newer))
    category = {c: name for name in CATEGORIES for c in splits_at(rf"\p{{{name}}}", newer)}
    ranges = []
    for c in newer:
        same = ranges and ord(ranges[-1][1]) + 1 == ord(c) and ranges[-1][2] == (category[c], c in han)
        if same:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, (category[c], c in han)])
    lines = ["// Made by tools/make_newer_characters.py: first, last, stand-in. Do not edit.\n"]
    for first, last, (name, is_han) in ranges:
        lines.append(f"{{0x{ord(first):x}, 0x{ord(last):x}, 0x{ord(stand_in(name, is_han, first)):x}}},  // {name}\n")
    OUT.write_text("".join(lines))
    print(f"{len(newer)} characters in {len(ranges)} ranges")


if __name__ == "__main__":
    main()
