"""Compares `milepost tokenize` with the `tokenizers` package."""
import json
import subprocess

from tokenizers import Tokenizer

import tool


def save(tokenizer, folder, config=None):
    """Writes `tokenizer` (a Tokenizer, or what its JSON says) and an optional tokenizer_config.json; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    document = tokenizer if isinstance(tokenizer, dict) else json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config or {}), encoding="utf-8")
    return folder


def run(folder, *flags, stdin):
    """Standard output; asserts success."""
    done = subprocess.run([tool.program(), "tokenize", str(folder), *flags], input=stdin, capture_output=True, env=tool.environment(), timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def ids_of(folder, text, *flags):
    return [int(word) for word in run(folder, *flags, stdin=text.encode()).split()]


def assert_equal_ids(folder, text, decodes=True):
    """Ours are the ids of the package for the whole text, and their text is the same too."""
    peer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    wanted = peer.encode(text).ids
    ids = ids_of(folder, text)
    if ids != wanted:
        at = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
        spelled = [[peer.id_to_token(i) for i in side[max(0, at - 5):at + 8]] for side in (ids, wanted)]
        raise AssertionError(f"{len(ids)} ids, want {len(wanted)}; from token {at} on: {spelled[0]}, want {spelled[1]}")
    if decodes:
        decoded = run(folder, "--decode", stdin=" ".join(map(str, ids)).encode()).decode()
        assert decoded == peer.decode(ids, skip_special_tokens=False)


def byte_alphabet():
    """What byte-level tokenizers write for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]
