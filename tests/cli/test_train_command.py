"""milepost-train before training: what it prints, what it writes, how it ends."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MILEPOST_TRAIN", str(ROOT / "build/dev/train/milepost-train"))
DEBUGMODEL = ["--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel"]
DONE, FAILED, USAGE = 0, 1, 2


@pytest.fixture
def train(tmp_path):
    """Runs milepost-train in tmp_path, without the launcher's variables but those given, and asserts its exit status."""
    def run(*arguments, status=DONE, env=None):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "NGPU", "COMM_MODE")}
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=tmp_path, env={**environment, **(env or {})},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        done.stdout, done.stderr = (text.decode("utf-8", "backslashreplace") for text in (done.stdout, done.stderr))
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Sanitizer" not in done.stderr, done.stderr
        return done
    return run


def unframed(box):
    """The text of a box in one line."""
    return " ".join(line.strip("│╭╮╰╯─ ") for line in box.splitlines())


def last_line(done):
    return done.stderr.rstrip("\n").split("\n")[-1]


@pytest.mark.parametrize("arguments", [["--help"], [*DEBUGMODEL, "--help"], [*DEBUGMODEL, "-h"], ["--list-configs"],
                                       [*DEBUGMODEL, "activation-checkpoint:full", "--help"]])
def test_help_goes_to_standard_output(train, arguments):
    done = train(*arguments)
    assert done.stdout and done.stderr == ""


@pytest.mark.parametrize("arguments, title, text", [
    (["--checkpoint.enable", "false"], "Unrecognized options", "Unrecognized options: false"),
    (["--checkpoint.enable=True"], "Unrecognized options", "Unrecognized options: True"),
    (["--checkpoint.keep-latest-k", "1"], "Value error", "Error parsing checkpoint: We need to maintain at least 2"),
    (["--training.steps", "x"], "Value error", "Error parsing --training.steps: invalid literal for int() with base 10: 'x'"),
    (["--checkpoint.export-dtype", "f8"], "Invalid choice", "invalid choice 'f8' for argument '--checkpoint.export-dtype'."),
    (["--training.stepz", "3"], "Unrecognized options", "--training.steps INT"),
    (["--checkpoint.initial-load-path", "rel"], "Value error", "initial_load_path must be an absolute path"),
    (["--checkpoint.initial-load-in-hf-quantized"], "Value error", "requires initial_load_in_hf"),
    (["--checkpoint.last-save-in-hf"], "Value error", "last_save_in_hf requires last_save_model_only=True."),
    (["activation-checkpoint:full", "--training.steps", "5"], "Unrecognized options", "misplaced"),
])
def test_a_wrong_line_ends_with_2_and_a_box(train, arguments, title, text):
    done = train(*DEBUGMODEL, *arguments, status=USAGE)
    assert done.stdout == "" and done.stderr.startswith(f"╭─ {title} ─")
    assert text in unframed(done.stderr)
    assert all(len(line) <= 80 for line in done.stderr.splitlines())


@pytest.mark.parametrize("arguments, text", [
    ([], "ValueError: --module is required. Example: --module llama3 --config llama3_debugmodel"),
    (["--module", "llama3"], "ValueError: --config is required. Example: --module llama3 --config llama3_debugmodel"),
    (["--module"], "ValueError: --module requires a value"),
    (["--module", "deepseek_v3", "--config", "nope"],
     "ValueError: Config function 'nope' not found in torchtitan.models.deepseek_v3.config_registry. Available config functions: ["),
    (["--module", "nope", "--config", "nope"],
     "ImportError: Cannot import module 'nope' or 'nope.config_registry'. For shorthands, supported modules are: ["),
    (["--module", "deepseek_v4", "--config", "deepseek_v4_flash"], "ImportError: Cannot import torchtitan.models.deepseek_v4"),
    ([*DEBUGMODEL, "--config-file", "missing.json"], "FileNotFoundError: missing.json: cannot open the configuration file"),
    ([*DEBUGMODEL, "--config-file", "."], "OSError: .: cannot read the configuration file"),
    ([*DEBUGMODEL, "--override.imports", "a.b.c"], "ImportError: override target 'a.b.c' is not known"),
    ([*DEBUGMODEL, "--training.seq-len", "16385"], "ValueError: Training sequence length 16385 exceeds attention RoPE maximum"),
    ([*DEBUGMODEL, "--comm.mode", "fake_backend"], "ValueError: comm.mode fake_backend needs NGPU"),
])
def test_what_cannot_start_ends_with_1_and_one_line(train, arguments, text):
    assert last_line(train(*arguments, status=FAILED)).startswith(text)


def test_an_entry_that_needs_more_is_refused_with_what_it_needs(train):
    done = train("--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel_mxfp8", status=FAILED)
    assert "cannot be built by this version of Milepost. It needs:\n  - mxfp8: " in done.stderr


def test_the_configuration_it_saves_is_the_one_it_reads(train, tmp_path):
    flags = ["--training.steps", "7", "--checkpoint.enable", "--optimizer.param-groups.0.optimizer-kwargs.lr", "1e-4",
             "--debug.save-config-file", "deep/run.json", "activation-checkpoint:none"]
    done = train(*DEBUGMODEL, "--dry-run", "--dump-folder", "first", *flags)
    assert "INFO - Saved job configs to first/deep/run.json" in done.stderr
    first = tmp_path / "first/deep/run.json"
    train("--config-file", first, "--dry-run", "--dump-folder", "second")
    second = tmp_path / "second/deep/run.json"
    assert second.read_text() == first.read_text().replace('"dump_folder": "first"', '"dump_folder": "second"')
    saved = json.loads(first.read_text())
    assert (saved["module"], saved["config"]) == ("deepseek_v3", "deepseek_v3_debugmodel")
    assert saved["training"]["steps"] == 7 and saved["activation_checkpoint"] == {"policy": "none"}
    assert sorted(p.name for p in first.parent.iterdir()) == ["run.json"]


def test_only_rank_0_saves(train, tmp_path):
    train(*DEBUGMODEL, "--dry-run", "--debug.save-config-file", "run.json", env={"RANK": "1"})
    assert not (tmp_path / "outputs").exists()


def test_a_configuration_that_cannot_be_saved_is_named(train, tmp_path):
    (tmp_path / "outputs").write_text("a file")
    done = train(*DEBUGMODEL, "--dry-run", "--debug.save-config-file", "run.json", status=FAILED)
    assert "outputs" in last_line(done)


def test_prints_the_configuration_as_json(train):
    done = train(*DEBUGMODEL, "--dry-run", "--debug.print-config", "--training.steps", "7")
    text = done.stderr.split("INFO - Running with configs: ")[1]
    printed, _ = json.JSONDecoder().raw_decode(text)
    assert printed["training"]["steps"] == 7


def test_a_toml_file_of_old_works(train, tmp_path):
    (tmp_path / "run.toml").write_text('[checkpoint]\nenable_checkpoint = true\nasync_mode = "async"\n')
    done = train(*DEBUGMODEL, "--config-file", "run.toml", "--dry-run", "--debug.print-config")
    assert '"async_mode": "async"' in done.stderr


def test_warns_of_missing_assets_and_goes_on(train, tmp_path):
    assert "WARNING - HF assets path nowhere does not exist!" in train(*DEBUGMODEL, "--dry-run", "--hf-assets-path", "nowhere").stderr
    (tmp_path / "nowhere").mkdir()
    assert "does not exist" not in train(*DEBUGMODEL, "--dry-run", "--hf-assets-path", "nowhere").stderr


def test_does_not_warn_of_bundled_assets_that_are_found(train):
    assert "HF assets path" not in train(*DEBUGMODEL, "--dry-run", env={"MILEPOST_ROOT": str(ROOT)}).stderr


def test_a_tokenizer_of_the_old_kind_is_refused(train, tmp_path):
    (tmp_path / "tokenizer.model").touch()
    done = train(*DEBUGMODEL, "--hf-assets-path", "tokenizer.model", status=FAILED)
    assert last_line(done).startswith("Exception: ") and "download_hf_assets.py" in done.stderr


def test_local_tensor_mode_ends_before_training(train):
    done = train(*DEBUGMODEL, "--comm.mode=local_tensor", "--training.steps", "1")
    assert last_line(done).endswith("Local tensor mode enabled - skipping training execution")


@pytest.mark.parametrize("variables, text", [
    ({}, "needs NGPU"), ({"NGPU": "x"}, "NGPU must be an integer"), ({"NGPU": "0"}, "at least 1"),
    ({"NGPU": "8", "RANK": "8"}, "RANK must be in [0, 8), got 8"), ({"NGPU": "8", "RANK": "-1"}, "got -1"),
    ({"NGPU": "8", "RANK": "y"}, "RANK must be an integer"),
])
def test_a_fake_backend_needs_its_numbers(train, variables, text):
    done = train(*DEBUGMODEL, "--comm.mode", "fake_backend", "--dry-run", env=variables, status=FAILED)
    assert last_line(done).startswith("ValueError: ") and text in last_line(done)


def test_a_fake_backend_stands_for_all_ranks(train):
    done = train(*DEBUGMODEL, "--comm.mode", "fake_backend", "--dry-run", env={"NGPU": "8", "RANK": "3"})
    assert "One process stands for 8 ranks (rank 3)" in done.stderr


@pytest.mark.parametrize("flags, text", [
    (["--parallelism.data-parallel-shard-degree", "3"], "Invalid parallel dims"),
    (["--training.global-batch-size", "12"], "global batch size must be multiple of local batch size"),
])
def test_a_fake_backend_checks_the_degrees_of_parallelism(train, flags, text):
    done = train(*DEBUGMODEL, "--comm.mode", "fake_backend", *flags, env={"NGPU": "8"}, status=FAILED)
    assert last_line(done).startswith("ValueError: ") and text in last_line(done)


def test_a_dry_run_tells_sizes_and_trains_nothing(train, tmp_path):
    done = train(*DEBUGMODEL, "--dry-run")
    assert "Building deepseek_v3 debugmodel" in done.stderr and "size: 33,014,016 total parameters" in done.stderr
    assert "Nothing was trained" in last_line(done) and not (tmp_path / "outputs").exists()


def test_every_log_line_has_the_form_of_the_references(train):
    for line in train(*DEBUGMODEL, "--dry-run").stderr.splitlines():
        assert re.match(r"\[milepost\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - root - (INFO|WARNING) - ", line), line


def test_a_full_disk_is_an_error(train):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "--list-configs"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == FAILED and "standard output" in done.stderr


def test_the_reference_is_up_to_date(train):
    """docs/configuration.md is what `milepost-train --configuration-reference` prints."""
    assert (ROOT / "docs/configuration.md").read_text() == train("--configuration-reference").stdout
