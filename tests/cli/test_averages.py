"""Moving averages of the weights: in checkpoints, over restarts and numbers of ranks, and exported."""
import re
import shutil

import pytest
from tool import BAD_INPUT, milepost
from cli.ranks import end_all, run_ranks
from cli.training import TITAN, TITAN_RUN, USAGE, averages, run, sums, tiny_llama_run, train, weights

EMA = ("--ema-weights.enable", "--ema-weights.decay", "0.9")
FROZEN = ("--ema-weights.enable", "--ema-weights.start-step", 1000)  # as it was loaded
EVERY_STEP = ("--checkpoint.interval", 1)
ANEW = "The moving average of the weights begins anew with the weights that are loaded: "


@pytest.fixture(autouse=True)
def no_processes_left():
    yield
    end_all()


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A run of three steps with averages, saved at each."""
    folder = tmp_path_factory.mktemp("averaged")
    train(folder, *EMA, *EVERY_STEP, "--training.steps", 3)
    return folder


@pytest.mark.parametrize("model", ["deepseek_v3", "llama3"])
def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path, model):
    source = TITAN_RUN if model == "deepseek_v3" else tiny_llama_run(tmp_path)
    flags = ("--ema-weights.enable", "--ema-weights.half-life-fraction", "0.3", "--ema-weights.start-step", 2,
             "--ema-weights.update-every-n-steps", 2, "--checkpoint.interval", 3, "--training.steps", 6)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, *flags, source=source)
    shutil.copytree(whole / "checkpoint/step-3", parts / "checkpoint/step-3")
    assert ANEW not in train(parts, *flags, source=source)
    for name in (".metadata", "__0_0.distcp"):
        assert (whole / "checkpoint/step-6" / name).read_bytes() == (parts / "checkpoint/step-6" / name).read_bytes()
    assert averages(whole / "checkpoint/step-6") != averages(whole / "checkpoint/step-3")
    train(tmp_path / "hf", "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--training.steps", 1, source=source)
    like = tmp_path / "hf/checkpoint/step-1"
    milepost("export", whole / "checkpoint/step-6", tmp_path / "ema", "--ema", "--config", like)
    assert sums(tmp_path / "ema").keys() == sums(like).keys()
    assert sums(tmp_path / "ema")["model.norm.weight"] == averages(whole / "checkpoint/step-6")["norm.weight"]


def test_averages_lie_beside_the_weights(averaged):
    first, last = averaged / "checkpoint/step-1", averaged / "checkpoint/step-3"
    assert averages(last).keys() == weights(last).keys()
    assert not set(averages(last).items()) & set(weights(last).items())
    assert averages(first) != averages(last)
    milepost("verify", last)


@pytest.mark.parametrize("flags, why", [
    (("--checkpoint.initial-load-path", "STEP"), "only the model is loaded"),
    (("--checkpoint.initial-load-path", "STEP", "--checkpoint.no-initial-load-model-only", "--checkpoint.exclude-from-loading",
      "ema_optimizer"), "checkpoint.exclude_from_loading names ema_optimizer"),
    (("--checkpoint.initial-load-path", TITAN / "one_rank/step-5", "--checkpoint.no-initial-load-model-only"), "the checkpoint holds none"),
    (("--checkpoint.initial-load-path", TITAN / "hf_last_one_rank", "--checkpoint.initial-load-in-hf"), "only the model is loaded"),
])
def test_without_an_average_it_begins_with_the_loaded_weights(tmp_path, averaged, flags, why):
    step = averaged / "checkpoint/step-3"
    source = step if "STEP" in flags else TITAN / "one_rank" / ("step-5" if why == "the checkpoint holds none" else "step-10")
    start = 5 if why == "the checkpoint holds none" else 3 if "exclude" in why else 0
    log = train(tmp_path, *FROZEN, *EVERY_STEP, *(step if flag == "STEP" else flag for flag in flags), "--training.steps", start + 1)
    assert "WARNING - " + ANEW + why in log
    assert averages(tmp_path / f"checkpoint/step-{start + 1}") == weights(source)  # the safetensors hold those of step 10


def test_step_zero_begins_anew(tmp_path):
    train(tmp_path, *EMA, "--checkpoint.create-seed-checkpoint")
    log = train(tmp_path, *FROZEN, *EVERY_STEP, "--training.steps", 1)
    assert ANEW + "only the model is loaded" in log
    assert averages(tmp_path / "checkpoint/step-1") == weights(tmp_path / "checkpoint/step-0")


def test_a_last_save_of_the_model_leaves_them_out(tmp_path):
    log = train(tmp_path, *EMA, "--checkpoint.last-save-model-only", "--training.steps", 1)
    assert "the last checkpoint will not hold the moving average" in log
    assert averages(tmp_path / "checkpoint/step-1") == {}
    failed = milepost("export", tmp_path / "checkpoint/step-1", tmp_path / "hf", "--ema", status=BAD_INPUT)
    assert "it holds no moving averages of weights" in failed.text and not (tmp_path / "hf").exists()


def test_a_run_without_averages_says_what_it_drops(tmp_path, averaged):
    shutil.copytree(averaged / "checkpoint/step-3", tmp_path / "checkpoint/step-3")
    log = train(tmp_path, "--training.steps", 4)
    assert "holds a moving average of the weights, which this run does not keep" in log
    assert averages(tmp_path / "checkpoint/step-4") == {}


def test_two_ranks_average_their_parts_and_one_goes_on(tmp_path):
    flags = ("--checkpoint.enable", *EVERY_STEP, "--training.local-batch-size", 1)
    run_ranks(tmp_path, 2, *flags, *EMA, "--training.steps", 3)
    two = averages(tmp_path / "checkpoint/step-3")
    train(tmp_path, *flags, *FROZEN, "--training.steps", 4)
    assert averages(tmp_path / "checkpoint/step-4") == two
    run_ranks(tmp_path, 2, *flags, *FROZEN, "--training.steps", 5)
    assert averages(tmp_path / "checkpoint/step-5") == two


def rename_as_titan(step, destination, copy):
    """The step with its averages under later TorchTitan's names, which are as long as ours, so that the index stays whole."""
    shutil.copytree(step, destination)
    index = (destination / ".metadata").read_bytes()
    named = re.sub(rb"ema_optimizer\.state\.([\w.]+?)\.ema_params", rb"ema.state.\1.ema_params." + copy, index)
    assert len(named) == len(index)
    (destination / ".metadata").write_bytes(named)


def test_later_torchtitans_names_are_read(tmp_path, averaged):
    step = averaged / "checkpoint/step-3"
    rename_as_titan(step, tmp_path / "checkpoint/step-3", b"decay_0p9")
    log = train(tmp_path, *FROZEN, *EVERY_STEP, "--training.steps", 4)
    assert "Loading the moving average decay_0p9 of the weights" in log
    assert averages(tmp_path / "checkpoint/step-4") == averages(step)
    config = ("--config", TITAN / "config.json")
    milepost("export", tmp_path / "checkpoint/step-3", tmp_path / "hf", "--ema-key", "decay_0p9", *config)
    milepost("export", step, tmp_path / "ours", "--ema", *config)
    milepost("diff", tmp_path / "hf", tmp_path / "ours")
    failed = milepost("export", tmp_path / "checkpoint/step-3", tmp_path / "other", "--ema-key", "decay_0p5", *config, status=BAD_INPUT)
    assert "no moving average is named decay_0p5, but there are: decay_0p9" in failed.text


@pytest.mark.parametrize("flags, words", [
    (("--ema-weights.decay", "-0.1"), "ema_weights.decay must be in [0, 1) when set"),
    (("--ema-weights.decay", "1"), "ema_weights.decay must be in [0, 1) when set"),
    (("--ema-weights.half-life-fraction", "0"), "ema_weights.half_life_fraction must be greater"),
    (("--ema-weights.update-every-n-steps", "0"), "ema_weights.update_every_n_steps must be at least"),
])
def test_settings_that_cannot_stand_are_refused(tmp_path, flags, words):
    _, log = run(*TITAN_RUN, "--dump-folder", tmp_path, "--ema-weights.enable", *flags, status=USAGE)
    assert words in log and not (tmp_path / "checkpoint").exists()


def test_averages_that_nobody_saves_are_said_to_be_so(tmp_path):
    _, log = run(*TITAN_RUN, "--dump-folder", tmp_path, *EMA, "--ema-weights.offload-to-cpu", "--training.steps", 1)
    assert "the moving average is not saved, since checkpoint.enable is off" in log
