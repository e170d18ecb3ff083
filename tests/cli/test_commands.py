"""The tool as a person or a script meets it: help, exit statuses, JSON, terminals, and what it refuses to overwrite or leave behind."""
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
import zipfile

import pytest
from tool import BAD_INPUT, DATA, DONE, SYSTEM, USAGE, WANTING, environment, milepost, program, tree

CHECKPOINT = DATA / "dcp/fsdp_2rank/ckpt"
OTHER = DATA / "dcp/lowest_rank/ckpt"
SAFETENSORS = DATA / "dcp/hf_single/ckpt"
COMMANDS = (["inspect"], ["verify"], ["diff"], ["convert"], ["reshard"], ["manifest", "write"], ["manifest", "verify"])
ESCAPE = "\x1b"


# ---- help and usage

def test_help_lists_the_commands():
    text = milepost("--help").out
    for command in COMMANDS:
        assert command[0] in text


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(command):
    text = milepost(*command, "--help").out
    assert re.search(r"^\s*(\$ )?milepost " + " ".join(command), text.split("xample", 1)[1], re.MULTILINE), text


def test_docs_are_the_tools_own_help():
    """After a change of help: tools/write_cli_docs.py build/dev/cli/milepost > docs/cli.md"""
    root = DATA.parents[1]
    made = subprocess.run([sys.executable, root / "tools/write_cli_docs.py", program()], stdout=subprocess.PIPE, text=True, check=True)
    assert made.stdout == (root / "docs/cli.md").read_text()


def test_version():
    assert re.search(r"\d+\.\d+\.\d+", milepost("--version").out)


@pytest.mark.parametrize("arguments", [
    [], ["no-such-command"], ["inspect"], ["inspect", CHECKPOINT, "--no-such-option"], ["diff", CHECKPOINT], ["convert", CHECKPOINT],
    ["convert", CHECKPOINT, "{out}"], ["convert", CHECKPOINT, "{out}", "--to", "onnx"], ["manifest"],
    ["convert", CHECKPOINT, "{out}", "--to", "dcp", "--dtype", "float31"],
    ["convert", CHECKPOINT, "{out}", "--to", "dcp", "--max-memory", "lots"],
    ["convert", CHECKPOINT, "{out}", "--to", "dcp", "--threads", "0"],
    ["reshard", CHECKPOINT, "{out}"], ["reshard", CHECKPOINT, "{out}", "--ranks", "0"],
    ["reshard", CHECKPOINT, "{out}", "--mesh", "dp=two"],
], ids=lambda a: " ".join(str(x).split("/")[-1] for x in a) or "nothing")
def test_bad_usage_exits_with_2_and_points_to_help(arguments, tmp_path):
    result = milepost(*[str(a).format(out=tmp_path / "out") for a in arguments], status=USAGE)
    assert result.out == ""
    assert result.err.strip()
    assert not (tmp_path / "out").exists()


# ---- exit statuses

def test_absent_input_exits_with_3(tmp_path):
    for command in (["inspect"], ["verify"], ["manifest", "verify"]):
        assert "nothing-here" in milepost(*command, tmp_path / "nothing-here", status=BAD_INPUT).err
    assert "nothing-here" in milepost("diff", CHECKPOINT, tmp_path / "nothing-here", status=BAD_INPUT).err


@pytest.mark.parametrize("uri", ["s3://bucket/ckpt", "gs://bucket/ckpt", "hdfs://host/ckpt"])
def test_remote_schemes_are_refused_by_name(uri):
    assert uri.split(":")[0] in milepost("inspect", uri, status=(USAGE, BAD_INPUT)).err


def test_unknown_value_or_match_is_bad_input():
    assert "no.such.key" in milepost("inspect", CHECKPOINT, "--value", "no.such.key", status=BAD_INPUT).err


@pytest.mark.parametrize("fault, word", [("write:1:EIO", "Input/output error"), ("sync:1:EIO", "Input/output error"),
                                         ("write:2:ENOSPC", "No space left"), ("rename:1:EIO", "Input/output error")])
def test_system_failure_exits_with_4_and_leaves_nothing(tmp_path, fault, word):
    result = milepost("convert", CHECKPOINT, f"faulty+file:{tmp_path}/out?fail={fault}", "--to", "dcp", status=SYSTEM)
    assert word in result.err
    assert not list(tmp_path.iterdir())


def test_read_failure_exits_with_4(tmp_path):
    result = milepost("convert", f"faulty+file:{CHECKPOINT}?fail=read:3:EIO", tmp_path / "out", "--to", "dcp", status=SYSTEM)
    assert "Input/output error" in result.err
    assert not list(tmp_path.iterdir())


def test_old_output_survives_a_failed_overwrite(tmp_path):
    milepost("convert", OTHER, tmp_path / "out", "--to", "dcp")
    before = tree(tmp_path)
    for fault in ("write:1:EIO", "sync:1:EIO", "exchange:1:EIO"):
        milepost("convert", CHECKPOINT, f"faulty+file:{tmp_path}/out?fail={fault}", "--to", "dcp", "--overwrite", status=SYSTEM)
        assert tree(tmp_path) == before


def test_diff(tmp_path):
    milepost("diff", CHECKPOINT, CHECKPOINT)
    result = milepost("diff", CHECKPOINT, OTHER, status=WANTING)
    assert "missing" in result.out.lower() or "only in" in result.out.lower()


def write_safetensors(path, **tensors):
    """name=(dtype, shape, bytes)"""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def float32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def test_diff_tolerances(tmp_path):
    a = write_safetensors(tmp_path / "a.safetensors", w=("F32", [4], float32(1, 2, 3, 4)))
    b = write_safetensors(tmp_path / "b.safetensors", w=("F32", [4], float32(1, 2, 3.003, 4)))
    result = milepost("diff", a, b, status=WANTING)
    assert "w" in result.out and "[2]" in result.out
    milepost("diff", a, b, "--rtol", "0.01")
    milepost("diff", a, b, "--atol", "0.01")
    milepost("diff", a, b, "--rtol", "0.0001", status=WANTING)
    document = milepost("diff", a, b, "--json", status=WANTING).json
    assert "w" in json.dumps(document)


def test_stats(tmp_path):
    nan, inf = float("nan"), float("inf")
    path = write_safetensors(tmp_path / "a.safetensors", w=("F32", [6], float32(-1, 0, 0, 3, nan, inf)))
    text = milepost("inspect", path, "--stats").out
    for word in ("-1", "nan", "inf"):
        assert word in text.lower()
    stats = milepost("inspect", path, "--stats", "--json").json["tensors"][0]["stats"]
    assert (stats["min"], stats["zeros"], stats["nan"], stats["inf"]) == (-1, 2, 1, 1)


def test_lossy_cast_needs_dtype(tmp_path):
    path = write_safetensors(tmp_path / "a.safetensors", w=("F32", [2], float32(1, 2.5)), i=("I64", [1], struct.pack("<q", 7)))
    milepost("convert", path, tmp_path / "half", "--to", "safetensors", "--dtype", "bfloat16")
    listing = milepost("inspect", tmp_path / "half", "--json").json
    assert {t["name"]: t["dtype"] for t in listing["tensors"]} == {"w": "bfloat16", "i": "int64"}


def test_manifest(tmp_path):
    milepost("convert", CHECKPOINT, tmp_path / "out", "--to", "dcp")
    milepost("manifest", "write", tmp_path / "out")
    manifest = json.loads((tmp_path / "out/_checkpoint_hash_manifest.json").read_text())
    files = {k: v for k, v in tree(tmp_path / "out").items() if not k.startswith("_checkpoint_hash_manifest")}
    assert manifest == {"algorithm": "sha256", "granularity": "file", "hash": files}
    assert (tmp_path / "out/_checkpoint_hash_manifest.json").read_text() == json.dumps(manifest, indent=2, sort_keys=True)
    milepost("manifest", "verify", tmp_path / "out")
    victim = sorted((tmp_path / "out").glob("*.distcp"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    assert victim.name in milepost("manifest", "verify", tmp_path / "out", status=WANTING).text


def flip_payload_bit(folder, tensor):
    """In the middle of the tensor's first item, which is a zip archive whose payload is its record data/0."""
    listing = milepost("inspect", folder, "--json", "--chunks", "--match", tensor).json
    chunk = listing["tensors"][0]["chunks"][0]
    path = folder / chunk["file"]
    data = bytearray(path.read_bytes())
    item = bytes(data[chunk["offset"]:chunk["offset"] + chunk["length"]])
    payload = zipfile.ZipFile(io.BytesIO(item)).read("archive/data/0")
    data[chunk["offset"] + item.index(payload) + len(payload) // 2] ^= 1
    path.write_bytes(data)


def test_verify_finds_a_flipped_bit_by_its_crc(tmp_path):
    milepost("convert", CHECKPOINT, tmp_path / "out", "--to", "dcp")
    flip_payload_bit(tmp_path / "out", "w.even")
    result = milepost("verify", tmp_path / "out", status=WANTING)
    assert "w.even" in result.text and "CRC" in result.text.upper()
    assert result.text.count("error:") == 1
    milepost("verify", tmp_path / "out", "--structure-only")


def test_verify_reports_all_findings_and_stale_files(tmp_path):
    milepost("convert", CHECKPOINT, tmp_path / "out", "--to", "dcp", "--files", "3")
    files = sorted((tmp_path / "out").glob("*.distcp"))
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-200])
    (tmp_path / "out/__9_0.distcp").write_bytes(b"stale")
    result = milepost("verify", tmp_path / "out", status=WANTING)
    for word in (files[0].name, files[1].name, "__9_0.distcp"):
        assert word in result.text
    assert milepost("verify", tmp_path / "out", "--json", status=WANTING).json["findings"]


# ---- JSON and terminals

@pytest.mark.parametrize("arguments", [
    ["inspect", CHECKPOINT], ["inspect", CHECKPOINT, "--stats"], ["inspect", CHECKPOINT, "--chunks"],
    ["inspect", CHECKPOINT, "--value", "w.even"], ["inspect", SAFETENSORS], ["verify", CHECKPOINT], ["diff", CHECKPOINT, CHECKPOINT],
    ["convert", CHECKPOINT, "{out}", "--to", "dcp"], ["convert", CHECKPOINT, "{out}", "--to", "dcp", "--dry-run"],
    ["reshard", CHECKPOINT, "{out}", "--ranks", "2"],
], ids=lambda a: " ".join(str(x).split("/")[-1] for x in a))
def test_json_is_one_document(arguments, tmp_path):
    result = milepost(*[str(a).format(out=tmp_path / "out") for a in arguments], "--json")
    assert isinstance(result.json, dict)
    assert result.err == ""


@pytest.mark.parametrize("arguments", [["inspect", CHECKPOINT], ["verify", CHECKPOINT], ["diff", CHECKPOINT, OTHER],
                                       ["inspect", "/nothing/here"], ["convert", CHECKPOINT, "{out}", "--to", "dcp"]],
                         ids=lambda a: " ".join(str(x).split("/")[-1] for x in a))
def test_no_colours_or_bars_without_a_terminal(arguments, tmp_path):
    result = milepost(*[str(a).format(out=tmp_path / "out") for a in arguments], status=(DONE, WANTING, BAD_INPUT))
    assert ESCAPE not in result.text and "\r" not in result.text


def on_terminal(*arguments, variables=()):
    """Runs the tool on a pseudo-terminal and returns what it printed."""
    main, end = pty.openpty()
    process = subprocess.Popen([program(), *map(str, arguments)], stdin=end, stdout=end, stderr=end,
                               env={**environment(), "TERM": "xterm-256color", **dict(variables)})
    os.close(end)
    output = b""
    while True:
        try:
            block = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        output += block
    os.close(main)
    process.wait(60)
    return output.decode()


def test_colours_on_a_terminal():
    assert ESCAPE in on_terminal("verify", CHECKPOINT)
    assert ESCAPE not in on_terminal("verify", CHECKPOINT, variables={"NO_COLOR": "1"})
    assert ESCAPE not in on_terminal("verify", CHECKPOINT, "--json")


def test_control_characters_in_names_are_escaped(tmp_path):
    name = "evil\x1b[2J\nname\x07"
    path = write_safetensors(tmp_path / "a.safetensors", **{name: ("F32", [1], float32(1))})
    for output in (milepost("inspect", path).out, milepost("inspect", path, "--chunks").out, milepost("inspect", path, "--stats").out):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", output), repr(output)
        assert r"\x1b[2J\nname" in output
    assert "\x1b[2J" not in on_terminal("inspect", path)
    assert milepost("inspect", path, "--json").json["tensors"][0]["name"] == name


def test_quick_listing_folds_repetition(tmp_path):
    tensors = {f"layers.{i}.attention.wq.weight": ("F32", [1], float32(i)) for i in range(60)}
    path = write_safetensors(tmp_path / "a.safetensors", **tensors)
    output = milepost("inspect", path).out
    assert "[0-59]" in output
    assert len(output.splitlines()) < 40


def test_match_selects(tmp_path):
    milepost("convert", CHECKPOINT, tmp_path / "out", "--to", "dcp", "--match", "w.*")
    names = {t["name"] for t in milepost("inspect", tmp_path / "out", "--json").json["tensors"]}
    assert names and all(name.startswith("w.") for name in names)
    listed = {t["name"] for t in milepost("inspect", CHECKPOINT, "--json", "--match", "w.*").json["tensors"]}
    assert listed == names


# ---- outputs

@pytest.mark.parametrize("to", ["dcp", "safetensors", "torch"])
def test_dry_run_writes_nothing(tmp_path, to):
    before = tree(CHECKPOINT)
    result = milepost("convert", CHECKPOINT, tmp_path / "out", "--to", to, "--dry-run", "--skip-unsupported")
    assert not list(tmp_path.iterdir())
    assert tree(CHECKPOINT) == before
    for word in ("memory", "disk"):
        assert word in result.out.lower()


def test_existing_output_is_refused_without_overwrite(tmp_path):
    milepost("convert", CHECKPOINT, tmp_path / "out", "--to", "dcp")
    before = tree(tmp_path)
    refusal = milepost("convert", OTHER, tmp_path / "out", "--to", "dcp", status=(USAGE, BAD_INPUT))
    assert "--overwrite" in refusal.err
    assert tree(tmp_path) == before
    milepost("convert", OTHER, tmp_path / "out", "--to", "dcp", "--overwrite")
    milepost("diff", OTHER, tmp_path / "out")


def test_overwrite_does_not_replace_a_folder_that_is_no_checkpoint(tmp_path):
    home = tmp_path / "home"
    (home / "papers").mkdir(parents=True)
    (home / "papers/thesis.tex").write_text("years of work")
    refusal = milepost("convert", CHECKPOINT, home, "--to", "dcp", "--overwrite", status=(USAGE, BAD_INPUT))
    assert "papers" in refusal.err
    assert (home / "papers/thesis.tex").read_text() == "years of work"


def test_output_inside_the_input_is_harmless(tmp_path):
    milepost("convert", CHECKPOINT, tmp_path / "in", "--to", "dcp")
    milepost("convert", tmp_path / "in", tmp_path / "in", "--to", "dcp", "--overwrite")
    milepost("diff", CHECKPOINT, tmp_path / "in")


def test_equal_runs_give_equal_bytes(tmp_path):
    for to in ("dcp", "safetensors", "torch"):
        for folder, threads in (("a", 1), ("b", 4)):
            (tmp_path / folder).mkdir(exist_ok=True)
            milepost("convert", CHECKPOINT, tmp_path / folder / f"x.{to}", "--to", to, "--threads", threads, "--skip-unsupported")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_interrupt_leaves_nothing(tmp_path):
    source = tmp_path / "big.safetensors"
    size = 1 << 30
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    source.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(source, 8 + len(header) + size)  # a hole: nothing is stored
    (tmp_path / "work").mkdir()
    process = subprocess.Popen([program(), "convert", source, tmp_path / "work/out", "--to", "dcp"], env=environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "work").iterdir()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, -signal.SIGINT.value), output
    assert not list((tmp_path / "work").iterdir()), output
