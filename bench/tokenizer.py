#!/usr/bin/env python3
"""Tokens/s on one thread: Milepost beside `tokenizers` (encode_batch, one thread), for tokenizers that split as GPT-2, Llama 3 and DeepSeek-V3 do.

    .venv/bin/python bench/tokenizer.py [--build build/release] [--mib 8] [--rounds 3] [--vocab 32000]

Needs tokenizers (requirements/interop.txt) and the release build's tokenizer_bench. Texts: English and code out of the files of this
repository and of Python's library, Chinese out of random sentences (a text that repeats little). Prints a Markdown table.
"""
import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/text"), str(ROOT / "tests")]
import kinds  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402


def docstrings():
    """English: the documentation of this repository and the strings of Python's library."""
    import ast
    for path in [*sorted(ROOT.rglob("*.md")), *sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py"))]:
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".md":
                yield text
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and len(ast.get_docstring(node) or "") > 200:
                    yield ast.get_docstring(node)
        except (SyntaxError, ValueError):
            continue


def code():
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        try:
            yield path.read_text(encoding="utf-8")
        except ValueError:
            continue


def chinese():
    """Sentences of words of one to four characters, which are as often as Zipf says."""
    rng = random.Random(1)
    characters = [chr(c) for c in range(0x4E00, 0x9FA6)]
    common = rng.sample(characters, 3000)
    words = ["".join(rng.choices(common, k=rng.choice([1, 2, 2, 2, 3, 4]))) for _ in range(30000)]
    weights = [1 / (i + 10) for i in range(len(words))]
    while True:
        sentences = ["".join(rng.choices(words, weights, k=rng.randrange(4, 15))) + rng.choice("，，。。！？") for _ in range(40)]
        yield "".join(sentences) + "\n"


def documents(source, num_bytes):
    total = 0
    for document in source():
        document = document.replace("\f", "")
        yield document
        total += len(document.encode())
        if total >= num_bytes:
            return


def train(pre_tokenizer, texts, vocab):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<|bos|>", "<|eos|>"],
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def ours(program, folder, path, rounds):
    lines = subprocess.run([program, folder, path, str(rounds)], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
    results = [line.split() for line in lines if line]
    return int(results[0][0]), [float(seconds) for _, seconds in results]


def theirs(folder, texts, rounds):
    tokenizer, seconds = Tokenizer.from_file(str(folder / "tokenizer.json")), []
    for _ in range(rounds):
        begin = time.perf_counter()
        encoded = tokenizer.encode_batch(texts)
        seconds.append(time.perf_counter() - begin)
    return sum(len(e.ids) for e in encoded), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--mib", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=32000)
    options = parser.parse_args()
    texts = {name: list(documents(source, options.mib * 2**20))
             for name, source in {"English": docstrings, "code": code, "Chinese": chinese}.items()}
    splits = {"GPT-2": kinds.pre_tokenizers.ByteLevel(add_prefix_space=False),
              "Llama 3": pre_tokenizers.Sequence([*kinds.isolated(kinds.LLAMA3), kinds.ByteLevel()]),
              "DeepSeek-V3": pre_tokenizers.Sequence([*kinds.isolated(*kinds.DEEPSEEK), kinds.ByteLevel()])}
    training = [document for part in texts.values() for document in part[::4]]
    print("| split | text | MB | tokens | Milepost M tokens/s min (median) | tokenizers | ratio of medians |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for split, pre_tokenizer in splits.items():
            folder = pathlib.Path(scratch) / split
            folder.mkdir()
            train(pre_tokenizer, training, options.vocab).save(str(folder / "tokenizer.json"))
            for name, part in texts.items():
                path = pathlib.Path(scratch) / "text"
                path.write_text("\n\f\n".join(part), encoding="utf-8")
                num_tokens, our_seconds = ours(options.build / "bench/tokenizer_bench", folder, path, options.rounds)
                their_tokens, their_seconds = theirs(folder, part, options.rounds)
                assert num_tokens == their_tokens, (num_tokens, their_tokens)
                rates = [[num_tokens / s / 1e6 for s in seconds] for seconds in (our_seconds, their_seconds)]
                shown = [f"{min(r):.2f} ({statistics.median(r):.2f})" for r in rates]
                ratio = statistics.median(rates[0]) / statistics.median(rates[1])
                print(f"| {split} | {name} | {path.stat().st_size / 1e6:.1f} | {num_tokens} | {shown[0]} | {shown[1]} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
