#!/usr/bin/env python3
"""Tokens a second of the data loader beside the packing rules in plain Python with the `tokenizers` package.

    bench/loader.py [--build build/release] [--mb 100] [--tokens MILLIONS]

The documents are those of tests/assets/c4_test, again and again, each time with another number in front. Prints what loader_bench
prints, then the peer, on one thread each.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def write_data(path, size):
    texts = [json.loads(line)["text"] for line in (ROOT / "tests/assets/c4_test/data.json").open(encoding="utf-8")]
    with path.open("w", encoding="utf-8") as file:
        for number in range(10**9):
            file.write(json.dumps({"text": f"{number} {texts[number % len(texts)]}"}, ensure_ascii=False) + "\n")
            if file.tell() > size:
                return


def plain_python(data, folder, num_tokens):
    import tokenizers
    from text_data.packing import PackedData
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [json.loads(line)["text"] for line in data.open(encoding="utf-8")]
    packed = PackedData(texts, 2048, encode=lambda text: [0, *tokenizer.encode(text).ids, 1])
    start, tokens = time.perf_counter(), 0
    while tokens < num_tokens:
        packed.batch(8)
        tokens += 8 * 2048
    seconds = time.perf_counter() - start
    print(f"{'plain Python rules, tokenizers package':<44} {seconds:>8.3f} s {tokens / seconds / 1e6:>10.2f} M tokens/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=10)
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder = ROOT / "tests/assets/deepseek_v3"
    with tempfile.TemporaryDirectory() as temporary:
        data = pathlib.Path(temporary) / "data.jsonl"
        write_data(data, args.mb * 10**6)
        subprocess.run([args.build / "bench/loader_bench", data, folder, pathlib.Path(temporary) / "cache", str(args.tokens)],
                       check=True)
        plain_python(data, folder, max(1, args.tokens // 5) * 10**6)


if __name__ == "__main__":
    main()
