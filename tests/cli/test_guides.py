"""The commands of the guides to TorchTitan's checkpoints, row by row, in a CPU's sizes: flags as the guides have them, and what must be there afterwards.

The launcher is scripts/run_train.sh, in a folder where set-up and build do nothing. Most rows run the program with a tiny model.
"""
import json
import re
import shutil
import subprocess
import sys

import pytest
from cli.ranks import configuration, run_ranks, start
from cli.training import DONE, FAILED, PROGRAM, ROOT, TITAN, TITAN_RUN, USAGE, environment, records, run, train, weights
from tool import contents, make_program, milepost, program

CPU = ("--training.local-batch-size", 1, "--training.seq-len", 64)
STILL = ("--optimizer.param-groups.0.optimizer-kwargs.lr", 0)
ENABLED = ("--checkpoint.enable", "--checkpoint.folder", "checkpoint", "--checkpoint.interval", 2)
DEGREES = ("data-parallel-replicate", "data-parallel-shard", "tensor-parallel", "pipeline-parallel", "context-parallel", "expert-parallel")


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """`bash scripts/run_train.sh FLAGS...`; its output."""
    project = tmp_path_factory.mktemp("project")
    for name in ("setup.sh", "build.sh"):
        make_program(project / "scripts" / name, "#!/bin/sh\n")
    shutil.copy(ROOT / "scripts/run_train.sh", project / "scripts")
    make_program(project / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    make_program(project / "build/release/train/milepost-train", f'#!/bin/sh\nexec {PROGRAM} "$@"\n')

    def run(*flags, **variables):
        done = subprocess.run(["bash", "scripts/run_train.sh", *map(str, flags), *map(str, CPU)], cwd=project, capture_output=True, text=True,
                              timeout=200, env=environment(OMP_NUM_THREADS="1", **variables))
        output = done.stdout + done.stderr
        assert done.returncode == DONE, output[-5000:]
        return output
    return run


def files_of(step):
    return sorted(path.name for path in step.iterdir())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run with full checkpoints of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("trained")
    train(folder, *ENABLED, "--training.steps", 4)
    return folder


def start_from(trained, folder, *flags, steps=1):
    log = train(folder, "--checkpoint.initial-load-path", trained / "checkpoint/step-2", *flags, "--training.steps", steps)
    assert f"Loading the checkpoint from {trained}/checkpoint/step-2." in log
    return log


# --- checkpoints: saving, resuming, starting from elsewhere


def test_checkpoints_1_to_3_save_resume_and_a_named_step(launch, tmp_path):
    """The default job, deepseek_v3_debugmodel, through the launcher."""
    folder = tmp_path / "outputs/dsv3_checkpoint"
    flags = ("--hf-assets-path", "tests/assets/deepseek_v3", "--dump-folder", folder)
    launch(*flags, *ENABLED, "--training.steps", 4, NGPU="1")
    for step in (2, 4):
        assert files_of(folder / f"checkpoint/step-{step}")[0] == ".metadata" and list((folder / f"checkpoint/step-{step}").glob("*.distcp"))
    for more, loaded in (((), 4), (("--checkpoint.load-step", 2), 2)):
        log = launch(*flags, "--checkpoint.enable", "--checkpoint.folder", "checkpoint", "--training.steps", 5, *more, NGPU="1")
        assert f"Loading the checkpoint from {folder}/checkpoint/step-{loaded}." in log and re.search(r"step:\s+5 .*loss:", log)


def test_checkpoints_4_only_the_weights(trained, tmp_path):
    """A step at a rate of 0 keeps them; all else begins anew."""
    start_from(trained, tmp_path, *STILL)
    step, values = tmp_path / "checkpoint/step-1", contents(tmp_path / "checkpoint/step-1")[1]
    assert sorted(records(tmp_path)) == [1] and weights(step) == weights(trained / "checkpoint/step-2")
    assert values["lr_scheduler.last_epoch"] == values["train_state.step"] == 1


def test_checkpoints_5_the_full_state(trained, tmp_path):
    start_from(trained, tmp_path, "--checkpoint.no-initial-load-model-only", steps=4)
    whole = records(trained)
    assert {step: record["loss"] for step, record in records(tmp_path).items()} == {step: whole[step]["loss"] for step in (3, 4)}


def test_checkpoints_6_parts_are_left_out(trained, tmp_path):
    """Of the model alone nothing can be left out, and no name is wrong."""
    parts = "optimizer,lr_scheduler,dataloader"
    start_from(trained, tmp_path / "weights", "--checkpoint.exclude-from-loading", parts + ",nothing")
    start_from(trained, tmp_path / "all", "--checkpoint.no-initial-load-model-only", "--checkpoint.exclude-from-loading", parts + ",ema_optimizer",
               steps=3)
    got, whole = records(tmp_path / "all"), records(trained)
    assert sorted(got) == [3] and got[3]["loss"] != whole[3]["loss"] and got[3]["lr/AdamW"] == whole[1]["lr/AdamW"]


def first_loss(folder, *flags):
    log = train(folder, *flags, "--training.steps", 1)
    return records(folder)[1]["loss"], log


def test_checkpoints_7_hugging_faces_weights(tmp_path):
    """In a folder that is named, with one file or with two as TorchTitan left it, and among the assets."""
    in_hf, path = ("--checkpoint.initial-load-in-hf",), "--checkpoint.initial-load-path"
    named, log = first_loss(tmp_path / "named", *in_hf, path, TITAN / "hf_last_one_rank")
    assert str(TITAN / "hf_last_one_rank") in log
    shutil.copytree(TITAN / "hf_last_one_rank", tmp_path / "assets")
    shutil.copytree(TITAN / "tokenizer", tmp_path / "assets", dirs_exist_ok=True)
    assumed, _ = first_loss(tmp_path / "assumed", *in_hf, "--hf-assets-path", tmp_path / "assets")
    assert named == assumed != first_loss(tmp_path / "none")[0]
    two_files, _ = first_loss(tmp_path / "two", *in_hf, path, TITAN / "hf_last_fsdp2_indexed")
    assert two_files == first_loss(tmp_path / "dcp", path, TITAN / "fsdp2/step-10")[0] != named
    milepost("diff", TITAN / "hf_last_fsdp2_indexed", TITAN / "hf_last_fsdp2_indexed/sharded")  # each rank's files, which lie beside them


def test_checkpoints_8_quantised_weights(tmp_path):
    milepost("export", TITAN / "one_rank/step-10", tmp_path / "fp8", "--config", TITAN / "config.json", "--fp8")
    in_hf = ("--checkpoint.initial-load-in-hf", "--checkpoint.initial-load-path")
    exact, _ = first_loss(tmp_path / "exact", *in_hf, TITAN / "hf_last_one_rank")
    rounded, _ = first_loss(tmp_path / "rounded", *in_hf, tmp_path / "fp8", "--checkpoint.initial-load-in-hf-quantized")
    assert rounded == pytest.approx(exact, abs=0.05) and rounded != exact
    assert "add --checkpoint.initial-load-in-hf-quantized" in train(tmp_path / "refused", *in_hf, tmp_path / "fp8", status=FAILED)


def test_checkpoints_9_a_last_save_in_hugging_faces_form(tmp_path):
    """tests/interop has transformers load such a folder."""
    log = train(tmp_path, "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--checkpoint.export-dtype", "bfloat16",
                "--training.steps", 2)
    assert "Saving a model only checkpoint in torch.bfloat16 at last step, step 2." in log
    step = tmp_path / "checkpoint/step-2"
    assert files_of(step) == ["config.json", "model.safetensors", "model.safetensors.index.json"]
    tensors = milepost("inspect", step, "--json").json["tensors"]
    assert {tensor["dtype"] for tensor in tensors} == {"bfloat16"}


def test_checkpoints_10_a_seed_for_jobs_of_other_sizes(tmp_path):
    source = configuration(tmp_path, "deepseek_v3")
    degrees = [word for name in DEGREES for word in (f"--parallelism.{name}-degree", 1)]
    log = run(*source, "--dump-folder", tmp_path, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", *degrees,
              "--checkpoint.last-save-model-only")[1]
    seed = tmp_path / "checkpoint/step-0"
    assert "Created seed checkpoint" in log and [path.name for path in seed.parent.iterdir()] == ["step-0"]
    assert "Saving a model only checkpoint in torch.float32 at last step, step 0." in log
    assert not any(name.startswith("optimizer.") for name in contents(seed)[0])
    flags = ("--checkpoint.enable", "--checkpoint.initial-load-path", seed, "--debug.seed", 77, "--training.steps", 2)
    hsdp = ("--parallelism.data-parallel-replicate-degree", 2, "--parallelism.data-parallel-shard-degree", 2)
    for name, world, more in (("alone", 1, ()), ("fsdp", 2, ()), ("hsdp", 4, hsdp)):
        logs = run_ranks(tmp_path / name, world, *flags, *more, source=source)
        assert f"Loading the checkpoint from {seed}." in logs[0]
        for step, record in records(tmp_path / name).items():
            assert record["loss"] == pytest.approx(records(tmp_path / "alone")[step]["loss"], rel=1e-5)
    refused = run(*source, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", "--parallelism.data-parallel-shard-degree", 2, status=FAILED)[1]
    assert "ValueError" in refused


@pytest.mark.parametrize("flags, title, words", [
    (("--checkpoint.initial-load-path", "outputs/step-1"), "Value error", "must be an absolute path or a remote URI (e.g. gs://...): outputs/step-1"),  # 11
    (("--checkpoint.enable", "false"), "Unrecognized options", "false"),  # 12
    (("--checkpoint.keep-latest-k", 1), "Value error", "at least 2 checkpoint replicas"),  # 14
    (("--checkpoint.initial-load-in-hf-quantized",), "Value error", "requires initial_load_in_hf and initial_load_path"),
    (("--checkpoint.last-save-in-hf", "--checkpoint.no-last-save-model-only"), "Value error", "last_save_in_hf requires last_save_model_only"),
    (("--ema-weights.enable", "--ema-weights.decay", "-0.5"), "Value error", "decay"),  # 16
])
def test_checkpoints_11_to_16_what_cannot_stand_is_refused(tmp_path, flags, title, words):
    log = re.sub(r"[\s│]+", " ", train(tmp_path, *flags, status=USAGE))  # out of its box
    assert log.startswith(f"╭─ {title} ─") and words in log and not list(tmp_path.iterdir())


def test_checkpoints_12_off(trained, tmp_path):
    shutil.copytree(trained / "checkpoint", tmp_path / "checkpoint")
    log = train(tmp_path, "--checkpoint.interval", 1, "--training.steps", 1, "--checkpoint.no-enable")
    assert "Loading" not in log and files_of(tmp_path / "checkpoint") == ["step-2", "step-4"] and sorted(records(tmp_path)) == [1]


def test_checkpoints_13_the_own_folder_wins(trained, tmp_path):
    shutil.copytree(trained / "checkpoint", tmp_path / "checkpoint")
    log = train(tmp_path, "--checkpoint.initial-load-path", TITAN / "one_rank/step-5", "--training.steps", 5)
    assert f"Loading the checkpoint from {tmp_path}/checkpoint/step-4." in log and f"{TITAN}/one_rank/step-5 is ignored" in log


MANIFEST, PENDING = "_checkpoint_hash_manifest.json", "_checkpoint_hash_manifest.pending"


def test_checkpoints_15_manifests(tmp_path):
    flags = (*ENABLED, "--checkpoint.extensions.verify-hash-manifest")
    train(tmp_path, *flags, "--training.steps", 4)
    step = tmp_path / "checkpoint/step-4"
    assert MANIFEST in files_of(step) and PENDING not in files_of(step)
    assert "Checkpoint hash manifest verified for" in train(tmp_path, *flags, "--training.steps", 5)
    newest = tmp_path / "checkpoint/step-5"
    data = next(newest.glob("*.distcp"))
    with open(data, "r+b") as file:
        file.seek(data.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert "CheckpointManifestError" in train(tmp_path, *flags, "--training.steps", 6, status=FAILED)
    (newest / MANIFEST).unlink()
    train(tmp_path, *flags, "--training.steps", 6)
    next((tmp_path / "checkpoint/step-6").glob("*.distcp")).unlink()  # what lacks files is passed over before any hashing
    log = train(tmp_path, *flags, "--training.steps", 6)
    assert "step-6 is not resumed from: it is not complete" in log and f"Loading the checkpoint from {newest}." in log


def test_checkpoints_15_the_marker_is_there_while_files_are_written(tmp_path):
    """Seen by the calls that make, remove and rename files of a save."""
    trace = ["strace", "-f", "-qq", "-s", "1000", "-o", tmp_path / "trace", "-e", "trace=open,openat,unlink,unlinkat,rename,renameat,renameat2"]
    flags = ("--checkpoint.enable", "--checkpoint.extensions.verify-hash-manifest", "--training.steps", 1)
    job = start(tmp_path, 1, *TITAN_RUN, "--dump-folder", tmp_path, *flags, wrap={0: trace})
    assert job.wait() == [DONE], job.logs
    calls = (tmp_path / "trace").read_text().splitlines()

    def first(call, *words):
        return next(i for i, line in enumerate(calls) if re.search(rf" {call}\w*\(", line) and all(word in line for word in words))
    order = [first("open", PENDING, "O_CREAT"), first("open", "__0_0.distcp", "O_CREAT"), first("open", MANIFEST, "O_CREAT"),
             first("unlink", PENDING), first("rename", "checkpoint/step-1")]
    assert order == sorted(order)


def test_checkpoints_16_averages(tmp_path):
    flags = (*ENABLED, "--ema-weights.enable", "--ema-weights.decay", "0.9")
    train(tmp_path, *flags, "--training.steps", 2)
    assert any(t["name"].startswith("ema_optimizer.") for t in milepost("inspect", tmp_path / "checkpoint/step-2", "--json").json["tensors"])
    assert "begins anew" not in train(tmp_path, *flags, "--training.steps", 4)
    step = tmp_path / "checkpoint/step-4"
    assert "begins anew" in train(tmp_path / "model", *flags, "--checkpoint.initial-load-path", step, "--training.steps", 1)
    assert "begins anew" in train(tmp_path / "hf", *flags, "--checkpoint.initial-load-in-hf", "--checkpoint.initial-load-path",
                                  TITAN / "hf_last_one_rank", "--training.steps", 1)
    assert "begins anew" not in run_ranks(tmp_path, 2, *flags, "--training.steps", 5, "--checkpoint.exclude-from-loading", "dataloader")[0]


# --- saving, resuming, converting


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


@pytest.mark.parametrize("mode", ["disabled", "async", "async_with_pinned_mem"])
def test_resuming_1_2_and_6_the_curve_goes_on(tmp_path, mode):
    """A TOML file that asks for a mode; each rank's files and one of metadata; two ranks that go on to the bit."""
    json_file, *rest = configuration(tmp_path, "llama3")[1:]
    config = json.loads(json_file.read_text())
    checkpoint = {"enable": True, "interval": 2, "async_mode": mode, "last_save_model_only": False}
    file = tmp_path / "run.toml"
    file.write_text("".join(f"{key} = {toml(value)}\n" for key, value in {**config, "checkpoint": checkpoint}.items()))
    source = ("--config-file", file, *rest)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    log = run_ranks(whole, 2, "--training.steps", 4, source=source)[0]
    assert ("Staging the checkpoint." in log) == (mode != "disabled")
    assert files_of(whole / "checkpoint") == ["step-2", "step-4"]
    assert files_of(whole / "checkpoint/step-2") == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    shutil.copytree(whole / "checkpoint/step-2", parts / "checkpoint/step-2")
    run_ranks(parts, 2, "--training.steps", 4, source=source)
    a, b = records(whole), records(parts)
    assert sorted(b) == [3, 4] and all(b[step][key] == a[step][key] for step in b for key in ("loss", "grad_norm", "lr/AdamW", "ntokens_seen"))
    milepost("diff", whole / "checkpoint/step-4", parts / "checkpoint/step-4")


def test_resuming_3_one_file_for_torch(trained, tmp_path):
    """By torch's own function, of our checkpoint, and by the tool: both hold all of it."""
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    step = trained / "checkpoint/step-4"
    dcp_to_torch_save(step, tmp_path / "torch.pth")
    milepost("convert", step, tmp_path / "tool.pth", "--to", "torch")
    state = torch.load(tmp_path / "tool.pth", weights_only=False)
    assert {"optimizer", "lr_scheduler", "train_state", "dataloader"} < state.keys()
    assert state["train_state"]["step"] == 4
    for file in ("torch.pth", "tool.pth"):
        milepost("diff", step, tmp_path / file)


def convert(script, source, destination, *options):
    command = [sys.executable, ROOT / "scripts" / script, "--ckpt_path", source, "--output_path", destination, "--tokenizer_path",
               ROOT / "tests/assets/tokenizer", "--model_name", "llama3", "--flavor", "debugmodel", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100, env={**environment(), "MILEPOST": program()})
    assert done.returncode == DONE, done.stdout + done.stderr


def test_resuming_4_and_5_there_and_back(tmp_path):
    """The scripts, on what a registry entry has trained."""
    run("--module", "llama3", "--config", "llama3_debugmodel", "--dump-folder", tmp_path, "--checkpoint.enable", "--training.steps", 1, *CPU)
    step = tmp_path / "checkpoint/step-1"
    convert("convert_to_hf.py", step, tmp_path / "hf")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files_of(tmp_path / "hf"))
    convert("convert_from_hf.py", tmp_path / "hf", tmp_path / "back")
    assert weights(step) == weights(tmp_path / "back") != {}
