"""Which steps of a run stay, pins, and the record of events."""
import json
import shutil

import pytest
from tool import BAD_INPUT, milepost
from cli.training import TITAN, USAGE, train

EVERY_STEP = ("--checkpoint.interval", 1)


def steps_in(folder):
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoint").glob("step-*"))


def events(folder):
    return [json.loads(line) for line in (folder / "checkpoint-events.jsonl").read_text().splitlines()]


def test_the_newest_stay_and_what_was_asked_for(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(TITAN / "one_rank/step-5", checkpoint / "step-5")
    shutil.copytree(checkpoint / "step-5", checkpoint / "old-step-1")
    shutil.copytree(checkpoint / "step-5", checkpoint / "step-2")
    (checkpoint / "step-2/__0_0.distcp").write_bytes(b"short")  # damaged: neither counted nor removed
    (checkpoint / "step-3").mkdir()
    flags = (*EVERY_STEP, "--checkpoint.keep-latest-k", 2, "--checkpoint.keep-every", 4)
    train(tmp_path, *flags, "--training.steps", 7)
    milepost("pin", checkpoint / "step-6")
    log = train(tmp_path, *flags, "--training.steps", 11)
    assert steps_in(tmp_path) == [2, 3, 5, 6, 8, 9, 10, 11]  # nothing is removed after the last step
    assert (checkpoint / "old-step-1").exists()
    assert f"Checkpointer is deleting {checkpoint}/step-7." in log and f"Checkpointer deleted {checkpoint}/step-7 in " in log
    assert "failed to delete" not in log


def test_only_steps_to_go_on_from_are_counted(tmp_path):
    """The last save of only the model takes no place of a full one, and stays."""
    flags = ("--checkpoint.interval", 2, "--checkpoint.keep-latest-k", 2)
    train(tmp_path, *flags, "--training.steps", 3, "--checkpoint.last-save-model-only")
    log = train(tmp_path, *flags, "--training.steps", 5)
    assert "step-3 is not resumed from: it holds no optimizer" in log
    assert steps_in(tmp_path) == [2, 3, 4, 5] and "Checkpointer is deleting" not in log


def test_a_step_that_cannot_be_removed_fails_nothing(tmp_path):
    train(tmp_path, *EVERY_STEP, "--training.steps", 1)
    blocked = tmp_path / "checkpoint/step-1"
    (blocked / "mine").mkdir()  # no part of a checkpoint
    log = train(tmp_path, *EVERY_STEP, "--checkpoint.keep-latest-k", 2, "--training.steps", 5)
    assert log.count(f"Checkpointer failed to delete {blocked}: it holds 'mine', which is no part of a checkpoint. Skipping.") == 1
    assert steps_in(tmp_path) == [1, 3, 4, 5] and (blocked / "mine").is_dir()
    (blocked / "mine").rmdir()
    milepost("verify", blocked)
    assert [e["step"] for e in events(tmp_path) if e["event"] == "removed"] == [2]


def test_events_are_recorded(tmp_path):
    log = train(tmp_path, *EVERY_STEP, "--checkpoint.keep-latest-k", 2, "--training.steps", 4)
    got = events(tmp_path)
    assert [(e["step"], e["event"]) for e in got if e["event"] != "removed"] == [
        (step, event) for step in (1, 2, 3, 4) for event in ("written", "committed")]
    assert [e["step"] for e in got if e["event"] == "removed"] == [1]
    for event in got:
        assert event["seconds"] > 0 and event["time"] > 1.7e9
        data = tmp_path / f"checkpoint/step-{event['step']}/__0_0.distcp"
        assert event["bytes"] == data.stat().st_size if data.exists() else event["bytes"] > 0
        assert event["gb_per_s"] == pytest.approx(event["bytes"] / 1e9 / event["seconds"], rel=1e-2, abs=1e-3)
        assert ("pause_seconds" in event) == (event["event"] == "committed")
    assert "Checkpoint step-4 committed: 0.00 GB in " in log and "; training stood still for " in log


def test_pins_are_listed_and_taken_away(tmp_path):
    train(tmp_path, *EVERY_STEP, "--training.steps", 2)
    checkpoint = tmp_path / "checkpoint"
    assert "no step is pinned" in milepost("pin", checkpoint).out
    assert "is now pinned" in milepost("pin", checkpoint / "step-1").out
    assert "was already pinned" in milepost("pin", f"{checkpoint}/step-1/").out
    assert milepost("pin", checkpoint, "--json").json["pinned"] == [1]
    milepost("verify", checkpoint / "step-1")
    milepost("manifest", "write", checkpoint / "step-1")
    assert "is now without a pin" in milepost("pin", checkpoint / "step-1", "--unpin").out
    milepost("manifest", "verify", checkpoint / "step-1")
    assert milepost("pin", checkpoint, "--json").json["pinned"] == []
    milepost("pin", checkpoint / "step-9", status=BAD_INPUT)
    milepost("pin", checkpoint, "--unpin", status=BAD_INPUT)
    milepost("pin", tmp_path / "nowhere", status=BAD_INPUT)


def test_a_rollback_leaves_the_newer_steps_and_saves_over_no_pinned_one(tmp_path):
    train(tmp_path, *EVERY_STEP, "--training.steps", 7)
    pinned, newer = tmp_path / "checkpoint/step-3", tmp_path / "checkpoint/step-7"
    milepost("pin", pinned)
    before = [(step / "__0_0.distcp").stat().st_ino for step in (pinned, newer)]
    log = train(tmp_path, *EVERY_STEP, "--checkpoint.load-step", 2, "--checkpoint.keep-latest-k", 2, "--training.steps", 5)
    assert "step-3 is pinned: it stays as it is, and is not saved again" in log
    # After step 4: of the run's own 1, 2, 4 the first goes. 3, 6 and 7 are of the training that was rolled back.
    assert steps_in(tmp_path) == [2, 3, 4, 5, 6, 7]
    assert [(step / "__0_0.distcp").stat().st_ino for step in (pinned, newer)] == before


def test_a_negative_number_is_refused(tmp_path):
    assert "checkpoint.keep_every must be a number of steps or" in train(tmp_path, "--checkpoint.keep-every", "-2", status=USAGE)
