"""`milepost tokenize`: the spec's example, what is refused, streams, and texts that are hard on a tokenizer."""
import json
import random
import subprocess
import time

import pytest

import tool

ASSETS = tool.DATA.parent / "assets"
BYTES, WORDS = ASSETS / "tokenizer", ASSETS / "deepseek_v3"


def run(*arguments, stdin=b"", status=0):
    done = subprocess.run([tool.program(), "tokenize", *map(str, arguments)], input=stdin, capture_output=True, env=tool.environment(), timeout=120)
    assert done.returncode == status, done.stderr.decode()
    return done.stdout if status == 0 else done.stderr.decode()


def ids(folder, text, *flags):
    return [int(word) for word in run(folder, *flags, stdin=text if isinstance(text, bytes) else text.encode()).split()]


def changed(tmp_path, change, source=BYTES):
    """A copy of a tokenizer whose JSON went through `change`."""
    document = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    document = change(document) or document
    (tmp_path / "tokenizer.json").write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    return tmp_path


def with_regex(tmp_path, pattern, source=BYTES):
    def change(document):
        document["pre_tokenizer"]["pretokenizers"][0] = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return changed(tmp_path, change, source)


def test_the_example_of_the_spec():
    assert ids(BYTES, "Hello world", "--add-bos", "--add-eos") == [2002, 72, 101, 108, 108, 111, 119, 111, 114, 108, 100, 2003]


@pytest.mark.parametrize("folder", [BYTES, WORDS])
def test_bundled_ids_stay_below_the_debug_vocabulary(folder):
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert max(vocab.values()) < 2048


def test_what_it_prints(tmp_path):
    text = tmp_path / "text"
    text.write_text("Hi <|end_of_text|>\n")
    assert run(BYTES, text) == b"72 105 2003 10\n"
    assert run(BYTES, text, "--count") == b"4\n"
    assert run(BYTES, text, "--pieces").decode().split() == ["72", "H", "105", "i", "2003", "<|end_of_text|>", "10", "Ċ"]
    assert json.loads(run(BYTES, text, "--json")) == {"ids": [72, 105, 2003, 10], "count": 4}
    assert run(BYTES, "--decode", stdin=b"72 105\n2003") == b"Hi<|end_of_text|>"
    assert run(BYTES) == b"\n"


def test_ids_of_a_stream_are_those_of_its_parts_together():
    rng = random.Random(3)
    lines = ["".join(rng.choices("ab 12,\n\t 漢é", k=rng.randrange(60))) + f" {i}\n" for i in range(20_000)]
    whole = ids(WORDS, "".join(lines))
    assert run(WORDS, "--decode", stdin=" ".join(map(str, whole)).encode()).decode() == "".join(lines)
    assert whole[:50] == ids(WORDS, "".join(lines[:40]))[:50]


@pytest.mark.parametrize("text, offset", [
    (b"ab\xff", 2), (b"\xc3", 0), (b"x" * 5_000_000 + b"\xed\xa0\x80", 5_000_000), (b"\xe6\xbc" + b"x", 0), (b"\xc0\x80", 0),
    (b"ok \xf4\x90\x80\x80", 3), (b"\xe6\xbc\xa2" * 700_000 + b"\xe6\xbc", 2_100_000)])
def test_refuses_invalid_utf8_with_the_offset(text, offset):
    assert f"at byte {offset}:" in run(WORDS, "--count", stdin=text, status=tool.BAD_INPUT)


def test_refuses_a_missing_folder_and_one_without_a_tokenizer(tmp_path):
    assert "Tokenizer path '/no/such' does not exist" in run("/no/such", status=tool.BAD_INPUT)
    (tmp_path / "readme").write_text("x")
    message = run(tmp_path, status=tool.BAD_INPUT)
    assert "No supported tokenizer files found" in message and "readme" in message


def test_warns_without_tokenizer_config(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((BYTES / "tokenizer.json").read_bytes())
    done = subprocess.run([tool.program(), "tokenize", tmp_path], input=b"a", capture_output=True, env=tool.environment())
    assert done.stdout == b"97\n" and b"No tokenizer_config.json found" in done.stderr
    assert ids(tmp_path, "a", "--add-bos", "--add-eos") == [97]


def setting(pointer, value):
    def change(document):
        *parents, name = pointer.strip("/").split("/")
        for parent in parents:
            document = document[int(parent) if parent.isdigit() else parent]
        document[int(name) if name.isdigit() else name] = value
    return change


@pytest.mark.parametrize("pointer, value, named", [
    ("/normalizer", {"type": "Nmt"}, "/normalizer/type: normalizer 'Nmt'"),
    ("/normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Precompiled"}]}, "/normalizer/normalizers/1/type"),
    ("/pre_tokenizer", {"type": "UnicodeScripts"}, "pre-tokenizer 'UnicodeScripts'"),
    ("/post_processor", {"type": "BertProcessing"}, "post-processor 'BertProcessing'"),
    ("/decoder", {"type": "CTC"}, "decoder 'CTC'"),
    ("/model", {"type": "Unigram", "vocab": []}, "model 'Unigram'"),
    ("/model", {"type": "WordPiece", "vocab": {}}, "model 'WordPiece'"),
    ("/model/dropout", 0.1, "/model/dropout"),
    ("/truncation", {"max_length": 3}, "/truncation"),
    ("/padding", {"strategy": "BatchLongest"}, "/padding"),
    ("/model/vocab", ["a"], "/model/vocab"),
    ("/model/vocab/a", "x", "/model/vocab/a"),
    ("/model/vocab/a", -1, "/model/vocab/a"),
    ("/model/vocab/a", 1 << 40, "/model/vocab/a"),
    ("/model/merges", {}, "/model/merges"),
    ("/model/merges", ["a b"], "/model/merges/0: the vocabulary lacks 'ab'"),
    ("/model/merges", ["ab"], "/model/merges/0"),
    ("/model/merges", [["a", "b", "c"]], "/model/merges/0"),
    ("/model/fuse_unk", "yes", "/model/fuse_unk"),
    ("/added_tokens/0", {"id": 0}, "/added_tokens/0/content"),
    ("/pre_tokenizer/pretokenizers/0/behavior", "Sideways", "/pre_tokenizer/pretokenizers/0/behavior"),
    ("/pre_tokenizer/pretokenizers/0/pattern", {"Regex": "(a"}, "/pre_tokenizer/pretokenizers/0/pattern/Regex"),
    ("/pre_tokenizer/pretokenizers/0/pattern", {"Regex": "[a&&b]"}, "an intersection of classes"),
    ("/pre_tokenizer/pretokenizers/0/pattern", {}, "/pre_tokenizer/pretokenizers/0/pattern"),
])
def test_refuses_a_broken_tokenizer_by_the_key(tmp_path, pointer, value, named):
    message = run(changed(tmp_path, setting(pointer, value)), stdin=b"a", status=tool.BAD_INPUT)
    assert "tokenizer.json" in message and named.split(": ")[0] in message and named.split(": ")[-1] in message, message


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "{\"model\": {\"type\": \"BPE\"}}", "[" * 100_000, "\x00"])
def test_refuses_what_is_no_tokenizer_json(tmp_path, text):
    assert "tokenizer.json" in run(changed(tmp_path, lambda _: text or " "), stdin=b"a", status=tool.BAD_INPUT)


@pytest.mark.parametrize("config, named", [("{", "byte"), ('{"bos_token": 3}', "/bos_token"), ('{"eos_token": {"x": 1}}', "/eos_token/content"),
                                           ('{"added_tokens_decoder": {"x": {"content": "a"}}}', "/added_tokens_decoder/x")])
def test_refuses_a_broken_tokenizer_config(tmp_path, config, named):
    folder = changed(tmp_path, lambda document: None)
    (folder / "tokenizer_config.json").write_text(config)
    message = run(folder, stdin=b"a", status=tool.BAD_INPUT)
    assert "tokenizer_config.json" in message and named in message


def test_a_pattern_that_explodes_is_given_up(tmp_path):
    folder = with_regex(tmp_path, "(a+)+(a+)+(a+)+$x|(?:(?:a|a)*)*b")
    begin = time.monotonic()
    message = run(folder, stdin=b"a" * 5000 + b"c", status=(tool.BAD_INPUT))
    assert "gives up" in message and time.monotonic() - begin < 30


@pytest.mark.parametrize("text", ["a" * 1_000_000, " " * 1_000_000, "ab" * 500_000, "漢字" * 200_000, "!" * 1_000_000, "\n" * 1_000_000, "1" * 1_000_000,
                                  "e" + "\u0301" * 500_000])
def test_a_long_run_is_fast(text):
    begin = time.monotonic()
    assert int(run(WORDS, "--count", stdin=text.encode())) > 0
    assert time.monotonic() - begin < 20


def test_no_dropout_may_be_said_as_0(tmp_path):
    tokenizer = json.loads((WORDS / "tokenizer.json").read_text())
    tokenizer["model"]["dropout"] = 0.0
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert ids(tmp_path, "The quick brown fox") == ids(WORDS, "The quick brown fox")


def test_memory_does_not_grow_with_the_text(tmp_path):
    text = tmp_path / "text"
    with text.open("w") as file:
        for _ in range(1000):
            file.write("The quick brown fox jumps over the lazy dog. 12345\n" * 1000)
    # A limit on its own memory: a peak that the system reports may be that of the process which started it.
    limited = ["bash", "-c", 'ulimit -d 65536 && exec "$@"', "_", tool.program(), "tokenize", WORDS, text, "--count"]
    done = subprocess.run(list(map(str, limited)), capture_output=True, text=True, timeout=120, env=tool.environment())
    assert (done.returncode, done.stdout) == (0, "32000000\n"), done.stderr


def test_vocab_json_with_merges_is_byte_level_bpe(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4, "<s>": 5}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n\nĠ ab\r\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
    assert ids(tmp_path, "ab ab<s>", "--add-bos", "--add-eos") == [5, 2, 4, 5, 6]


@pytest.mark.parametrize("name, content", [("vocab.json", '{"hello": 7, "[UNK]": 2}'), ("vocab.txt", "x\ny\n[UNK]\r\n\n\n\n\n hello \n")])
def test_a_vocabulary_alone_is_whole_words(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode())
    assert ids(tmp_path, "hello") == [7] and ids(tmp_path, "hello hello") == [2]
