"""Checkpoints of several processes: reads that are shared, saves in Hugging Face's form, and ranks that are killed within a save."""
import re
import shutil
import signal

import pytest
from cli.ranks import configuration, run_ranks, start
from cli.training import FAILED, TITAN, averages, records, weights
from tool import WANTING, milepost

HSDP = ("--parallelism.data-parallel-replicate-degree", 2, "--parallelism.data-parallel-shard-degree", 2)
STILL = ("--optimizer.param-groups.0.optimizer-kwargs.lr", 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Flags, and the folder of a run of one process with a full checkpoint of step 1."""
    folder = tmp_path_factory.mktemp("trained")
    source = configuration(folder, "llama3")
    run_ranks(folder, 1, "--checkpoint.enable", "--training.steps", 1, "--checkpoint.no-last-save-model-only", source=source)
    return source, folder


def go_on(trained, folder, world, *flags, **options):
    source, of_step_1 = trained
    shutil.copytree(of_step_1 / "checkpoint/step-1", folder / "checkpoint/step-1")
    return run_ranks(folder, world, "--checkpoint.enable", "--training.steps", 2, *STILL, *flags, source=source, **options)


def bytes_read(logs):
    """(read, had from other ranks) of each rank."""
    return [[int(n) for n in re.search(r"Read (\d+) bytes of the checkpoint, and had (\d+) from other ranks", log).groups()] for log in logs]


def all_log(world, share=0):
    return {"MILEPOST_SHARE_READS": share, "LOG_RANK": ",".join(map(str, range(world)))}


def test_ranks_read_each_byte_once(trained, tmp_path):
    read = {}
    for share in (0, 1):
        logs = go_on(trained, tmp_path / str(share), 4, *HSDP, "--checkpoint.no-last-save-model-only", "--debug.seed", share, env=all_log(4, share))
        read[share] = bytes_read(logs)
    assert all(received == 0 for _, received in read[0])
    once, all_read = sum(own for own, _ in read[1]), sum(own for own, _ in read[0])
    assert once < 0.52 * all_read
    assert max(own for own, _ in read[1]) < 1.2 * once / 4
    # Equal, the random numbers of ranks that the checkpoint had not included, but for the configuration.
    differing = milepost("diff", tmp_path / "0/checkpoint/step-2", tmp_path / "1/checkpoint/step-2", status=WANTING).out
    assert differing.startswith("milepost.run ") and "1 entry differs" in differing
    for rank in (1, 2, 3):
        assert f"The checkpoint holds no random numbers of rank {rank}" in logs[rank]


HF = ("--checkpoint.initial-load-in-hf",)
FORMS = {"one file": (TITAN / "hf_last_one_rank", HF), "two files": (TITAN / "hf_last_fsdp2_indexed", HF),
         "fp8": (None, (*HF, "--checkpoint.initial-load-in-hf-quantized"))}
FROZEN = ("--ema-weights.enable", "--ema-weights.start-step", 1000, "--checkpoint.interval", 1)  # the average stays as it was loaded


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Of each form of safetensors: flags that begin with it, its folder, and what one process that does so has loaded: weights, first loss."""
    folder = tmp_path_factory.mktemp("begun")
    milepost("export", TITAN / "one_rank/step-10", folder / "fp8", "--config", TITAN / "config.json", "--fp8")
    source = (*configuration(folder, "deepseek_v3"), "--checkpoint.enable", "--training.steps", 1, "--checkpoint.no-last-save-model-only", *FROZEN)
    found = {}
    for form, (path, flags) in FORMS.items():
        path, out = path or folder / "fp8", folder / form.replace(" ", "_")
        source_of_form = (*source, "--checkpoint.initial-load-path", path, *flags)
        run_ranks(out, 1, source=source_of_form)
        found[form] = source_of_form, path, averages(out / "checkpoint/step-1"), records(out)[1]["loss"]
    return found


def payload(folder):
    """Bytes of the tensors in a folder of safetensors."""
    return sum(path.stat().st_size - 8 - int.from_bytes(path.read_bytes()[:8], "little") for path in folder.glob("*.safetensors"))


def test_one_process_begins_with_the_weights_in_safetensors(begun):
    assert begun["one file"][2] == weights(TITAN / "one_rank/step-10")
    assert begun["two files"][2] == weights(TITAN / "fsdp2/step-10")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world, mesh", [(2, ()), (4, HSDP)], ids=["fsdp", "hsdp"])
def test_ranks_begin_with_the_weights_in_safetensors(begun, tmp_path, form, world, mesh):
    """The same weights and averages to the bit, and the first loss, each rank reading its own part only."""
    source, path, loaded, loss = begun[form]
    logs = run_ranks(tmp_path, world, *mesh, source=source, env=all_log(world, share=1))
    assert averages(tmp_path / "checkpoint/step-1") == loaded
    assert "The moving average of the weights begins anew with the weights that are loaded: only the model is loaded" in logs[0]
    assert records(tmp_path)[1]["loss"] == pytest.approx(loss, rel=1e-5, abs=0)
    read = [own for own, _ in bytes_read(logs)]
    assert sum(read) < 1.05 * payload(path)
    assert max(read) < 1.3 * sum(read) / world


def test_torchtitans_loader_does_not_go_on_with_more_ranks(tmp_path):
    shutil.copytree(TITAN / "one_rank/step-5", tmp_path / "checkpoint/step-5")
    for log in run_ranks(tmp_path, 2, "--checkpoint.enable", status=FAILED, env=all_log(2)):
        assert "is of data-parallel degree 1, this run has 2 (entry 'dataloader.dp_rank_1' is missing)" in log
        assert "--checkpoint.exclude-from-loading dataloader" in log and not records(tmp_path)


def test_the_last_save_in_hugging_faces_form_is_that_of_one_rank(trained, tmp_path):
    flags = ("--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--checkpoint.export-dtype", "bfloat16")
    files = {}
    for world, more in ((1, ()), (2, ()), (4, HSDP)):
        go_on(trained, tmp_path / str(world), world, *flags, *more)
        folder = tmp_path / str(world) / "checkpoint/step-2"
        files[world] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(files[1]) == ["config.json", "model.safetensors", "model.safetensors.index.json"]
    assert files[2] == files[1] and files[4] == files[1]


def strace(log, call, n):
    return ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={n}"]


@pytest.mark.parametrize("rank, call", [(1, "fsync"), (0, "fsync"), (0, "renameat2")])
def test_a_rank_killed_in_a_save_leaves_the_older_checkpoint(trained, tmp_path, rank, call):
    """Rank 1 when it has written its part; rank 0 before the metadata are safe, and before the folder gets its name."""
    source, of_step_1 = trained
    shutil.copytree(of_step_1 / "checkpoint/step-1", tmp_path / "checkpoint/step-1")
    flags = ("--checkpoint.enable", "--training.steps", 2, "--checkpoint.no-last-save-model-only")
    job = start(tmp_path, 2, *source, "--dump-folder", tmp_path, *flags, wrap={rank: strace(tmp_path / "strace.log", call, 1)})
    statuses = job.wait(60)
    assert statuses[rank] == -signal.SIGKILL and statuses[1 - rank] == FAILED, "\n".join(job.logs)
    assert re.search(rf"Rank {1 - rank} on \S+ failed at step 2 in checkpoint: .* over world \(2 ranks\) failed: ", job.logs[1 - rank])
    assert not (tmp_path / "checkpoint/step-2").exists()
    milepost("verify", tmp_path / "checkpoint/step-1")
    logs = run_ranks(tmp_path, 2, *flags, source=source)
    assert "step-1." in logs[0] and not list((tmp_path / "checkpoint").glob(".milepost*"))
    milepost("verify", tmp_path / "checkpoint/step-2")


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """Flags, the folder of a seed checkpoint that one process made, and the first loss of one process with the seed's values."""
    folder = tmp_path_factory.mktemp("seeded")
    source = configuration(folder, "deepseek_v3")
    log, = run_ranks(folder / "seed", 1, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", source=source)
    assert "Created seed checkpoint" in log and "Training starts" not in log
    run_ranks(folder / "alone", 1, "--training.steps", 1, source=source)
    return source, folder / "seed/checkpoint/step-0", records(folder / "alone")[1]["loss"]


@pytest.mark.parametrize("world, flags, is_own", [(2, (), True), (3, (), False), (4, HSDP, True)])
def test_jobs_of_other_sizes_start_from_a_seed_checkpoint(seeded, tmp_path, world, flags, is_own):
    """As the folder's own step 0, or by its path."""
    source, seed, loss = seeded
    if is_own:
        shutil.copytree(seed, tmp_path / "checkpoint/step-0")
    else:
        flags = (*flags, "--checkpoint.initial-load-path", seed)
    logs = run_ranks(tmp_path, world, "--checkpoint.enable", "--training.steps", 1, "--debug.seed", 77, *flags, source=source)
    assert f"Loading the checkpoint from {tmp_path / 'checkpoint/step-0' if is_own else seed}." in logs[0]
    assert records(tmp_path)[1]["loss"] == pytest.approx(loss, rel=1e-5, abs=0)


def test_a_seed_checkpoint_is_made_by_one_process(tmp_path):
    source = configuration(tmp_path, "llama3")
    for log in run_ranks(tmp_path, 2, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", source=source, status=FAILED):
        assert "AssertionError: Must create seed checkpoint using a single device, to disable sharding." in log
    log, = run_ranks(tmp_path, 1, "--checkpoint.no-enable", "--checkpoint.create-seed-checkpoint", source=source, status=FAILED)
    assert "AssertionError: Must enable checkpointing when creating a seed checkpoint." in log
    log, = run_ranks(tmp_path, 1, "--checkpoint.enable", "--checkpoint.load-only", "--checkpoint.create-seed-checkpoint", source=source, status=FAILED)
    assert "checkpoint.load_only forbids the save" in log
    log, = run_ranks(tmp_path, 1, "--checkpoint.enable", "--checkpoint.create-seed-checkpoint", "--parallelism.data-parallel-shard-degree", 2, source=source, status=FAILED)
    assert "data_parallel_shard_degree" in log or "WORLD_SIZE" in log.upper()
    assert not (tmp_path / "checkpoint/step-0").exists()
