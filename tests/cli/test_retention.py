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


def test_a_step_that_cannot_be_removed_fails_nothing(tmp_path):
    train(tmp_path, *EVERY_STEP, "--training.steps", 1)
    blocked = tmp_path / "checkpoint/step-1"
    (blocked / "mine").mkdir()  # somebody's own files are not a checkpoint's
    log = train(tmp_path, *EVERY_STEP, "--checkpoint.keep-latest-k", 2, "--training.steps", 4)
    assert blocked.exists() == ("failed to delete" in log)
    assert steps_in(tmp_path)[-3:] == [2, 3, 4]


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


def test_a_pinned_step_is_not_saved_over(tmp_path):
    train(tmp_path, *EVERY_STEP, "--training.steps", 3)
    step = tmp_path / "checkpoint/step-2"
    milepost("pin", step)
    before = (step / "__0_0.distcp").stat()
    log = train(tmp_path, *EVERY_STEP, "--checkpoint.load-step", 1, "--training.steps", 4)
    assert "step-2 is pinned: it stays as it is, and is not saved again" in log
    assert (step / "__0_0.distcp").stat().st_ino == before.st_ino and steps_in(tmp_path) == [1, 2, 3, 4]


def test_a_negative_number_is_refused(tmp_path):
    assert "checkpoint.keep_every must be a number of steps or" in train(tmp_path, "--checkpoint.keep-every", "-2", status=USAGE)
