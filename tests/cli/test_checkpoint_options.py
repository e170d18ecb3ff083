"""Options of checkpoints that other files use in passing: what the trainer's log says of each, and which files it leaves."""
import os
import re
import shutil

import numpy as np
import pytest
from cli.ranks import start
from cli.training import DONE, FAILED, TITAN, TITAN_RUN, USAGE, sums, train
from safetensors.numpy import load_file
from tool import WANTING, contents, milepost, tree

EVERY_STEP = ("--checkpoint.interval", 1)
STILL = ("--optimizer.param-groups.0.optimizer-kwargs.lr", 0)


def steps_in(folder):
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """The folder of steps and the log of a run that saves each of 13 steps, all of them outside of its dump folder, and of the last one the model."""
    folder = tmp_path_factory.mktemp("elsewhere")
    log = train(folder / "out", "--checkpoint.folder", folder / "steps", *EVERY_STEP, "--checkpoint.keep-latest-k", 0, "--training.steps", 13,
                "--checkpoint.last-save-model-only", "--checkpoint.export-dtype", "float16")
    return folder / "steps", log


@pytest.fixture
def copied(elsewhere, tmp_path):
    """Flags of a run that goes on from a copy of these steps, and the copy."""
    shutil.copytree(elsewhere[0], tmp_path / "steps")
    return ("--checkpoint.folder", tmp_path / "steps"), tmp_path / "steps"


def test_an_absolute_folder_stands_for_itself_and_zero_keeps_all(elsewhere):
    folder, log = elsewhere
    assert f"Checkpoints will be loaded from and saved to {folder}" in log and not (folder.parent / "out/checkpoint").exists()
    assert steps_in(folder) == list(range(1, 14)) and "Checkpointer is deleting" not in log


def test_the_last_save_has_the_dtype_that_was_asked_for(elsewhere, tmp_path):
    """float16 where the option says so; float32, the default, as safetensors of the same weights."""
    folder, log = elsewhere
    assert "Saving a model only checkpoint in torch.float16 at last step, step 13." in log
    tensors = milepost("inspect", folder / "step-13", "--json").json["tensors"]
    assert {tensor["dtype"] for tensor in tensors} == {"float16"} and not any(tensor["name"].startswith("optimizer.") for tensor in tensors)
    log = train(tmp_path, "--checkpoint.folder", "named/steps", "--checkpoint.initial-load-path", folder / "step-13", *STILL,
                "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--training.steps", 1)
    assert "Saving a model only checkpoint in torch.float32 at last step, step 1." in log
    step = tmp_path / "named/steps/step-1"
    assert sorted(path.name for path in step.iterdir()) == ["config.json", "model.safetensors", "model.safetensors.index.json"]
    assert {tensor["dtype"] for tensor in contents(step)[0].values()} == {"float32"}
    milepost("export", folder / "step-13", tmp_path / "hf", "--config", step, "--dtype", "float32")
    got, want = sums(step), sums(tmp_path / "hf")
    assert got.keys() == want.keys()
    assert {name for name in got if got[name] != want[name]} == {"model.layers.1.mlp.gate.e_score_correction_bias"}  # moves at every step


def test_load_only_changes_nothing(copied, tmp_path):
    """Old steps stay, and what an interrupted save has left."""
    flags, folder = copied
    (folder / ".milepost-staging-00112233").mkdir()
    (folder / ".milepost-staging-00112233/__0_0.distcp").write_bytes(b"half")
    before = tree(folder)
    log = train(tmp_path / "out", *flags, *EVERY_STEP, "--checkpoint.load-only", "--checkpoint.keep-latest-k", 2,
                "--checkpoint.enable-first-step-checkpoint", "--training.steps", 14)
    assert f"Loading the checkpoint from {folder}/step-12." in log and "Saving" not in log and "Checkpointer is deleting" not in log
    assert "checkpoint.load_only is True; enable_first_step_checkpoint will be ignored." in log
    assert tree(folder) == before and not (tmp_path / "out/checkpoint-events.jsonl").exists()


@pytest.mark.parametrize("flags, status, words", [
    (("--checkpoint.load-step", "-2"), USAGE, "checkpoint.load_step must be a step or -1, the newest one, got -2"),
    (("--checkpoint.initial-load-path", "s3://bucket/step-1"), FAILED, "remote scheme 's3' is not supported")])
def test_what_cannot_be_loaded_is_refused(tmp_path, flags, status, words):
    log = re.sub(r"[\s│]+", " ", train(tmp_path, *flags, status=status))  # out of its box
    assert words in log and not list(tmp_path.glob("**/step-*"))


LOCKS = ("async_with_pinned_mem", "async_with_pinned_mem, refused")


@pytest.mark.parametrize("case", ["async", *LOCKS])
def test_one_save_at_a_time(copied, tmp_path, case):
    """On a slow disk: each save waits for the one before it. A step that is pinned is not saved again. Memory is locked where it may be."""
    flags, folder = copied
    for step in range(4, 14):
        shutil.rmtree(folder / f"step-{step}")
    milepost("pin", folder / "step-2")
    kept = (folder / "step-2/__0_0.distcp").stat().st_ino
    inject = ["-e", "trace=fsync,mlock2", "-e", "inject=fsync:delay_enter=50000"]  # microseconds
    inject += ["-e", "inject=mlock2:error=ENOMEM"] if case == LOCKS[1] else []
    job = start(tmp_path, 1, *TITAN_RUN, "--dump-folder", tmp_path, "--checkpoint.enable", *flags, *EVERY_STEP, "--checkpoint.load-step", 1,
                "--checkpoint.async-mode", case.split(",")[0], "--training.steps", 6, wrap={0: ["strace", "-f", "-qq", "-o", tmp_path / "trace", *inject]})
    assert job.wait() == [DONE], job.logs
    log = job.logs[0]
    assert "step-2 is pinned: it stays as it is, and is not saved again" in log and (folder / "step-2/__0_0.distcp").stat().st_ino == kept
    order = re.findall(r"Finished staging|Finished saving the checkpoint of step \d|Saving a full checkpoint", log)
    saved = [f"Finished saving the checkpoint of step {step}" for step in (3, 4, 5)]
    assert order == ["Finished staging", saved[0], "Finished staging", saved[1], "Finished staging", saved[2], "Saving a full checkpoint"]
    assert steps_in(folder) == [1, 2, 3, 4, 5, 6]
    locks = re.findall(r"mlock2\(.* = (\S+)", (tmp_path / "trace").read_text())
    assert locks == {"async": [], LOCKS[0]: ["0"], LOCKS[1]: ["-1"]}[case] or os.geteuid() != 0 and case == LOCKS[0]


# --- moving averages


def test_averages_follow_their_formula(tmp_path):
    """From the weights that are loaded, by the weights that each step has saved; kept in host memory they are the same."""
    half_life, start_step, bias, every = 0.3, 1, 4, 2
    flags = ("--checkpoint.initial-load-path", TITAN / "one_rank/step-5", *EVERY_STEP, "--training.steps", 5, "--ema-weights.enable",
             "--ema-weights.half-life-fraction", half_life, "--ema-weights.start-step", start_step, "--ema-weights.step-bias", bias,
             "--ema-weights.update-every-n-steps", every)
    train(tmp_path / "run", *flags)

    def tensors(step, name):
        milepost("convert", step, tmp_path / name, "--to", "safetensors", "--skip-unsupported")
        return load_file(next((tmp_path / name).glob("*.safetensors")))
    want = {name: value.astype(np.float64) for name, value in tensors(TITAN / "one_rank/step-5", "start").items()}
    for step in range(1, 6):
        saved = tensors(tmp_path / f"run/checkpoint/step-{step}", str(step))
        key = re.compile(r"ema_optimizer\.state\.(.*)\.ema_params")
        averages = {key.fullmatch(name)[1]: value for name, value in saved.items() if key.fullmatch(name)}
        if (step - start_step) % every == 0:
            decay = 2 ** (-1 / (half_life * max(1, (step - start_step + bias) // every)))
            want = {name: decay * want[name] + (1 - decay) * saved[name] for name in averages}
        assert len(averages) > 10
        for name, value in averages.items():
            np.testing.assert_allclose(value, want[name], rtol=1e-5, atol=1e-7, err_msg=f"{name} at step {step}")
    train(tmp_path / "host", *flags, "--ema-weights.offload-to-cpu")
    differing = milepost("diff", *(tmp_path / name / "checkpoint/step-5" for name in ("run", "host")), status=WANTING).out
    assert differing.startswith("milepost.run ") and "1 entry differs" in differing  # which holds the configuration
