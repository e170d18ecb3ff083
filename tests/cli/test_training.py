"""milepost-train trains: what it logs and writes, what it refuses, how it ends. Small settings, a few steps each."""
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli.training import DONE, FAILED, PROGRAM, environment, metrics, tiny_llama_run
from tool import milepost

DEEPSEEK = ("--module", "deepseek_v3", "--config", "deepseek_v3_debugmodel")
LLAMA = ("--module", "llama3", "--config", "llama3_debugmodel")
SMALL = ("--training.local-batch-size", "1", "--training.seq-len", "64", "--metrics.disable-color-printing", "--debug.seed", "1")
# At these sizes a second thread only waits for the first.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
STEP = re.compile(r"step: ([ \d]\d)  loss: ([ \d]\d\.\d{5})  grad_norm: ([ \d]\d\.\d{4})  memory: ([ \d]\d\.\d\d)GiB\((\d+\.\d\d)%\)  "
                  r"tps: ([\d,]+)  tflops: ([\d,]+\.\d\d)  mfu: (\d+\.\d\d)%$", re.MULTILINE)


@pytest.fixture
def train(tmp_path):
    """Runs milepost-train in tmp_path and asserts its exit status; returns its log. `limits`: {resource: bytes}."""
    def run(*arguments, status=DONE, env=None, limits=None):
        limit = (lambda: [resource.setrlimit(what, (bytes, bytes)) for what, bytes in limits.items()]) if limits else None
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=tmp_path, env=environment(**{**ONE_THREAD, **(env or {})}), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, preexec_fn=limit)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stderr
    return run


def steps(log):
    """[(step, loss, grad_norm)] of the lines of metrics."""
    return [(int(m[1]), float(m[2]), float(m[3])) for m in STEP.finditer(log)]


def documents(folder, count, text):
    (folder / "data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(count)))
    return "--dataloader.dataset", "text", "--dataloader.dataset-path", folder


@pytest.mark.parametrize("entry, size", [(DEEPSEEK, "33,014,016"), (LLAMA, "6,163,712")])
def test_trains_with_falling_loss(train, tmp_path, entry, size):
    log = train(*entry, *SMALL, "--training.steps", 8)
    found = steps(log)
    assert [s for s, _, _ in found] == list(range(1, 9))
    assert 7 < found[0][1] < 9 and found[-1][1] < found[0][1] - 0.3
    name = f"{entry[1]} debugmodel"
    lines = [line.split(" - ", 3)[-1] for line in log.splitlines() if line.startswith("[milepost]")]
    in_order = [f"Building {name}", f"Model {name} size: {size} total parameters", "Peak FLOPS used for computing MFU: ", "CPU memory usage for model: ",
                "Optimizer AdamW (model_part=0): ", "Trainer is initialized with local batch size 1, global batch size 1, gradient accumulation steps 1, "
                "sequence length 64, total steps 8 (warmup 2)", "Training starts at step 1", "step:  1  loss: ", "step:  8  loss: ", "Training completed"]
    places = [next(i for i, line in enumerate(lines) if line.startswith(start)) for start in in_order]
    assert places == sorted(places)
    assert "loss" in log.split("Training completed")[0] and "tokens/s" in log


def test_logs_what_torchtitan_logs_of_a_mixture(train):
    log = train(*DEEPSEEK, *SMALL, "--training.steps", 1)
    assert re.search(r"Total parameter count: dense [\d,]+, sparse [\d,]+, vision 0, active [\d,]+", log)
    assert re.search(r"Optimizer AdamW \(model_part=0\): 83 params \[\.\*\] \{'fused': True, 'foreach': False, 'lr': 0\.0008, 'betas': \(0\.9, 0\.95\), "
                     r"'eps': 1e-08, 'weight_decay': 0\.1\}", log)


def test_colours_are_torchtitans(train):
    log = train(*LLAMA, *SMALL, "--training.steps", 1, "--metrics.no-disable-color-printing")
    assert re.search("\x1b\\[31mstep:  1  \x1b\\[32mloss: .*\x1b\\[38;2;180;60;0mgrad_norm: .*\x1b\\[35mmfu: .*%\x1b\\[39m", log)
    assert "\x1b" not in train(*LLAMA, *SMALL, "--training.steps", 1, "--metrics.no-disable-color-printing", env={"NO_COLOR": "1"})


def test_logs_step_1_and_every_log_freq(train):
    log = train(*LLAMA, *SMALL, "--training.steps", 7, "--metrics.log-freq", 3)
    assert [s for s, _, _ in steps(log)] == [1, 3, 6]


def test_metrics_have_a_line_a_step_whose_times_add_up(train, tmp_path):
    log = train(*LLAMA, *SMALL, "--training.steps", 4, "--metrics.log-freq", 2)
    found = metrics(tmp_path / "outputs")
    assert [r["step"] for r in found] == [1, 2, 3, 4]
    assert [r["ntokens_seen"] for r in found] == [64, 128, 192, 256]
    assert f"{found[1]['loss']:8.5f}" in log and found[0]["lr/AdamW"] == pytest.approx(4e-4)
    for record in found:
        seconds = dict(record["seconds"])
        total = seconds.pop("total")
        assert set(seconds) == {"data", "forward", "backward", "optimizer", "staging", "checkpoint", "validation", "log", "other"}
        assert sum(seconds.values()) == pytest.approx(total, rel=0.02, abs=1e-3)
        assert record["tps"] > 0 and record["memory_bytes"] > 0


def test_a_seed_repeats_a_run_to_the_bit(train, tmp_path):
    losses = []
    for name in "ab":
        train(*DEEPSEEK, *SMALL, "--training.steps", 3, "--dump-folder", name)
        losses.append([r["loss"] for r in metrics(tmp_path / name)])
    assert losses[0] == losses[1]
    train(*DEEPSEEK, *SMALL, "--training.steps", 1, "--debug.seed", 2, "--dump-folder", "c")
    assert metrics(tmp_path / "c")[0]["loss"] != losses[0][0]


def test_accumulation_gives_the_loss_of_the_whole_batch(train, tmp_path):
    flags = (*LLAMA, "--training.seq-len", 64, "--debug.seed", 1, "--training.steps", 2, "--training.mixed-precision-param", "float32",
             "--training.global-batch-size", 4)
    train(*flags, "--training.local-batch-size", 4, "--dump-folder", "whole")
    log = train(*flags, "--training.local-batch-size", 2, "--dump-folder", "parts")
    assert "gradient accumulation steps 2" in log
    whole, parts = metrics(tmp_path / "whole"), metrics(tmp_path / "parts")
    for a, b in zip(whole, parts):
        assert a["tokens"] == b["tokens"] == 256
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5) and a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("module, config", [
    ("deepseek_v3", "deepseek_v3_debugmodel_mtp"), ("llama3", "llama3_debugmodel_ce_loss"), ("llama3", "llama3_debugmodel_varlen_attn")])
def test_the_other_debug_entries_train(train, module, config):
    assert len(steps(train("--module", module, "--config", config, *SMALL, "--training.steps", 2))) == 2


@pytest.mark.parametrize("policy", ["none", "selective", "full"])
def test_recomputation_changes_no_result(train, tmp_path, policy):
    train(*DEEPSEEK, *SMALL, "--training.steps", 2, f"activation-checkpoint:{policy}")
    train(*DEEPSEEK, *SMALL, "--training.steps", 2, "--dump-folder", "plain", "activation-checkpoint:none")
    assert [r["loss"] for r in metrics(tmp_path / "outputs")] == [r["loss"] for r in metrics(tmp_path / "plain")]


def test_overrides_say_that_the_fused_form_is_in_use(train):
    target = "torchtitan.overrides.fused_mla.fused_mla"
    assert f"Override {target}: the fused form is in use" in train(*DEEPSEEK, *SMALL, "--training.steps", 1, "--override.imports", target)


def test_writes_what_tensorboard_reads(train, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = train(*DEEPSEEK, *SMALL, "--training.steps", 4, "--metrics.log-freq", 2, "--metrics.enable-tensorboard")
    folder = Path(re.search("TensorBoard logging enabled. Logs will be saved at (.*)", log)[1])
    assert re.fullmatch(r"outputs/tb/\d{8}-\d{4}", str(folder))
    events = accumulator.EventAccumulator(str(tmp_path / folder))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "grad_norm", "throughput(tps)", "tflops", "mfu(%)", "time_metrics/end_to_end(s)",
        "time_metrics/data_loading(s)", "time_metrics/data_loading(%)", "memory/max_active(GiB)", "memory/max_active(%)", "memory/max_reserved(GiB)",
        "memory/max_reserved(%)", "memory/num_alloc_retries", "memory/num_ooms", "n_tokens_seen", "lr/AdamW"}
    losses = events.Scalars("loss_metrics/global_avg_loss")
    assert [e.step for e in losses] == [1, 2, 4]
    assert [e.value for e in losses] == pytest.approx([r["loss"] for r in metrics(tmp_path / "outputs") if r["step"] in (1, 2, 4)])


def test_validates(train, tmp_path):
    validation = ("--validator.enable", "--validator.freq", 2, "--validator.steps", 2, "--validator.dataloader.dataset", "c4_test")
    log = train(*LLAMA, *SMALL, "--training.steps", 4, *validation)
    found = re.findall(r"validate step: ([ \d]\d)  loss: ([ \d]\d\.\d{4})  memory: [ \d]\d\.\d\dGiB\(\d+\.\d\d%\)  tps: [\d,]+$", log, re.MULTILINE)
    assert [int(step) for step, _ in found] == [1, 2, 4]
    assert float(found[-1][1]) < float(found[0][1])
    assert [r["step"] for r in metrics(tmp_path / "outputs") if "validation_loss" in r] == [1, 2, 4]
    train(*LLAMA, *SMALL, "--training.steps", 4, "--dump-folder", "without")
    losses = [[r["loss"] for r in metrics(tmp_path / name) if "loss" in r] for name in ("outputs", "without")]
    assert losses[0] == losses[1]


def test_validation_takes_all_the_data_or_says_that_there_is_none(train, tmp_path):
    (tmp_path / "val").mkdir()
    documents(tmp_path / "val", 8, "some text to look at " * 10)
    flags = (*LLAMA, *SMALL, "--training.steps", 1, "--validator.enable", "--validator.steps", -1, "--validator.dataloader.dataset", "text", "--validator.dataloader.dataset-path", "val")
    assert "validate step:  1" in train(*flags)
    documents(tmp_path / "val", 1, "short")
    assert "the validation data fill no batch" in train(*flags, status=FAILED)


def test_traces_follow_the_schedule(train, tmp_path):
    log = train(*LLAMA, *SMALL, "--training.steps", 9, "--profiler.enable-profiling", "--profiler.profile-freq", 4)
    traces = sorted((tmp_path / "outputs/profiling/traces").rglob("*.json"))
    assert [str(p.relative_to(tmp_path / "outputs/profiling/traces")) for p in traces] == ["iteration_4/rank0_trace.json", "iteration_8/rank0_trace.json"]
    assert "Profiling active. Traces will be saved at ./outputs/profiling/traces" in log and "Dumping profiler traces at step 8" in log
    names = {event.get("name") for event in json.loads(traces[0].read_text())["traceEvents"]}
    assert {"forward", "backward", "optimizer", "data"} <= names and any("aten::" in str(name) for name in names)


def test_stops_where_finite_data_end(train, tmp_path):
    log = train(*LLAMA, *SMALL, "--training.steps", 50, "--dataloader.no-infinite", *documents(tmp_path, 10, "abc " * 40))
    assert "WARNING - Ran out of data; last step was canceled." in log and "Training completed" in log
    assert 1 <= len(steps(log)) < 50


# --- the last checkpoint

SMALL_FILES = {resource.RLIMIT_FSIZE: 100_000}  # less than a checkpoint takes


def test_a_run_without_its_last_checkpoint_fails_though_others_may_be_missed(train, tmp_path):
    flags = (*tiny_llama_run(tmp_path), "--checkpoint.enable", "--checkpoint.interval", 1, "--checkpoint.on-save-error", "warn")
    log = train(*flags, "--training.steps", 2, status=FAILED, limits=SMALL_FILES)
    missed, last = log.split("step:  2  loss", 1)
    assert "Training goes on without this checkpoint (checkpoint.on_save_error=warn): " in missed and "Training goes on" not in last
    assert "WARNING - The run fails without its last checkpoint" in last and "Training completed" not in last
    assert re.search(r"^OSError: .*File too large", last, re.MULTILINE) and not list((tmp_path / "outputs/checkpoint").iterdir())

    seed = train(*flags, "--checkpoint.create-seed-checkpoint", status=FAILED, limits=SMALL_FILES)
    assert "WARNING - The run fails without its last checkpoint" in seed and "Created seed checkpoint" not in seed


def test_a_run_fails_whose_last_save_beside_training_does(train, tmp_path):
    """Where the data end: no save that waits follows."""
    (tmp_path / "text").mkdir()
    flags = (*tiny_llama_run(tmp_path), *documents(tmp_path / "text", 12, "abc " * 40), "--dataloader.no-infinite", "--training.steps", 50)
    log = train(*flags, "--checkpoint.enable", "--checkpoint.interval", 1, "--checkpoint.on-save-error", "warn", "--checkpoint.async-mode", "async",
                status=FAILED, limits=SMALL_FILES)
    trained, ended = log.split("Ran out of data; last step was canceled.", 1)
    assert "Training goes on without this checkpoint" in trained
    assert "The run fails without its last checkpoint" in ended and "Training completed" not in ended and "OSError: " in ended


def test_a_pinned_step_is_not_taken_for_the_last_checkpoint(train, tmp_path):
    flags = (*tiny_llama_run(tmp_path), "--checkpoint.enable")
    train(*flags, "--checkpoint.create-seed-checkpoint")
    milepost("pin", tmp_path / "outputs/checkpoint/step-0")
    log = train(*flags, "--checkpoint.create-seed-checkpoint", status=FAILED)
    assert re.search(r"^ValueError: \S*checkpoint/step-0: this step is pinned and stays as it is", log, re.MULTILINE)
    assert "Created seed checkpoint" not in log


# --- sizes without training


@pytest.mark.parametrize("module, config, parameters", [
    ("deepseek_v3", "deepseek_v3_16b", 15_706_484_224), ("deepseek_v3", "deepseek_v3_236b", 235_741_434_880),
    ("deepseek_v3", "deepseek_v3_671b", 671_026_404_352), ("llama3", "llama3_8b", 8_030_261_248), ("llama3", "llama3_70b", 70_553_706_496)])
def test_steps_0_tells_sizes_and_takes_none(train, tmp_path, module, config, parameters):
    whole = ("--parallelism.expert-parallel-degree", 1, "--parallelism.tensor-parallel-degree", 1)
    log = train("--module", module, "--config", config, "--training.steps", 0, *whole, limits={resource.RLIMIT_DATA: 1 << 30})
    assert f"size: {parameters:,} total parameters" in log
    assert re.search(r"FLOPs per token: [\d,]+ \([\d,]+ with causal attention\)", log)
    gib = 4 * parameters / 2**30
    found = re.search(r"parameters ([\d.]+) \+ gradients ([\d.]+) \+ moments ([\d.]+) \+ activations ([\d.]+) = ([\d.]+) GiB", log)
    assert float(found[1]) == pytest.approx(gib, rel=1e-3) and float(found[3]) == pytest.approx(2 * gib, rel=1e-3)
    assert float(re.search(r"full checkpoint: ([\d.]+) GiB", log)[1]) == pytest.approx(3 * gib, rel=1e-3)
    assert "Nothing was trained" in log and not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("seq_len, flops", [(2048, 542_934_528)])
def test_flops_per_token_are_torchtitans(train, seq_len, flops):
    assert f"FLOPs per token: {flops:,} " in train(*DEEPSEEK, "--training.steps", 0, "--training.seq-len", seq_len)


@pytest.mark.parametrize("degrees", [(), ("--parallelism.data-parallel-replicate-degree", 2)])
def test_a_fake_backend_runs_a_step_of_one_of_its_ranks(train, tmp_path, degrees):
    log = train(*DEEPSEEK, *SMALL, "--comm.mode", "fake_backend", "--training.steps", 1, "--checkpoint.enable", *degrees, env={"NGPU": "8"})
    assert "One process stands for 8 ranks" in log and "global batch size 8" in log and len(steps(log)) == 1
    assert ("Applied HSDP" if degrees else "Applied FSDP") in log and not (tmp_path / "outputs/checkpoint").exists()


def test_a_plan_for_many_ranks_says_what_one_of_them_holds(train):
    degrees = ("--parallelism.tensor-parallel-degree", 2, "--parallelism.expert-parallel-degree", 4, "--parallelism.data-parallel-replicate-degree", 2)
    log = train("--module", "deepseek_v3", "--config", "deepseek_v3_671b", *degrees, "--comm.mode", "fake_backend", "--training.steps", 0,
                limits={resource.RLIMIT_DATA: 1 << 30}, env={"NGPU": "2048"})
    assert "Device mesh: pp=1, dp_replicate=2, dp_shard=512, cp=1, tp=2, ep=4" in log and "tokens of a step: " in log
    assert re.search(r"lm_head.weight \[129280, 7168\]: StridedShard\(0, 2\) over fsdp, Shard\(0\) over tp, here \[127, 7168\]", log)
    assert re.search(r"layers.\*.moe.routed_experts.inner_experts.w1_EFD \[256, 2048, 7168\]: Shard\(1\) over efsdp, Shard\(0\) over ep, here \[64, 8, 7168\]", log)
    held = float(re.search(r"Memory of rank 0 of 2048: parameters ([\d.]+) ", log)[1])
    assert held == pytest.approx(4 * 671_026_404_352 / 1024 / 2**30, rel=0.05)
    assert "Files of a checkpoint: 2048 and .metadata, one a rank, 3.66" in log and "Nothing was trained" in log


# --- refusals


@pytest.mark.parametrize("flags, text", [
    (["--training.seq-len", "16385"], "ValueError: Training sequence length 16385 exceeds attention RoPE maximum"),
    (["--training.local-batch-size", "2", "--training.global-batch-size", "3"], "ValueError: global batch size must be multiple of local batch size"),
    (["--training.local-batch-size", "0"], "ValueError: training.local_batch_size must be at least 1"),
    (["--training.seq-len", "63"], "sequence length must be divisible by num_chunks (63 % 8 != 0)"),
    (["--parallelism.tensor-parallel-degree", "2"], "divides it in no other way; asked for: parallelism.tensor_parallel_degree 2"),
    (["--parallelism.expert-parallel-degree", "2"], "asked for: parallelism.expert_parallel_degree 2"),
    (["--metrics.enable-wandb"], "cannot send to Weights & Biases"),
    (["--device", "toaster"], "device 'toaster' is not the name of a device"),
    (["--device", "cuda:63"], "ValueError: device cuda:63: this"),
    (["--hf-assets-path", "nowhere"], "nowhere"),
    (["--dataloader.dataset", "nothing"], "is not supported"),
    (["--optimizer.param-groups.0.pattern", "nothing_has_this"], "matched no parameters"),
    (["--optimizer.param-groups.0.optimizer-name", "Sponge"], "Sponge"),
    (["--compile.enable", "activation-checkpoint:memory-budget"], "memory budget"),
])
def test_refuses_before_the_first_step(train, flags, text):
    log = train(*DEEPSEEK, *SMALL, "--training.steps", 2, *flags, status=FAILED)
    assert text in log.rstrip("\n").split("\n")[-1] and "Training starts" not in log


@pytest.mark.parametrize("module, config, need", [
    ("deepseek_v3", "deepseek_v3_debugmodel_mxfp8", "mxfp8"), ("deepseek_v3", "deepseek_v3_671b_float8", "float8"),
    ("deepseek_v3", "deepseek_v3_debugmodel_hybridep", "HybridEP"), ("llama3", "llama3_debugmodel_nvfp4", "nvfp4")])
def test_refuses_entries_that_need_hardware_and_names_it(train, module, config, need):
    log = train("--module", module, "--config", config, "--training.steps", 0, status=FAILED)
    assert "cannot be built by this version of Milepost. It needs:" in log and need in log


@pytest.mark.parametrize("env, text", [
    ({"WORLD_SIZE": "2", "RANK": "2"}, "rank 2 is not one of the 2 ranks of the job"), ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be an integer"),
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be at least 1"), ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR")])
def test_refuses_a_place_in_the_job_that_cannot_be(train, env, text):
    assert text in train(*DEEPSEEK, *SMALL, "--training.steps", 1, status=FAILED, env=env).rstrip("\n").split("\n")[-1]


def test_a_dump_folder_that_cannot_be_written_is_refused_at_once(train, tmp_path):
    (tmp_path / "file").write_text("a file")
    log = train(*DEEPSEEK, *SMALL, "--training.steps", 1, "--dump-folder", "file/below", status=FAILED)
    assert "file/below: cannot make the dump folder" in log.rstrip("\n").split("\n")[-1] and "Building" not in log


def test_a_checkpoint_folder_that_cannot_be_written_is_refused_at_once(train, tmp_path):
    (tmp_path / "checkpoint").write_text("a file")
    log = train(*LLAMA, *SMALL, "--training.steps", 1, "--dump-folder", tmp_path, "--checkpoint.enable", status=FAILED)
    assert "cannot make the checkpoint folder" in log.rstrip("\n").split("\n")[-1] and "Building" not in log


def test_a_batch_that_memory_does_not_hold_ends_with_one_line(train):
    log = train(*LLAMA, *SMALL, "--training.local-batch-size", 1024, "--training.seq-len", 1024, "--training.steps", 1, status=FAILED, limits={resource.RLIMIT_DATA: 3 << 30})
    assert log.rstrip("\n").split("\n")[-1].startswith("MemoryError: out of memory")


def test_log_lines_reach_no_file_when_the_standard_streams_are_closed(tmp_path):
    def close():
        for descriptor in range(3):
            os.close(descriptor)
    flags = (*LLAMA, *SMALL, "--training.steps", 2, "--dump-folder", tmp_path)
    assert subprocess.run([PROGRAM, *map(str, flags)], env=environment(**ONE_THREAD), preexec_fn=close, timeout=120).returncode == DONE
    assert [record["step"] for record in metrics(tmp_path)] == [1, 2]


@pytest.mark.parametrize("flags", [(), ("--checkpoint.enable",)])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_parameter(train, tmp_path, flags):
    rate = ("--optimizer.param-groups.0.optimizer-kwargs.lr", "1e38", "--lr-scheduler.warmup-steps", 0)
    log = train(*LLAMA, *SMALL, "--training.steps", 20, "--metrics.log-freq", 100, *rate, *flags, status=FAILED)
    last = log.rstrip("\n").split("\n")[-1]
    found = re.search(r"RuntimeError: (Loss|Gradient norm) is not finite \((?:global_avg_loss|grad_norm)=-?(?:nan|inf)\) at step (\d+)\. Stopping training\. "
                      r"First that is not finite: the (?:value|gradient) of [\w.]+", last)
    assert found and 1 < int(found[2]) < 20
    assert not list(tmp_path.glob("outputs/checkpoint/step-*"))


# --- signals


def stopped_after(train_flags, tmp_path, number, at_step, again=None):
    """The exit status and log of a run that gets a signal when it has logged `at_step`, and perhaps another a while later."""
    process = subprocess.Popen([PROGRAM, *map(str, train_flags)], cwd=tmp_path, env=environment(**ONE_THREAD), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if f"step: {at_step:2}  " in line:
            process.send_signal(number)
            break
    if again is not None:
        time.sleep(1.2)
        process.send_signal(again)
    lines += process.stderr.readlines()
    return process.wait(timeout=60), "".join(lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_a_run_with_a_checkpoint_from_which_it_goes_on(train, tmp_path, number):
    flags = (*LLAMA, *SMALL, "--training.steps", 100000, "--checkpoint.enable", "--checkpoint.interval", 100000)
    status, log = stopped_after(flags, tmp_path, number, 3)
    assert status == 128 + number, log
    step = int(re.search(rf"{number.name}: stopped after step (\d+), which is saved", log)[1])
    assert step >= 3 and steps(log)[-1][0] == step and "Training completed" not in log
    assert (tmp_path / f"outputs/checkpoint/step-{step}/.metadata").exists()
    resumed = train(*LLAMA, *SMALL, "--training.steps", step + 2, "--lr-scheduler.total-steps", 100000, "--checkpoint.enable")
    assert f"Training starts at step {step + 1}" in resumed and [s for s, _, _ in steps(resumed)] == [step + 1, step + 2]


def test_without_checkpoints_a_signal_ends_a_run_as_well(tmp_path):
    status, log = stopped_after((*LLAMA, *SMALL, "--training.steps", 100000), tmp_path, signal.SIGTERM, 2)
    assert status == 128 + signal.SIGTERM and "not saved: checkpoints are off" in log
    assert not (tmp_path / "outputs/checkpoint").exists()


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    slow = (*DEEPSEEK, "--training.local-batch-size", 16, "--training.seq-len", 2048, "--training.steps", 100, "--metrics.disable-color-printing")
    process = subprocess.Popen([PROGRAM, *map(str, slow)], cwd=tmp_path, env=environment(**ONE_THREAD), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "Training starts at step 1" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert "asked to stop" in process.stderr.readline()
    time.sleep(1.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == -signal.SIGINT
