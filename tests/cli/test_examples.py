"""Programs on the trainer's library do what the guide says (docs/checkpoint.md, "In code")."""
import os
import re
import subprocess
from pathlib import Path

from tool import milepost

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MILEPOST_TRAIN_AND_RESUME", str(ROOT / "build/dev/examples/train_and_resume"))


def train_and_resume(folder, steps):
    done = subprocess.run([PROGRAM, folder, str(steps)], capture_output=True, text=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(output):
    return dict(re.findall(r"step (\d+) loss ([\d.]+)", output))


def test_a_program_that_makes_its_own_checkpoint_manager_goes_on_to_the_bit(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    want = losses(train_and_resume(whole, 13))
    steps = sorted(int(path.name.removeprefix("step-")) for path in (whole / "checkpoint").iterdir())
    assert steps == [4, 6, 8, 10, 12, 13]  # of every second step the latest 5, and the last, which removes none
    assert list(losses(train_and_resume(cut, 7))) == [str(step) for step in range(1, 8)]
    again = train_and_resume(cut, 13)
    assert f"Loading the checkpoint from {cut}/checkpoint/step-7." in again
    assert losses(again) == {step: loss for step, loss in want.items() if int(step) > 7}
    assert "no difference" in milepost("diff", whole / "checkpoint/step-13", cut / "checkpoint/step-13").out


def test_the_guide_shows_lines_of_that_program():
    shown = re.search(r"^## In code$.*?^```cpp\n(.*?)^```$", (ROOT / "docs/checkpoint.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    lines = iter([line.strip() for line in (ROOT / "examples/train_and_resume.cc").read_text().splitlines()])
    assert shown and all(line.strip() in lines for line in shown.splitlines() if line)  # in this order
