"""The launcher: what it makes of variables and flags, seen by programs in the places of the trainer and of torchrun."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tool import make_program

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
VARIABLES = ("NGPU", "LOG_RANK", "MODULE", "CONFIG", "HF_ASSETS_PATH", "COMM_MODE", "TRAIN_FILE", "MILEPOST_ROOT")
DEFAULTS = ["--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel"]
ONE_STEP = ["--comm.mode=fake_backend", "--training.steps", "1"]


@pytest.fixture
def launch(tmp_path):
    """Runs the launcher of a tree where set-up and build do nothing; returns (process, what ran and its arguments)."""
    root, record = tmp_path / "a project", tmp_path / "record.json"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "run_train.sh", root / "scripts")
    shutil.copy(SCRIPTS.parent / "run_train.sh", root)
    for name in ("setup.sh", "build.sh"):
        make_program(root / "scripts" / name, "#!/bin/sh\n")
    recorder = f"#!{sys.executable}\nimport json, sys\nopen({str(record)!r}, 'w').write(json.dumps(sys.argv))\n"
    for name in ("build/release/train/milepost-train", ".venv/bin/python"):
        make_program(root / name, recorder)

    def run(*arguments, script="run_train.sh", status=0, **variables):
        record.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        done = subprocess.run([str(root / script), *map(str, arguments)], cwd=tmp_path, env={**environment, **variables},
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        ran = json.loads(record.read_text()) if record.exists() else [""]
        return done, Path(ran[0]).name, ran[1:]
    return run


def trainer_flags(called):
    """What torchrun was told to start the trainer with."""
    return called[called.index("--no-python") + 2:]


@pytest.mark.parametrize("script", ["run_train.sh", "scripts/run_train.sh"])
def test_starts_torchrun_with_the_default_job(launch, script):
    _, ran, called = launch("--dump-folder", "a b", script=script)
    assert ran == "python" and called[:3] == ["-m", "torch.distributed.run", "--nproc_per_node=1"]
    assert called[called.index("--local-ranks-filter") + 1] == "0" and called[called.index("--tee") + 1] == "3"
    assert trainer_flags(called) == [*DEFAULTS, "--dump-folder", "a b"]


def test_takes_the_variables(launch):
    _, _, called = launch(NGPU="4", LOG_RANK="0,3", MODULE="torchtitan.models.llama3", CONFIG="llama3_8b", HF_ASSETS_PATH="my assets")
    assert "--nproc_per_node=4" in called and called[called.index("--local-ranks-filter") + 1] == "0,3"
    assert trainer_flags(called) == ["--module", "torchtitan.models.llama3", "--config", "llama3_8b", "--hf-assets-path", "my assets"]


@pytest.mark.parametrize("flag", ["--hf-assets-path=x", "--hf_assets_path=x"])
def test_the_flag_for_assets_outranks_the_variable(launch, flag):
    assert trainer_flags(launch(flag, HF_ASSETS_PATH="y")[2]) == [*DEFAULTS, flag]


@pytest.mark.parametrize("flag", ["--config-file=run.json", "--config_file=run.json"])
def test_a_file_may_name_module_and_entry(launch, flag):
    assert trainer_flags(launch(flag)[2]) == [flag]
    assert trainer_flags(launch(flag, MODULE="llama3", CONFIG="c")[2]) == ["--module", "llama3", "--config", "c", flag]


def test_a_comm_mode_takes_one_process_and_one_step(launch):
    done, ran, called = launch("--training.steps", "0", COMM_MODE="fake_backend", NGPU="8")
    assert ran == "milepost-train" and called == [*DEFAULTS, *ONE_STEP, "--training.steps", "0"]
    assert done.stdout == "Running with comm_mode=fake_backend\n"


def test_a_comm_mode_leaves_a_subcommand_last(launch):
    policy = ["activation-checkpoint:full", "--activation-checkpoint.debug"]
    assert launch("--debug.seed", "1", *policy, COMM_MODE="fake_backend")[2] == [*DEFAULTS, *ONE_STEP, "--debug.seed", "1", *policy]


@pytest.mark.parametrize("flag", ["-h", "--help", "--list-configs"])
def test_what_only_prints_needs_no_torchrun(launch, flag):
    assert launch(flag)[1:] == ("milepost-train", [*DEFAULTS, flag])


@pytest.mark.parametrize("number", ["x", "0", "-1", "1.5"])
def test_a_wrong_number_of_processes_is_refused(launch, number):
    done, ran, _ = launch(NGPU=number, status=2)
    assert ran == "" and f"NGPU={number} is not the number of processes" in done.stderr


def test_says_that_a_train_file_is_not_used(launch):
    assert "TRAIN_FILE=x.train is not used" in launch(TRAIN_FILE="x.train")[0].stderr
