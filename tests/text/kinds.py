"""Tokenizers of each kind, trained on the awkward corpus."""
import functools

import corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|bos|>", "<|eos|>", "<|x|>", "<|x|>y"]

ByteLevel = functools.partial(pre_tokenizers.ByteLevel, add_prefix_space=False, use_regex=False)


def isolated(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def train(tokenizer, special=(), **options):
    defaults = {"vocab_size": 3000, "show_progress": False, "special_tokens": list(special), "max_token_length": 20}
    trainer = trainers.WordLevelTrainer if isinstance(tokenizer.model, models.WordLevel) else trainers.BpeTrainer
    if trainer is trainers.WordLevelTrainer:
        del defaults["max_token_length"]
    tokenizer.train_from_iterator([corpus.text(seed, 2000) for seed in range(100)], trainer(**defaults, **options))
    return tokenizer


def byte_level(pre_tokenizer, normalizer=None, special=SPECIAL, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_prefixed():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))


def llama3():
    tokenizer = byte_level(pre_tokenizers.Sequence([*isolated(LLAMA3), ByteLevel()]), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|bos|> $A <|eos|>", special_tokens=[("<|bos|>", 0), ("<|eos|>", 1)])])
    return tokenizer


def qwen2():
    return byte_level(pre_tokenizers.Sequence([*isolated(QWEN2), ByteLevel()]), normalizers.NFC())


def o200k():
    return byte_level(pre_tokenizers.Sequence([*isolated(O200K), ByteLevel()]))


def deepseek():
    return byte_level(pre_tokenizers.Sequence([*isolated(*DEEPSEEK), ByteLevel()]), normalizers.Sequence([]))


def digits_and_bytes():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def odd_added_tokens():
    tokenizer = gpt2()
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("fox", single_word=True), AddedToken("DEF", normalized=True), AddedToken("café", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True)])
    return tokenizer


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[▁\n]+"), "merged_with_next")  # training sees words
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    train(tokenizer, ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)]], limit_alphabet=300)
    tokenizer.pre_tokenizer = None
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace(scheme, split=True):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return train(tokenizer, ["<unk>", "<|x|>"], limit_alphabet=400)


def suffixed():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return train(tokenizer, ["<unk>"], end_of_word_suffix="</w>", limit_alphabet=200)


def prefixed():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits()])
    return train(tokenizer, ["<unk>"], continuing_subword_prefix="##", limit_alphabet=500)


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"\d+"), "0")])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return train(tokenizer, ["[UNK]"])


KINDS = {
    "gpt2": gpt2, "gpt2_prefixed": gpt2_prefixed, "llama3": llama3, "qwen2": qwen2, "o200k": o200k, "deepseek": deepseek,
    "digits_and_bytes": digits_and_bytes, "odd_added_tokens": odd_added_tokens, "llama2": llama2,
    "metaspace_always": lambda: metaspace("always"), "metaspace_first": lambda: metaspace("first"), "metaspace_never": lambda: metaspace("never"),
    "metaspace_whole": lambda: metaspace("always", split=False), "suffixed": suffixed, "prefixed": prefixed, "word_level": word_level,
}
