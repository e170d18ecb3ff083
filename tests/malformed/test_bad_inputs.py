"""Every case of tests/data/bad that the tool's commands reach: exit status, words of the message, and what must not happen.

A case's README.md says what is right, its case.json the same for machines. Their generic actions are mapped as follows: `inspect` and
`verify` to those commands, `load` to a `convert` that reads everything. A refusal exits with 3, or 1 from `verify`.
"""
import hashlib
import json
import os
import shutil
import struct
import subprocess

import numpy
import pytest
from tool import BAD_INPUT, DATA, DONE, WANTING, contents, environment, milepost, program, tree

BAD = DATA / "bad"

# No case is larger than a few KiB; a sanitizer has a footprint of its own.
MAX_PEAK_KIB = (1 << 20) if os.environ.get("MILEPOST_SANITIZE") else (64 << 10)

# A job's: src/manager/bad_folders_test.cc and train/state/bad_folders_test.cc have them, and steps-basic, shape-mismatch and others as a job meets them.
NOT_REACHED = {"resume-from-model-only", "dataloader-missing-rank"}
REACHED = {
    "bytes-entry-pickle-callable", "data-file-missing", "hf-index-and-single", "hf-index-escape", "hf-index-missing-shard",
    "metadata-damaged", "metadata-odd-keys", "safetensors-header-length", "safetensors-offsets",
    "shape-mismatch",  # by `diff` against the wanted target
    "steps-basic",     # its step folders one by one
}


def expectation(name):
    return json.loads((BAD / name / "case.json").read_text())["expect"]


class Case:
    """A copy of one case, and the commands run beside it."""

    def __init__(self, name, folder):
        self.path = folder / name
        self.expect = expectation(name)
        shutil.copytree(BAD / name, self.path)
        self.path.chmod(0o755)
        self.before = tree(self.path)
        self.out = folder / "out"

    def run(self, *arguments, status, mention=()):
        result = milepost(*arguments, status=status, cwd=self.path, timeout_s=20)
        self.check_harmless()
        assert result.peak_kib < MAX_PEAK_KIB, f"{result.peak_kib} KiB"
        for word in mention:
            assert word in result.text, f"'{word}' is not mentioned\n{result}"
        return result

    def inspect(self, path, *options, **expect):
        return self.run("inspect", path, *options, **expect)

    def verify(self, path, **expect):
        return self.run("verify", path, **expect)

    def load(self, path, *options, to="dcp", status, mention=()):
        """Converts, so that everything selected is read; nothing may appear at the output's name when that is refused."""
        destination = self.out / f"{len(list(self.out.glob('*')))}.{to}"
        self.out.mkdir(exist_ok=True)
        result = self.run("convert", path, destination, "--to", to, *options, status=status, mention=mention)
        assert destination.exists() == (result.status == DONE), str(result)
        assert not list(self.out.glob(".milepost*")), "staging is left behind"
        return destination

    def check_harmless(self):
        assert tree(self.path) == self.before, "the input has changed"
        for folder in (self.path, self.path.parent):
            assert not list(folder.rglob(self.expect.get("no_file", "CAIRN_MARKER")))


@pytest.fixture
def case(request, tmp_path):
    return Case(request.param, tmp_path)


def on_case(name):
    return pytest.mark.parametrize("case", [name], indirect=True)


def files_of(name):
    """(file, good | either | bad) for a case of many files."""
    expect = expectation(name)
    for path in sorted((BAD / name).glob("*.safetensors")):
        kinds = [kind for kind in ("good", "either") if path.name in expect.get(kind, ())]
        yield path.name, *(kinds or ["bad"])


def float32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_every_case_is_known():
    assert {p.parent.name for p in BAD.glob("*/case.json")} == REACHED | NOT_REACHED


@on_case("bytes-entry-pickle-callable")
def test_callable_in_an_entry_is_never_called(case):
    listing = case.inspect("ckpt", "--json", status=DONE).json
    assert [t["name"] for t in listing["tensors"]] == ["w"]
    assert [o["name"] for o in listing["objects"]] == ["train_state.step"]
    case.inspect("ckpt", status=DONE, mention=["train_state.step"])
    case.inspect("ckpt", "--value", "train_state.step", status=BAD_INPUT, mention=[*case.expect["mention"], "open"])
    case.load("ckpt", status=BAD_INPUT, mention=[*case.expect["mention"], "open"])
    case.load("ckpt", to="torch", status=BAD_INPUT, mention=[*case.expect["mention"], "open"])
    case.inspect("ckpt", "--value", "w", status=DONE)
    tensors, _ = contents(case.load("ckpt", "--match", "w", status=DONE))
    assert tensors.keys() == {"w"}
    case.verify("ckpt", status=(DONE, WANTING))


@on_case("data-file-missing")
def test_missing_data_file_is_named(case):
    case.inspect("ckpt", status=DONE)
    case.verify("ckpt", status=WANTING, mention=[*case.expect["mention"], "w"])
    for to in ("dcp", "torch"):
        case.load("ckpt", to=to, status=BAD_INPUT, mention=[*case.expect["mention"], "'w'", "[2:4"])
    case.load("ckpt", to="safetensors", status=BAD_INPUT)
    _, objects = contents(case.load("ckpt", "--match", "train_state.step", status=DONE))
    assert objects.keys() == {"train_state.step"}


@on_case("hf-index-and-single")
def test_index_decides_and_the_stray_file_is_named(case):
    result = case.inspect(".", status=DONE)
    for word in case.expect["warn"]:
        assert word in result.text
    tensors, _ = contents(case.load(".", status=DONE))
    assert {name: t["sha256"] for name, t in tensors.items()} == {
        name: sha256(float32(*values)) for name, values in case.expect["values"].items()}
    case.verify(".", status=WANTING, mention=case.expect["warn"])


@on_case("hf-index-escape")
def test_paths_that_leave_the_folder_are_never_opened(case, tmp_path):
    case.verify("model", status=WANTING, mention=[*case.expect["mention"], "/dev/zero"])
    case.load("model", status=BAD_INPUT, mention=case.expect["mention"])
    log = tmp_path / "strace.log"
    for arguments in (["verify", "model"], ["inspect", "model"], ["convert", "model", case.out / "x", "--to", "dcp"]):
        subprocess.run(["strace", "-f", "-e", "trace=open,openat,openat2", "-o", log, program(), *arguments], cwd=case.path,
                       env={**environment(), "ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True, timeout=60)
        opened = log.read_text()
        assert "model.safetensors.index.json" in opened
        assert "outside.safetensors" not in opened and "/dev/zero" not in opened


@on_case("hf-index-missing-shard")
def test_missing_shard_and_its_tensors_are_named(case):
    case.verify(".", status=WANTING, mention=[*case.expect["mention"], "c", "d"])
    for to in ("dcp", "torch", "safetensors"):
        case.load(".", to=to, status=BAD_INPUT, mention=[*case.expect["mention"], "c, d"])


@pytest.mark.parametrize("variant", sorted(p.name for p in (BAD / "metadata-damaged").iterdir() if p.is_dir()))
@on_case("metadata-damaged")
def test_damaged_metadata_is_refused_with_the_reason(case, variant):
    refused = BAD_INPUT if variant not in case.expect["either"] else (DONE, BAD_INPUT)
    found = WANTING if variant not in case.expect["either"] else (DONE, WANTING)
    if variant == "tmp-only":
        found = (WANTING, BAD_INPUT)  # there is no checkpoint yet
    mention = [".metadata"]
    if variant == "missing-storage":
        mention.append("w")
    if variant == "future-version":
        mention = ["99.0.0"]
    case.inspect(variant, status=refused, mention=mention)
    case.verify(variant, status=found, mention=mention)
    case.load(variant, status=refused, mention=mention)


@on_case("metadata-odd-keys")
def test_odd_names_are_listed_loaded_and_survive(case):
    values = json.loads((case.path / "values.json").read_text())
    wanted = {name: sha256(float32(*numbers)) for name, numbers in values.items()}

    text = case.inspect("ckpt", status=DONE).text
    assert "line\nbreak" not in text and r"line\nbreak" in text
    for name, numbers in values.items():
        shown = case.inspect("ckpt", "--value", name, status=DONE).out
        assert f"{numbers[0]:g}" in shown
    tensors, objects = contents(case.path / "ckpt")
    everything = {name: t["sha256"] for name, t in tensors.items()}
    assert wanted.items() <= everything.items()
    case.verify("ckpt", status=DONE)

    for to in ("dcp", "safetensors", "torch"):
        converted = case.load("ckpt", to=to, status=DONE)
        back = case.load(converted, to="dcp", status=DONE)
        for path in (converted, back):
            assert {name: t["sha256"] for name, t in contents(path)[0].items()} == everything
            case.verify(path, status=DONE)
    case.run("reshard", "ckpt", case.out / "resharded", "--ranks", 2, status=DONE)
    assert {name: t["sha256"] for name, t in contents(case.out / "resharded")[0].items()} == everything
    assert {p.name for p in case.path.parent.iterdir()} == {case.path.name, "out"}, "something was created outside the output"


def header_names(path):
    """Tensor names in a safetensors header that parses at all."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return set(json.loads(data[8:8 + length])) - {"__metadata__"}


def check_safetensors_file(case, file, kind, names):
    if kind == "good":
        case.inspect(file, status=DONE)
        case.verify(file, status=DONE)
        for to in ("dcp", "torch", "safetensors"):
            case.load(file, to=to, status=DONE)
        return
    refused, found = (BAD_INPUT, WANTING) if kind == "bad" else ((DONE, BAD_INPUT), (DONE, WANTING))
    results = [case.inspect(file, status=refused, mention=[file]), case.verify(file, status=found, mention=[file])]
    for to in ("dcp", "torch", "safetensors"):
        case.load(file, to=to, status=refused, mention=[file])
    for result in results:
        assert not names or any(f"'{name}'" in result.text for name in names), f"want one of {names} named\n{result}"


@pytest.mark.parametrize("file, kind", list(files_of("safetensors-header-length")))
@on_case("safetensors-header-length")
def test_header_length(case, file, kind):
    check_safetensors_file(case, file, kind, names=())


@pytest.mark.parametrize("file, kind", list(files_of("safetensors-offsets")))
@on_case("safetensors-offsets")
def test_header_offsets(case, file, kind):
    check_safetensors_file(case, file, kind, names=header_names(case.path / file))


@on_case("shape-mismatch")
def test_diff_against_the_wanted_target_reports_everything_at_once(case, tmp_path):
    from safetensors.numpy import save_file

    wanted = json.loads((case.path / "target.json").read_text())
    target = tmp_path / "target.safetensors"
    save_file({name: numpy.zeros(t["shape"], t["dtype"]) for name, t in wanted.items()}, target)
    result = case.run("diff", "ckpt", target, status=WANTING, mention=case.expect["mention"])
    assert "[4, 2]" in result.text and "[6, 2]" in result.text


@on_case("steps-basic")
def test_step_folders(case):
    for step in ("step-9", "step-10"):
        case.inspect(f"checkpoint/{step}", status=DONE)
        case.verify(f"checkpoint/{step}", status=DONE)
        case.load(f"checkpoint/{step}", status=DONE)
    incomplete = case.inspect("checkpoint/step-100", status=BAD_INPUT, mention=[".metadata", "step-100"])
    absent = case.inspect("checkpoint/step-11", status=BAD_INPUT, mention=["step-11"])
    assert incomplete.err.replace("step-100", "") != absent.err.replace("step-11", "")
    case.verify("checkpoint/step-100", status=(WANTING, BAD_INPUT), mention=[".metadata"])
    case.load("checkpoint/step-100", status=BAD_INPUT)
    case.verify("checkpoint/step-11", status=BAD_INPUT)
