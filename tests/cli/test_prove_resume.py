"""--debug.prove-resume: a resumed run goes on to the bit as the one that was saved, whatever saves it; and the proof can fail."""
import pytest
from cli.ranks import configuration, run_ranks
from cli.training import DONE, FAILED

MODES = ("disabled", "async", "async_with_pinned_mem")


def prove(folder, world, *flags, model="deepseek_v3", status=DONE):
    logs = run_ranks(folder, world, "--checkpoint.enable", "--debug.prove-resume", 3, *flags, source=configuration(folder.parent, model), status=status)
    assert not list(folder.glob(".milepost*")) and not (folder / "checkpoint").exists()
    return logs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", [1, 2])
def test_a_resumed_run_goes_on_to_the_bit(tmp_path, world, mode):
    flags = ("--checkpoint.async-mode", mode, "--ema-weights.enable", "--checkpoint.extensions.verify-hash-manifest")
    for log in prove(tmp_path / "run", world, *flags):
        assert "Resume proved: step 2 loaded and steps 3 to 5 done again are the same to the bit, with" in log
        assert ("Staging the checkpoint." in log) == (mode != "disabled") and "Checkpoint hash manifest verified" in log


@pytest.mark.parametrize("part, name", [("optimizer", "optimizer.state."), ("lr_scheduler", "lr_scheduler.last_epoch: 2 and 0"), ("dataloader", "dataloader.dp_rank_"),
                                        ("train_state", "train_state.step: 2 and 0"), ("ema_optimizer", "ema_optimizer.state.")])
def test_what_is_not_loaded_is_found(tmp_path, part, name):
    flags = ("--checkpoint.exclude-from-loading", part, "--ema-weights.enable")
    log = prove(tmp_path / "run", 1, *flags, model="llama3", status=FAILED)[0]
    assert "a resumed run differs from one that went on, first at step 2, as loaded, on rank 0: " + name in log


def test_all_ranks_name_the_first_difference(tmp_path):
    for log in prove(tmp_path / "run", 2, "--checkpoint.exclude-from-loading", "optimizer", model="llama3", status=FAILED):
        assert "step 2, as loaded, on rank 0: optimizer.state.tok_embeddings.weight.step, element [] of this rank's part: 2 and 0" in log


@pytest.mark.parametrize("flags, text", [
    (("--checkpoint.no-enable",), "checkpoints are off; add --checkpoint.enable"),
    (("--checkpoint.load-only",), "which checkpoint.load_only forbids"),
    (("--debug.prove-resume", -1), "debug.prove_resume must be at least 0"),
    (("--debug.prove-resume", 30), "trains up to step 32, beyond training.steps 20")])
def test_a_proof_that_cannot_be_made_is_refused(tmp_path, flags, text):
    assert text in run_ranks(tmp_path, 1, "--checkpoint.enable", "--debug.prove-resume", 3, *flags, source=configuration(tmp_path, "llama3"), status=FAILED)[0]
