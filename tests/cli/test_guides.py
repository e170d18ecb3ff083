"""The commands of the guides to TorchTitan's checkpoints, row by row, in a CPU's sizes: flags as the guides have them, and what must be there afterwards.

The launcher is scripts/run_train.sh, in a folder where set-up and build do nothing. Most rows run the program with a tiny model.
"""
import re
import shutil
import subprocess
import sys

import pytest
from cli.ranks import configuration, run_ranks
from cli.training import DONE, FAILED, PROGRAM, ROOT, TITAN, TITAN_RUN, USAGE, environment, records, run, tiny_llama_run, train
from tool import make_program, milepost

CPU = ("--training.local-batch-size", 1, "--training.seq-len", 64)
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
    start_from(trained, tmp_path)
    assert sorted(records(tmp_path)) == [1]


def test_checkpoints_5_the_full_state(trained, tmp_path):
    start_from(trained, tmp_path, "--checkpoint.no-initial-load-model-only", steps=4)
    whole = records(trained)
    assert {step: record["loss"] for step, record in records(tmp_path).items()} == {step: whole[step]["loss"] for step in (3, 4)}


def test_checkpoints_6_parts_are_left_out(trained, tmp_path):
    parts = ("--checkpoint.exclude-from-loading", "optimizer,lr_scheduler,dataloader")
    start_from(trained, tmp_path / "weights", *parts)
    start_from(trained, tmp_path / "all", "--checkpoint.no-initial-load-model-only", *parts, steps=3)
    got, whole = records(tmp_path / "all"), records(trained)
    assert sorted(got) == [3] and got[3]["loss"] != whole[3]["loss"] and got[3]["lr/AdamW"] == whole[1]["lr/AdamW"]


def test_checkpoints_7_hugging_faces_weights(tmp_path):
    log = train(tmp_path / "named", "--checkpoint.initial-load-in-hf", "--checkpoint.initial-load-path", TITAN / "hf_last_one_rank", "--training.steps", 1)
    assert str(TITAN / "hf_last_one_rank") in log
    shutil.copytree(TITAN / "hf_last_one_rank", tmp_path / "assets")
    shutil.copytree(TITAN / "tokenizer", tmp_path / "assets", dirs_exist_ok=True)
    train(tmp_path / "assumed", "--checkpoint.initial-load-in-hf", "--hf-assets-path", tmp_path / "assets", "--training.steps", 1)
    assert records(tmp_path / "named")[1]["loss"] == records(tmp_path / "assumed")[1]["loss"]


def test_checkpoints_8_quantised_weights(tmp_path):
    milepost("export", TITAN / "one_rank/step-10", tmp_path / "fp8", "--config", TITAN / "config.json", "--fp8")
    flags = ("--checkpoint.initial-load-in-hf", "--training.steps", 1)
    train(tmp_path / "exact", *flags, "--checkpoint.initial-load-path", TITAN / "hf_last_one_rank")
    train(tmp_path / "rounded", *flags, "--checkpoint.initial-load-path", tmp_path / "fp8", "--checkpoint.initial-load-in-hf-quantized")
    assert records(tmp_path / "rounded")[1]["loss"] == pytest.approx(records(tmp_path / "exact")[1]["loss"], abs=0.05)


def test_checkpoints_9_a_last_save_in_hugging_faces_form(tmp_path):
    train(tmp_path, "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--checkpoint.export-dtype", "bfloat16", "--training.steps", 2)
    assert list((tmp_path / "checkpoint/step-2").glob("*.safetensors"))
    tensors = milepost("inspect", tmp_path / "checkpoint/step-2", "--json").json["tensors"]
    assert {tensor["dtype"] for tensor in tensors} == {"bfloat16"}


def test_checkpoints_10_a_seed_for_jobs_of_other_sizes(tmp_path):
    source = configuration(tmp_path, "deepseek_v3")
    degrees = [word for name in DEGREES for word in (f"--parallelism.{name}-degree", 1)]
    log = run(*source, "--dump-folder", tmp_path, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", *degrees)[1]
    seed = tmp_path / "checkpoint/step-0"
    assert "Created seed checkpoint" in log and [path.name for path in seed.parent.iterdir()] == ["step-0"]
    flags = ("--checkpoint.enable", "--checkpoint.initial-load-path", seed, "--debug.seed", 77, "--training.steps", 2)
    hsdp = ("--parallelism.data-parallel-replicate-degree", 2, "--parallelism.data-parallel-shard-degree", 2)
    for name, world, more in (("alone", 1, ()), ("fsdp", 2, ()), ("hsdp", 4, hsdp)):
        logs = run_ranks(tmp_path / name, world, *flags, *more, source=source)
        assert f"Loading the checkpoint from {seed}." in logs[0]
        for step, record in records(tmp_path / name).items():
            assert record["loss"] == pytest.approx(records(tmp_path / "alone")[step]["loss"], rel=1e-5)
    refused = run(*source, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", "--parallelism.data-parallel-shard-degree", 2, status=FAILED)[1]
    assert "ValueError" in refused


@pytest.mark.parametrize("flags, status, words", [
    (("--checkpoint.initial-load-path", "outputs/step-1"), USAGE, "outputs/step-1"),  # 11
    (("--checkpoint.enable", "false"), USAGE, "false"),  # 12
    (("--checkpoint.keep-latest-k", 1), USAGE, "at least 2 checkpoint replicas"),  # 14
    (("--checkpoint.initial-load-in-hf-quantized",), USAGE, "requires initial_load_in_hf and initial_load_path"),
    (("--checkpoint.last-save-in-hf", "--checkpoint.no-last-save-model-only"), USAGE, "last_save_in_hf requires last_save_model_only"),
    (("--ema-weights.enable", "--ema-weights.decay", "-0.5"), USAGE, "decay"),  # 16
])
def test_checkpoints_11_to_16_what_cannot_stand_is_refused(tmp_path, flags, status, words):
    log = re.sub(r"[\s│]+", " ", train(tmp_path, *flags, status=status))  # out of its box
    assert words in log and not list(tmp_path.iterdir())


def test_checkpoints_12_off(trained, tmp_path):
    shutil.copytree(trained / "checkpoint", tmp_path / "checkpoint")
    log = train(tmp_path, "--checkpoint.interval", 1, "--training.steps", 1, "--checkpoint.no-enable")
    assert "Loading" not in log and files_of(tmp_path / "checkpoint") == ["step-2", "step-4"] and sorted(records(tmp_path)) == [1]


def test_checkpoints_13_the_own_folder_wins(trained, tmp_path):
    shutil.copytree(trained / "checkpoint", tmp_path / "checkpoint")
    log = train(tmp_path, "--checkpoint.initial-load-path", TITAN / "one_rank/step-5", "--training.steps", 5)
    assert f"Loading the checkpoint from {tmp_path}/checkpoint/step-4." in log and f"{TITAN}/one_rank/step-5 is ignored" in log


def test_checkpoints_15_manifests(tmp_path):
    flags = (*ENABLED, "--checkpoint.extensions.verify-hash-manifest")
    train(tmp_path, *flags, "--training.steps", 4)
    step, manifest = tmp_path / "checkpoint/step-4", "_checkpoint_hash_manifest.json"
    assert manifest in files_of(step) and "_checkpoint_hash_manifest.pending" not in files_of(step)
    assert "Checkpoint hash manifest verified for" in train(tmp_path, *flags, "--training.steps", 5)
    newest = tmp_path / "checkpoint/step-5"
    data = next(newest.glob("*.distcp"))
    with open(data, "r+b") as file:
        file.seek(data.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert "CheckpointManifestError" in train(tmp_path, *flags, "--training.steps", 6, status=FAILED)
    (newest / manifest).unlink()
    train(tmp_path, *flags, "--training.steps", 6)


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


@pytest.mark.parametrize("mode", ["disabled", "async", "async_with_pinned_mem"])
def test_resuming_1_2_and_6_the_curve_goes_on(tmp_path, mode):
    """Each rank's files and one of metadata; a TOML file that asks for a mode; two ranks that go on to the bit."""
    json_file, *rest = configuration(tmp_path, "llama3")[1:]
    toml = tmp_path / "run.toml"
    toml.write_text(f'[checkpoint]\nenable = true\ninterval = 2\nasync_mode = "{mode}"\nlast_save_model_only = false\n')
    source = ("--config-file", json_file, *rest)
    shown = run("--module", "llama3", "--config", "llama3_debugmodel", "--config-file", toml, "--dump-folder", tmp_path / "shown", "--dry-run",
                "--debug.print-config")[1]
    assert f'"async_mode": "{mode}"' in shown and '"interval": 2' in shown
    flags = ("--checkpoint.enable", "--checkpoint.interval", 2, "--checkpoint.async-mode", mode, "--training.steps", 4)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run_ranks(whole, 2, *flags, source=source)
    assert files_of(whole / "checkpoint/step-2") == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    shutil.copytree(whole / "checkpoint/step-2", parts / "checkpoint/step-2")
    run_ranks(parts, 2, *flags, source=source)
    a, b = records(whole), records(parts)
    assert sorted(b) == [3, 4] and all(b[step][key] == a[step][key] for step in b for key in ("loss", "grad_norm", "lr/AdamW", "ntokens_seen"))
    milepost("diff", whole / "checkpoint/step-4", parts / "checkpoint/step-4")


def test_resuming_3_one_file_for_torch(trained, tmp_path):
    torch = pytest.importorskip("torch")
    milepost("convert", trained / "checkpoint/step-4", tmp_path / "file.pth", "--to", "torch")
    state = torch.load(tmp_path / "file.pth", weights_only=False)
    assert {"optimizer", "lr_scheduler", "train_state", "dataloader"} < state.keys()


def test_resuming_4_and_5_there_and_back(tmp_path):
    source = tiny_llama_run(tmp_path)
    train(tmp_path, "--checkpoint.last-save-model-only", "--training.steps", 1, source=source)
    train(tmp_path / "like", "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--training.steps", 1, source=source)
    config = ("--config", tmp_path / "like/checkpoint/step-1")
    milepost("export", tmp_path / "checkpoint/step-1", tmp_path / "hf", *config)
    milepost("import", tmp_path / "hf", tmp_path / "back", *config, "--dtype", "float32")
    milepost("diff", tmp_path / "checkpoint/step-1", tmp_path / "back")
