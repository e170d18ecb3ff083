"""Several nodes, as two launchers on the loopback interface, started by the script for Slurm: programs in the places of srun and scontrol."""
import os
import re
import socket
import subprocess
import sys

import pytest
from cli.ranks import configuration, free_port
from cli.training import DONE, PROGRAM, ROOT, environment, records, run
from tool import make_program, milepost

SCRIPT = ROOT / "examples/multinode_trainer.slurm"
# One process for each node, as srun starts them; its own options and the program are told apart by the first word that is no option.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for ((node = 0; node < SLURM_JOB_NUM_NODES; ++node)); do SLURM_NODEID=$node "$@" & pids+=($!); done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"
"""


@pytest.fixture
def submit(tmp_path):
    """Runs the script as sbatch would on `nodes` nodes of `ranks` processes; returns its output."""
    root = tmp_path / "project"
    for name in ("setup.sh", "build.sh"):
        make_program(root / "scripts" / name, "#!/bin/sh\n")
    make_program(root / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    make_program(root / "build/release/train/milepost-train", f'#!/bin/sh\nexport MILEPOST_ROOT={ROOT}\nexec {PROGRAM} "$@"\n')
    make_program(tmp_path / "bin/srun", SRUN)
    make_program(tmp_path / "bin/scontrol", "#!/bin/sh\necho 127.0.0.1\necho 127.0.0.2\n")

    def run(nodes, ranks, *arguments, status=DONE, **variables):
        slurm = {"SLURM_SUBMIT_DIR": root, "SLURM_JOB_NUM_NODES": nodes, "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": 7,
                 "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "NGPU": ranks, "MASTER_PORT": free_port(), "OMP_NUM_THREADS": 1,
                 "LOG_RANK": "0,1", "MAX_RESTARTS": 0, **variables}
        done = subprocess.run(["bash", SCRIPT, *map(str, arguments)], cwd=tmp_path, env={**environment(), **{k: str(v) for k, v in slurm.items()}},
                              capture_output=True, text=True, timeout=120)
        output = done.stdout + done.stderr
        assert done.returncode == status, f"status {done.returncode}\n{output[-5000:]}"
        return output
    return run


def test_the_script_is_bash():
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_two_nodes_train_one_model(submit, tmp_path):
    ranks = 2
    file = configuration(tmp_path, "llama3")
    log = submit(2, ranks, *file, "--training.steps", 3, "--dump-folder", tmp_path / "out", "--checkpoint.enable")
    places = sorted(re.findall(r"Rank (\d+) of (\d+), number (\d+) on (\S+)", log))
    host = socket.gethostname()
    assert places == [(str(rank), str(2 * ranks), str(rank % ranks), host) for rank in range(2 * ranks)]
    assert f"dp_shard={2 * ranks}" in log and log.count("Training completed") == 2 * ranks
    assert sorted(records(tmp_path / "out")) == [1, 2, 3]
    assert len(list((tmp_path / "out/checkpoint/step-3").glob("*.distcp"))) == 2 * ranks


def test_fewer_ranks_go_on_from_two_nodes(submit, tmp_path):
    """The small registry entry, in a CPU's sizes: saved by four ranks of two nodes, resumed by two of one and by one, with the losses of one
    process that nothing interrupts."""
    flags = ("--module", "llama3", "--config", "llama3_debugmodel", "--training.local-batch-size", 1, "--training.global-batch-size", 4,
             "--training.seq-len", 64, "--training.mixed-precision-param", "float32", "--dataloader.order", "global", "--lr-scheduler.total-steps", 3,
             "--debug.seed", 3)
    for steps, nodes, ranks in ((1, 2, 2), (2, 1, 2), (3, 1, 1)):
        log = submit(nodes, ranks, *flags, "--checkpoint.enable", "--checkpoint.no-last-save-model-only", "--dump-folder", tmp_path / "out",
                     "--training.steps", steps)
        assert steps == 1 or f"Loading the checkpoint from {tmp_path}/out/checkpoint/step-{steps - 1}." in log
        assert len(list((tmp_path / f"out/checkpoint/step-{steps}").glob("*.distcp"))) >= nodes * ranks
    milepost("verify", tmp_path / "out/checkpoint/step-3")
    run(*flags, "--dump-folder", tmp_path / "whole", "--training.steps", 3)
    got, want = records(tmp_path / "out"), records(tmp_path / "whole")
    assert sorted(got) == [1, 2, 3] and want[3]["loss"] < want[1]["loss"]
    for step, record in got.items():
        assert record["loss"] == pytest.approx(want[step]["loss"], rel=1e-5, abs=0) and record["ntokens_seen"] == want[step]["ntokens_seen"]
