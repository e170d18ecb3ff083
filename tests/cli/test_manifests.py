"""Hash manifests of a run's checkpoints: written with each save, checked before each load, by all ranks."""
import hashlib
import json
import shutil

import pytest
from cli.ranks import run_ranks
from cli.training import FAILED, TITAN, TITAN_RUN, USAGE, records, run
from tool import WANTING, milepost

VERIFY = ("--checkpoint.enable", "--checkpoint.extensions.verify-hash-manifest")
NAME = "_checkpoint_hash_manifest.json"
PENDING = "_checkpoint_hash_manifest.pending"


def train(folder, *flags, **options):
    return run(*TITAN_RUN, "--dump-folder", folder, *VERIFY, *flags, **options)[1]


def check_manifest(step):
    """That it is there, as Python would write it, and lists every file with its hash."""
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in step.iterdir() if path.is_file() and path.name != NAME}
    assert (step / NAME).read_text() == json.dumps({"algorithm": "sha256", "granularity": "file", "hash": files}, indent=2, sort_keys=True)
    milepost("manifest", "verify", step)
    milepost("verify", step)
    return sorted(files)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder and the log of a run that has saved steps 2 and 4."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(folder, "--checkpoint.interval", 2, "--training.steps", 4, "--checkpoint.no-last-save-model-only")


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained[0] / "checkpoint", tmp_path / "checkpoint")
    return tmp_path


DATA_FILES = [f"__0_{i}.distcp" for i in range(4)]


def test_every_save_has_one(trained):
    folder, log = trained
    for step in (2, 4):
        path = folder / f"checkpoint/step-{step}"
        assert check_manifest(path) == [".metadata", *DATA_FILES]
        assert f"Wrote checkpoint hash manifest to {path / NAME} (5 hashes)." in log


def test_a_run_goes_on_from_what_it_has_verified(trained, copied):
    shutil.rmtree(copied / "checkpoint/step-4")
    log = train(copied, "--checkpoint.interval", 2, "--training.steps", 4, "--checkpoint.no-last-save-model-only")
    assert f"Checkpoint hash manifest verified for {copied}/checkpoint/step-2" in log
    events = [json.loads(line) for line in (copied / "checkpoint-events.jsonl").open()]
    assert [(e["event"], e["step"]) for e in events][0] == ("verified", 2)
    assert events[0]["bytes"] == sum((copied / "checkpoint/step-2" / name).stat().st_size for name in (".metadata", *DATA_FILES))
    assert {step: r["loss"] for step, r in records(copied).items()} == {step: r["loss"] for step, r in records(trained[0]).items() if step > 2}
    for name in (*DATA_FILES, ".metadata"):
        assert (copied / "checkpoint/step-4" / name).read_bytes() == (trained[0] / "checkpoint/step-4" / name).read_bytes()


def test_hugging_faces_files_have_one_too(tmp_path):
    log = train(tmp_path / "run", "--training.steps", 1, "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf")
    step = tmp_path / "run/checkpoint/step-1"
    assert check_manifest(step) == ["config.json", "model.safetensors", "model.safetensors.index.json"]
    assert "(3 hashes)." in log
    flags = ("--checkpoint.initial-load-path", step, "--checkpoint.initial-load-in-hf", "--training.steps", 1)
    assert f"manifest verified for {step}" in train(tmp_path / "good", *flags, "--checkpoint.extensions.require-manifest")
    flip(step / "config.json")
    log = train(tmp_path / "bad", *flags, status=FAILED)
    assert "CheckpointManifestError" in log and "config.json: hash mismatch" in log


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swap(one, other):
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


DAMAGES = {
    "flipped": (lambda step: flip(step / "__0_1.distcp"), ["__0_1.distcp: hash mismatch (expected "]),
    "flipped index": (lambda step: flip(step / ".metadata"), [".metadata: hash mismatch"]),
    "truncated": (lambda step: (step / "__0_3.distcp").write_bytes((step / "__0_3.distcp").read_bytes()[:-100]), ["__0_3.distcp: hash mismatch"]),
    "missing": (lambda step: (step / "__0_2.distcp").unlink(), ["__0_2.distcp: the file is missing"]),
    "swapped": (lambda step: swap(step / "__0_0.distcp", step / "__0_3.distcp"), ["__0_0.distcp: hash mismatch", "__0_3.distcp: hash mismatch"]),
    "unfinished": (lambda step: (step / PENDING).write_text("pending\n"), ["Checkpoint hash manifest is incomplete"]),
    "no manifest": (lambda step: (step / NAME).write_text("{}"), ["'algorithm' is missing"]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_before_anything_is_loaded(copied, damage):
    harm, words = DAMAGES[damage]
    step = copied / "checkpoint/step-4"
    harm(step)
    log = train(copied, "--checkpoint.load-step", 4, status=FAILED)
    assert "CheckpointManifestError" in log and all(text in log for text in words)
    assert "Loading the checkpoint" not in log


@pytest.mark.parametrize("damage", ["flipped", "missing", "swapped", "unfinished"])
def test_every_rank_ends_with_the_same_error(copied, damage):
    harm, words = DAMAGES[damage]
    harm(copied / "checkpoint/step-4")
    logs = run_ranks(copied, 2, *VERIFY, "--checkpoint.load-step", 4, "--checkpoint.exclude-from-loading", "dataloader", status=FAILED,
                     env={"LOG_RANK": "0,1"})
    for log in logs:
        assert "CheckpointManifestError" in log and all(text in log for text in words)
        assert damage == "unfinished" or "found by rank " in log


def test_two_ranks_write_and_verify_one(tmp_path):
    flags = (*VERIFY, "--checkpoint.no-last-save-model-only")
    logs = run_ranks(tmp_path, 2, *flags, "--training.steps", 2)
    step = tmp_path / "checkpoint/step-2"
    assert check_manifest(step) == [".metadata", *(f"__{rank}_{i}.distcp" for rank in (0, 1) for i in range(4))]
    assert "(9 hashes)." in logs[0]
    logs = run_ranks(tmp_path, 2, *flags, "--training.steps", 3)
    assert f"Checkpoint hash manifest verified for {step}" in logs[0]
    flip(step / "__1_2.distcp")
    milepost("manifest", "verify", step, status=WANTING)


def test_what_a_manifest_does_not_list_passes(copied):
    (copied / "checkpoint/step-4/README.md").write_text("later")
    log = train(copied, "--training.steps", 4)
    assert "The manifest does not list README.md" in log and "Checkpoint hash manifest verified" in log


def test_without_a_manifest_a_load_passes_unless_one_is_required(copied):
    (copied / "checkpoint/step-4" / NAME).unlink()
    log = train(copied, "--training.steps", 4)
    assert "Loading the checkpoint" in log and "verified" not in log
    log = train(copied, "--training.steps", 4, "--checkpoint.extensions.require-manifest", status=FAILED)
    assert "CheckpointManifestError" in log and "milepost manifest write" in log
    log = train(copied, "--checkpoint.extensions.require-manifest", "--checkpoint.fallback-to-older", "--training.steps", 3)
    assert f"Loading the checkpoint from {copied}/checkpoint/step-2." in log


def test_another_initial_path_is_verified_as_well(tmp_path):
    shutil.copytree(TITAN / "one_rank/step-5", tmp_path / "given")
    milepost("manifest", "write", tmp_path / "given")
    flags = ("--checkpoint.initial-load-path", tmp_path / "given", "--training.steps", 1)
    assert f"verified for {tmp_path}/given" in train(tmp_path / "good", *flags)
    flip(tmp_path / "given/__0_0.distcp")
    log = train(tmp_path / "bad", *flags, "--checkpoint.fallback-to-older", status=FAILED)
    assert "__0_0.distcp: hash mismatch" in log


def test_falls_back_to_an_older_step_when_asked_to(trained, copied):
    flip(copied / "checkpoint/step-4/__0_0.distcp")
    log = train(copied, status=FAILED)
    assert "CheckpointManifestError" in log
    flags = ("--checkpoint.fallback-to-older", "--checkpoint.interval", 1, "--training.steps", 4, "--checkpoint.no-last-save-model-only",
             "--checkpoint.keep-latest-k", 2)
    assert "CheckpointManifestError" in train(copied, *flags, "--checkpoint.load-step", 4, status=FAILED)  # that one or none
    log = train(copied, *flags)
    assert "__0_0.distcp: hash mismatch" in log and "step-4 is not resumed from: its files are not what its hash manifest says" in log
    assert f"Loading the checkpoint from {copied}/checkpoint/step-2." in log
    assert records(copied)[4]["loss"] == records(trained[0])[4]["loss"]
    check_manifest(copied / "checkpoint/step-4")  # saved again
    assert check_manifest(copied / "checkpoint/step-2")  # after step 3 the damaged one took no place of two


def test_falls_back_when_the_disk_does_not_give_a_file_back(copied, tmp_path):
    file = copied / "checkpoint/step-4/__0_2.distcp"
    inject = ("strace", "-f", "-qq", "-o", tmp_path / "strace.log", "-P", file, "-e", "trace=pread64", "-e", "inject=pread64:error=EIO")
    flags = (*VERIFY, "--checkpoint.fallback-to-older", "--training.steps", 4)
    log, = run_ranks(copied, 1, *flags, wrap={0: inject})
    assert "__0_2.distcp: cannot be read (Input/output error)" in log
    assert f"Loading the checkpoint from {copied}/checkpoint/step-2." in log


def test_does_not_begin_anew_when_every_step_is_damaged(copied):
    for step in (2, 4):
        flip(copied / f"checkpoint/step-{step}/__0_0.distcp")
    log = train(copied, "--checkpoint.fallback-to-older", status=FAILED)
    assert "no checkpoint here can be resumed from:\n  step-4: its files are not" in log and "\n  step-2: its files are not" in log


@pytest.mark.parametrize("flag", ["--checkpoint.extensions.require-manifest", "--checkpoint.fallback-to-older"])
def test_what_needs_verification_says_so(tmp_path, flag):
    log = run(*TITAN_RUN, "--dump-folder", tmp_path, "--checkpoint.enable", flag, status=USAGE)[1]
    assert "requires" in log and "checkpoint.extensions.verify_hash_manifest" in log
