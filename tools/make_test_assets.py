#!/usr/bin/env python3
"""Write tests/assets: the bundled tokenizers and documents. The tokenizers need the package of that name
(requirements/interop.txt).

    tools/make_test_assets.py [NAME...]     (default: all; names: tokenizer, deepseek_v3, c4_test)

Each asset is a function below that fills its folder; running it again gives the same bytes. All ids are below 2048, the
vocabulary of the debug models.
"""

import json
import pathlib
import random
import sys

ASSETS = pathlib.Path(__file__).resolve().parent.parent / "tests/assets"


def write_json(path, document):
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def byte_characters():
    """How byte-level tokenizers spell each byte: printable ones as themselves, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def added_token(token_id, content):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def byte_level(**fields):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **fields}


# Tokens of one byte each, spaces left out: a text's ids are its bytes. 2020 tokens, the last twenty of them special.
def make_tokenizer(folder):
    special = ["<|pad|>", "<|unknown|>", "<|begin_of_text|>", "<|end_of_text|>"] + [f"<|special_{i}|>" for i in range(16)]
    tokens = byte_characters() + [f"<|reserved_{i}|>" for i in range(2000 - 256)] + special
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added_token(i, token) for i, token in enumerate(tokens) if token in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}, byte_level()]},
        "post_processor": None,
        "decoder": byte_level(),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}})
    write_json(folder / "tokenizer_config.json", {
        "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|pad|>",
        "tokenizer_class": "PreTrainedTokenizerFast"})


SUBJECTS = """the harbour|a patient gardener|our oldest bridge|the night train|every second lantern|a quiet engineer|the copper kettle|
my neighbour's orchestra|the weather station|a borrowed telescope|the river ferry|an honest carpenter|the village library|a spare wheel|
the glass workshop|her younger brother|the mountain road|a folded map|the market hall|an empty theatre""".replace("\n", "").split("|")
VERBS = """keeps|repairs|remembers|follows|measures|describes|carries|explains|collects|replaces|surprises|outlives|watches|supports|
announces|improves|recognises|questions|connects|returns to""".replace("\n", "").split("|")
PLACES = """before sunrise|near the old mill|without any hurry|in the spring of 1987|for the third time|beyond the last houses|
when the water is low|as long as there is light|with 24 small screws|under a painted ceiling|although nobody asked|between two storms|
on the way to the coast|after the meeting|at 6:45 in the morning""".replace("\n", "").split("|")
CHINESE = ["天气", "城市", "老师", "学生", "问题", "方法", "时间", "机器", "学习", "模型", "数据", "中国", "世界", "经济", "发展", "研究", "今天", "明天", "我们", "他们",
           "可以", "需要", "没有", "已经", "因为", "所以", "如果", "但是", "非常", "重要", "工作", "生活", "语言", "文字", "河流", "山上", "火车", "图书馆"]
NAMES = ["count", "index", "total", "result", "value", "buffer", "offset", "length", "name", "items", "node", "key", "size", "path", "line"]


def sentence(rng):
    text = f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(SUBJECTS)} {rng.choice(PLACES)}"
    if rng.random() < 0.3:
        text += f", and {rng.choice(SUBJECTS)} {rng.choice(VERBS)} it too"
    return text[0].upper() + text[1:] + rng.choice("...?!")


def code(rng):
    a, b, c = rng.sample(NAMES, 3)
    return rng.choice([
        f"def {a}_{b}({c}):\n    if {c} is None:\n        return 0\n    for {a} in range(len({c})):\n        print({a}, {c}[{a}])\n",
        f"for (int {a} = 0; {a} < {b}.size(); ++{a}) {{\n  {c} += {b}[{a}] * {rng.randrange(100)};\n}}\n",
        f"const {a} = {b}.map(({c}) => {c}.{a} + \"{b}\");\nreturn {a}.length > {rng.randrange(1000)};\n",
        f"#include <{a}>\nstd::vector<int> {b}({rng.randrange(4096)});\nif (!{c}) return nullptr;\n"])


def chinese(rng):
    return "，".join("".join(rng.choices(CHINESE, k=rng.randrange(3, 7))) for _ in range(rng.randrange(1, 4))) + "。"


def training_text(num_documents):
    """English, code and Chinese out of the words above: own text, different with each size only in its length."""
    rng = random.Random(5)
    for _ in range(num_documents):
        kind = rng.random()
        make = sentence if kind < 0.6 else code if kind < 0.8 else chinese
        yield rng.choice([" ", "\n"]).join(make(rng) for _ in range(rng.randrange(2, 8)))


# Byte-level BPE that splits as DeepSeek-V3's tokenizer does: numbers by three digits, Chinese and Japanese apart, letters with their
# marks, punctuation.
def make_deepseek_v3(folder):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    words = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", words)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    tokenizer.train_from_iterator(training_text(6000), trainers.BpeTrainer(
        vocab_size=1999, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    write_json(folder / "tokenizer.json", json.loads(tokenizer.to_str()))
    write_json(folder / "tokenizer_config.json", {
        "add_bos_token": True, "add_eos_token": False,
        "bos_token": {"__type": "AddedToken", **token_fields(special[0])},
        "eos_token": {"__type": "AddedToken", **token_fields(special[1])},
        "pad_token": {"__type": "AddedToken", **token_fields(special[1])},
        "model_max_length": 131072, "tokenizer_class": "LlamaTokenizerFast"})


def token_fields(content):
    return {"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


# Documents for training the debug models: mostly prose, from a line to a few pages, some code and some Chinese.
def make_c4_test(folder):
    rng = random.Random(2024)
    with (folder / "data.json").open("w", encoding="utf-8") as file:
        for _ in range(2000):
            kind = rng.random()
            if kind < 0.06:
                text = "\n".join(code(rng) for _ in range(rng.randint(1, 8)))
            elif kind < 0.12:
                text = "".join(chinese(rng) for _ in range(rng.randint(1, 10)))
            else:
                sentences = min(40, 1 + int(rng.expovariate(1 / 4)))
                text = "".join(sentence(rng) + ("\n" if rng.random() < 0.15 else " ") for _ in range(sentences)).strip()
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


MAKERS = {"tokenizer": make_tokenizer, "deepseek_v3": make_deepseek_v3, "c4_test": make_c4_test}


def main():
    for name in sys.argv[1:] or MAKERS:
        folder = ASSETS / name
        folder.mkdir(parents=True, exist_ok=True)
        MAKERS[name](folder)


if __name__ == "__main__":
    main()
