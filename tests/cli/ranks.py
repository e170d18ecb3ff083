"""Jobs of several processes of `milepost-train` for the tests."""
import contextlib
import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

from cli.training import DONE, PROGRAM, TINY_LLAMA, TITAN_RUN, environment

TIMEOUT = 120
_started = []


def end_all():
    """Ends what a test has left running."""
    for process in _started:
        if process.poll() is None:
            for rank in ranks_of(process).values():
                os.kill(rank, signal.SIGKILL)
            process.kill()
            process.wait()
    _started.clear()


def free_port():
    """One below those that the system hands out, so that no connection takes it before the job does."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


@dataclasses.dataclass
class Job:
    """Processes started one by one, as a launcher does; their output goes into files."""
    processes: list
    files: list

    @property
    def logs(self):
        return [path.read_text() for path in self.files]

    def wait(self, timeout=TIMEOUT):
        """The exit status of each rank; none is left over."""
        end = time.monotonic() + timeout
        try:
            return [process.wait(max(0.01, end - time.monotonic())) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def wait_for(self, text, rank=0, timeout=60):
        end = time.monotonic() + timeout
        while text not in self.logs[rank]:
            assert time.monotonic() < end and self.processes[rank].poll() is None, f"{text!r} did not come:\n{self.logs[rank][-3000:]}"
            time.sleep(0.02)


def start(folder, world, *arguments, per_rank=None, port=None, wrap=None, env=None):
    """`per_rank`: {rank: more arguments}; `wrap`: {rank: a command that runs the program}."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    job = Job([], [])
    for rank in range(world):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                     "OMP_NUM_THREADS": 1, **(env or {})}
        job.files.append(folder / f"rank_{rank}.log")
        with open(job.files[-1], "w") as log:
            words = [*(wrap or {}).get(rank, ()), PROGRAM, *arguments, *(per_rank or {}).get(rank, ())]
            job.processes.append(subprocess.Popen([*map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                  env={**environment(), **{k: str(v) for k, v in variables.items()}}))
    _started.extend(job.processes)
    return job


def run_ranks(folder, world, *arguments, status=DONE, source=TITAN_RUN, timeout=TIMEOUT, **options):
    """The logs of a job whose ranks all end with `status`; dump folder `folder`."""
    job = start(folder, world, *source, "--dump-folder", folder, *arguments, **options)
    found = job.wait(timeout)
    assert found == [status] * world, f"{found}\n" + "\n".join(log[-3000:] for log in job.logs)
    return job.logs


def torchrun(folder, world, *arguments, restarts=0, source=TITAN_RUN):
    """A launcher's process as scripts/run_train.sh starts it; its output goes to the file `torchrun.log`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={world}", "--rdzv_backend", "c10d", "--rdzv_endpoint=localhost:0",
               "--role", "rank", "--tee", "3", f"--max-restarts={restarts}", "--no-python", PROGRAM, *source, "--dump-folder", folder, *arguments]
    variables = {"OMP_NUM_THREADS": "1", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"}
    file = folder / "torchrun.log"
    with open(file, "w") as log:
        process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environment(), **variables})
    _started.append(process)
    return Job([process], [file])


def ranks_of(process):
    """{rank: process id} of the ranks that run below a launcher."""
    found = {}
    for child in subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout.split():
        try:
            with open(f"/proc/{child}/environ", "rb") as file:
                variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
        except OSError:
            continue
        if b"RANK" in variables and b"TORCHELASTIC_RUN_ID" in variables:
            found[int(variables[b"RANK"])] = int(child)
    return found


def configuration(folder, model, fp32_experts=True, **changes):
    """The flags of a tiny run in float32 with a global batch of 12, read in one order by all ranks."""
    config = dict(TINY_LLAMA) if model == "llama3" else json.loads(TITAN_RUN[1].read_text())
    if model != "llama3":
        config["model"] = {**config["model"], "fp32_experts": fp32_experts}
    config["training"] = {**config["training"], "global_batch_size": 12, "local_batch_size": 1, "mixed_precision_param": "float32", "steps": 20}
    config["lr_scheduler"] = {**config["lr_scheduler"], "total_steps": 30}
    config["dataloader"] = {"dataset": "c4_test", "order": "global"}
    for section, values in changes.items():
        config[section] = {**config.get(section, {}), **values}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{model}.json"
    file.write_text(json.dumps(config))
    return ("--config-file", file, *TITAN_RUN[2:])
