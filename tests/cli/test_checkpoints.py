"""milepost-train's checkpoints: saving, resuming, starting from other weights, and the tool on what it wrote."""
import json
import shutil

import pytest
from tool import DATA, WANTING, milepost
from cli.training import FAILED, TITAN, TITAN_RUN, check_titan_curve, records, run, tiny_llama_run, train


@pytest.fixture
def tiny_llama(tmp_path):
    return tiny_llama_run(tmp_path)


def steps_in(folder):
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoint").glob("step-*"))


def titan_step_5(folder):
    shutil.copytree(TITAN / "one_rank/step-5", folder / "checkpoint/step-5")


def test_goes_on_from_torchtitans_checkpoint(tmp_path):
    titan_step_5(tmp_path)
    log = train(tmp_path)
    assert f"Loading the checkpoint from {tmp_path}/checkpoint/step-5." in log
    check_titan_curve(tmp_path, "one_rank")
    assert steps_in(tmp_path) == [5, 10]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ["deepseek_v3", "llama3"])
def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path, tiny_llama, model, dtype):
    source = TITAN_RUN if model == "deepseek_v3" else tiny_llama
    flags = ("--training.mixed-precision-param", dtype, "--checkpoint.interval", 3, "--training.steps", 9)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, *flags, source=source)
    train(parts, *flags, source=source)
    for step in (6, 9):
        shutil.rmtree(parts / f"checkpoint/step-{step}")
    (parts / "metrics.jsonl").unlink()
    log = train(parts, *flags, source=source)
    assert "Loading the checkpoint from" in log
    a, b = records(whole), records(parts)
    assert sorted(b) == [4, 5, 6, 7, 8, 9]
    for step, record in b.items():
        assert all(record[key] == a[step][key] for key in ("loss", "grad_norm", "lr/AdamW", "ntokens_seen"))
    for name in (".metadata", "__0_0.distcp"):
        assert (whole / "checkpoint/step-9" / name).read_bytes() == (parts / "checkpoint/step-9" / name).read_bytes()


def test_the_tool_reads_them(tmp_path):
    titan_step_5(tmp_path)
    train(tmp_path)
    ours, theirs = tmp_path / "checkpoint/step-10", TITAN / "one_rank/step-10"
    milepost("verify", ours)
    mine, other = milepost("inspect", ours, "--json").json, milepost("inspect", theirs, "--json").json
    assert [t for t in mine["tensors"]] == other["tensors"]  # in torch's order
    assert {o["name"] for o in mine["objects"]} - {o["name"] for o in other["objects"]} == {
        "milepost.rng.rank_0", "milepost.data_ledger", "milepost.run"}
    milepost("diff", ours, ours)
    milepost("diff", ours, theirs, status=WANTING)
    milepost("export", ours, tmp_path / "hf", "--config", TITAN / "config.json")
    assert (tmp_path / "hf/model.safetensors").exists() or list((tmp_path / "hf").glob("*.safetensors"))


def test_saves_where_and_when_it_is_asked_to(tmp_path):
    log = train(tmp_path, "--checkpoint.interval", 2, "--checkpoint.keep-latest-k", 2, "--training.steps", 7,
                "--checkpoint.enable-first-step-checkpoint")
    assert steps_in(tmp_path) == [4, 6, 7]  # none is removed after the last one
    for step in (1, 2):
        assert f"Checkpointer is deleting {tmp_path}/checkpoint/step-{step}." in log
    assert "Saving a full checkpoint at last step, step 7." in log
    assert sorted(p.name for p in (tmp_path / "checkpoint").iterdir()) == ["step-4", "step-6", "step-7"]
    assert sorted(p.name for p in (tmp_path / "checkpoint/step-4").iterdir()) == [".metadata", "__0_0.distcp"]


def test_neither_saves_nor_loads_when_off_or_asked_to_load_only(tmp_path):
    train(tmp_path, "--training.steps", 5)
    log = run(*TITAN_RUN, "--dump-folder", tmp_path, "--training.steps", 3)[1]
    assert "Loading" not in log and "Saving" not in log
    log = train(tmp_path, "--training.steps", 8, "--checkpoint.load-only")
    assert "Loading the checkpoint from" in log and "Saving" not in log
    assert steps_in(tmp_path) == [5]


def test_a_step_can_be_named(tmp_path):
    train(tmp_path, "--checkpoint.interval", 2, "--training.steps", 6)
    log = train(tmp_path, "--checkpoint.load-step", 2, "--training.steps", 4)
    assert f"Loading the checkpoint from {tmp_path}/checkpoint/step-2." in log
    log = train(tmp_path, "--checkpoint.load-step", 5, status=FAILED)
    assert f"--checkpoint.load_step=5 not found at {tmp_path}/checkpoint/step-5; there are step-6, step-4, step-2" in log
    log = train(tmp_path / "none", "--checkpoint.load-step", 5, status=FAILED)
    assert "FileNotFoundError" in log and "--checkpoint.load_step=5 not found" in log


def test_the_last_save_may_hold_the_model_only(tmp_path):
    flags = ("--checkpoint.interval", 2, "--checkpoint.last-save-model-only", "--checkpoint.export-dtype", "bfloat16")
    log = train(tmp_path, *flags, "--training.steps", 5)
    assert "Saving a model only checkpoint in torch.bfloat16 at last step, step 5." in log
    tensors = milepost("inspect", tmp_path / "checkpoint/step-5", "--json").json["tensors"]
    assert {t["dtype"] for t in tensors} == {"bfloat16"} and not any(t["name"].startswith("optimizer.") for t in tensors)
    log = train(tmp_path, *flags, "--training.steps", 8)
    assert "step-5 is not resumed from: it holds no optimizer" in log and "checkpoint/step-4." in log
    assert f"to start a new run from its weights, give --checkpoint.initial-load-path {tmp_path}/checkpoint/step-5" in log
    log = train(tmp_path, *flags, "--checkpoint.load-step", 5, status=FAILED)
    assert "--checkpoint.load_step=5 cannot be resumed from: it holds no optimizer, no lr_scheduler, no dataloader and no train_state" in log
    # Alone it is no start, and a run does not begin anew beside it unnoticed.
    for step in (2, 4, 6, 8):
        shutil.rmtree(tmp_path / f"checkpoint/step-{step}", ignore_errors=True)
    assert "step-5: it holds no optimizer" in train(tmp_path, *flags, "--training.steps", 8, status=FAILED)
    log = train(tmp_path / "new", "--checkpoint.initial-load-path", tmp_path / "checkpoint/step-5", "--training.steps", 1)
    assert "Tensors are cast while loading" in log


def test_the_last_save_may_be_hugging_faces(tmp_path):
    flags = ("--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", "--training.steps", 3)
    train(tmp_path, *flags)
    step = tmp_path / "checkpoint/step-3"
    assert (step / "model.safetensors.index.json").exists() and (step / "config.json").exists()
    milepost("verify", step)
    log = train(tmp_path, *flags, status=FAILED)
    assert "step-3: it holds only the model, as safetensors" in log
    train(tmp_path / "new", "--checkpoint.initial-load-path", step, "--checkpoint.initial-load-in-hf", "--training.steps", 1)
    log = train(tmp_path / "newer", "--checkpoint.initial-load-path", step, "--training.steps", 1, status=FAILED)
    assert "this is a checkpoint of Hugging Face" in log


def first_loss(tmp_path, name, *flags, source=TITAN_RUN):
    train(tmp_path / name, *flags, "--training.steps", 1, source=source)
    return records(tmp_path / name)[1]["loss"]


def test_starts_from_weights_of_either_form(tmp_path):
    """The same weights as DCP and as safetensors, in one and in two files: the same first loss, another than without them."""
    dcp = first_loss(tmp_path, "dcp", "--checkpoint.initial-load-path", TITAN / "one_rank/step-10")
    hf = first_loss(tmp_path, "hf", "--checkpoint.initial-load-path", TITAN / "hf_last_one_rank", "--checkpoint.initial-load-in-hf")
    assert dcp == hf != first_loss(tmp_path, "none")
    assert len(list((TITAN / "hf_last_fsdp2_indexed").glob("*.safetensors"))) == 2
    two_files = first_loss(tmp_path, "two", "--checkpoint.initial-load-path", TITAN / "hf_last_fsdp2_indexed", "--checkpoint.initial-load-in-hf")
    assert two_files == first_loss(tmp_path, "fsdp2", "--checkpoint.initial-load-path", TITAN / "fsdp2/step-10") != dcp
    milepost("export", TITAN / "one_rank/step-10", tmp_path / "fp8", "--config", TITAN / "config.json", "--fp8")
    flags = ("--checkpoint.initial-load-path", tmp_path / "fp8", "--checkpoint.initial-load-in-hf")
    fp8 = first_loss(tmp_path, "fp8_run", *flags, "--checkpoint.initial-load-in-hf-quantized")
    assert fp8 == pytest.approx(dcp, abs=0.05) and fp8 != dcp
    assert "block-quantised" in train(tmp_path / "refused", *flags, status=FAILED)


def test_what_an_index_of_safetensors_names_is_what_counts(tmp_path):
    """A file that is missing, one outside the folder, and one that lies beside those it names."""
    flags = ("--checkpoint.initial-load-in-hf", "--checkpoint.initial-load-path")
    shutil.copytree(TITAN / "hf_last_fsdp2_indexed", tmp_path / "missing")
    (tmp_path / "missing/model-00002-of-00002.safetensors").unlink()
    log = train(tmp_path / "run", *flags, tmp_path / "missing", status=FAILED)
    assert "model-00002-of-00002.safetensors: the index names this file, but it is missing; it holds model.layers.1." in log
    log = train(tmp_path / "run", *flags, DATA / "bad/hf-index-escape/model", status=FAILED)
    assert "entry 'a': its file '../outside.safetensors' is not a plain name" in log
    shutil.copytree(TITAN / "hf_last_one_rank", tmp_path / "stray")
    shutil.copy(DATA / "bad/hf-index-and-single/model.safetensors", tmp_path / "stray")
    log = train(tmp_path / "stray_run", *flags, tmp_path / "stray", "--training.steps", 1)
    assert f"WARNING - {tmp_path}/stray: model.safetensors: the index does not name this file; it is left out" in log
    assert records(tmp_path / "stray_run")[1]["loss"] == first_loss(tmp_path, "hf", *flags, TITAN / "hf_last_one_rank")


def test_weights_among_the_assets_are_found_from_anywhere(tmp_path):
    """hf_assets_path is looked up below MILEPOST_ROOT, for weights as for the tokenizer."""
    assets = tmp_path / "root/assets/tiny"
    shutil.copytree(TITAN / "tokenizer", assets)
    shutil.copytree(TITAN / "hf_last_one_rank", assets, dirs_exist_ok=True)
    flags = (*TITAN_RUN, "--hf-assets-path", "assets/tiny", "--dump-folder", tmp_path, "--checkpoint.enable", "--checkpoint.initial-load-in-hf",
             "--training.steps", 1)
    log = run(*flags, cwd=tmp_path, MILEPOST_ROOT=str(tmp_path / "root"))[1]
    assert f"Loading HF safetensors from --model.hf_assets_path: {assets}" in log


def test_fused_projections_come_from_either_form(tmp_path, tiny_llama):
    train(tmp_path / "dcp", "--training.steps", 3, source=tiny_llama)
    train(tmp_path / "hf", "--training.steps", 3, "--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf", source=tiny_llama)
    dcp = first_loss(tmp_path, "from_dcp", "--checkpoint.initial-load-path", tmp_path / "dcp/checkpoint/step-3", source=tiny_llama)
    hf = first_loss(tmp_path, "from_hf", "--checkpoint.initial-load-path", tmp_path / "hf/checkpoint/step-3",
                    "--checkpoint.initial-load-in-hf", source=tiny_llama)
    assert dcp == hf != first_loss(tmp_path, "none", source=tiny_llama)


def test_a_seed_checkpoint_is_where_runs_start(tmp_path):
    log = train(tmp_path, "--checkpoint.create-seed-checkpoint")
    assert "Created seed checkpoint" in log and steps_in(tmp_path) == [0]
    log = train(tmp_path, "--training.steps", 2, "--debug.seed", 5)
    assert f"Loading the checkpoint from {tmp_path}/checkpoint/step-0." in log
    want = first_loss(tmp_path, "plain")  # of the seed's own seed
    assert records(tmp_path)[1]["loss"] == want == first_loss(
        tmp_path, "named", "--debug.seed", 6, "--checkpoint.initial-load-path", tmp_path / "checkpoint/step-0")


def test_an_initial_path_gives_all_when_asked_to_and_the_own_folder_wins(tmp_path):
    flags = ("--checkpoint.initial-load-path", TITAN / "one_rank/step-5", "--training.steps", 6)
    train(tmp_path / "model", *flags)
    assert sorted(records(tmp_path / "model")) == [1, 2, 3, 4, 5, 6]
    train(tmp_path / "all", *flags, "--checkpoint.no-initial-load-model-only")
    assert sorted(records(tmp_path / "all")) == [6]
    log = train(tmp_path / "all", *flags[:2], "--training.steps", 7)
    assert f"{TITAN}/one_rank/step-5 is ignored" in log and "all/checkpoint/step-6." in log


def test_parts_can_be_left_out(tmp_path):
    titan_step_5(tmp_path)
    train(tmp_path, "--checkpoint.exclude-from-loading", "train_state,dataloader", "--training.steps", 2)
    assert sorted(records(tmp_path)) == [1, 2]
    log = train(tmp_path, "--checkpoint.exclude-from-loading", "data_loader", status=FAILED)
    assert "ValueError: data_loader not found in state_dict." in log


def test_states_of_more_ranks_load_without_their_loader(tmp_path):
    flags = ("--checkpoint.initial-load-path", TITAN / "fsdp2/step-10", "--checkpoint.no-initial-load-model-only", "--training.steps", 11)
    log = train(tmp_path, *flags, status=FAILED)
    assert "is of data-parallel degree 2, this run has 1, and" in log and "--checkpoint.exclude-from-loading dataloader" in log
    train(tmp_path, *flags, "--checkpoint.exclude-from-loading", "dataloader")
    assert sorted(records(tmp_path)) == [11]


def test_a_checkpoint_of_another_model_is_one_report(tmp_path, tiny_llama):
    titan_step_5(tmp_path)
    log = train(tmp_path, source=tiny_llama, status=FAILED)
    assert "the checkpoint does not fit this job, and nothing was loaded:" in log
    assert "missing in the checkpoint" in log and "layers.0.attention.qkv_linear.wk.weight" in log
    assert "tok_embeddings.weight: saved [264, 16], wanted [264, 32]" in log
    assert "in the checkpoint, but not in the model" in log


def test_names_that_only_look_like_steps_and_debris_are_passed_over(tmp_path):
    titan_step_5(tmp_path)
    shutil.copytree(TITAN / "one_rank/step-10", tmp_path / "checkpoint/old-step-77x")
    (tmp_path / "checkpoint/step-90").mkdir()
    (tmp_path / "checkpoint/.milepost-staging-00112233/data").mkdir(parents=True)
    shutil.copytree(TITAN / "one_rank/step-10", tmp_path / "checkpoint/step-9")
    (tmp_path / "checkpoint/step-9/__0_0.distcp").write_bytes(b"short")
    log = train(tmp_path, "--training.steps", 6)
    assert "checkpoint/step-5." in log and "step-9 is not resumed from: it is not complete" in log
    assert not (tmp_path / "checkpoint/.milepost-staging-00112233").exists()
    # Without the good one there is nothing to go on from, and the run does not begin anew over the damaged one.
    for step in (5, 6):
        shutil.rmtree(tmp_path / f"checkpoint/step-{step}")
    before = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    log = train(tmp_path, "--training.steps", 1, status=FAILED)
    assert "no checkpoint here can be resumed from:\n  step-9: it is not complete" in log and "restore the damaged files" in log
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == before


@pytest.mark.parametrize("flags, words", [
    (("--checkpoint.folder", "s3://bucket/run"), "remote"),
])
def test_what_is_not_there_yet_is_refused(tmp_path, flags, words):
    assert words in train(tmp_path, *flags, status=FAILED)


@pytest.mark.parametrize("mode", ["async", "async_with_pinned_mem"])
def test_asynchronous_saves_are_those_that_wait(tmp_path, mode):
    """The same files, and the log and the events of a save that runs beside the steps after it."""
    flags = ("--training.steps", 6, "--checkpoint.interval", 2, "--debug.seed", 5)
    train(tmp_path / "waits", *flags)
    log = train(tmp_path / "beside", *flags, "--checkpoint.async-mode", mode)
    assert log.count("Staging the checkpoint.") == log.count("Finished staging the checkpoint in") == 2  # the last save waits
    assert log.count("Finished saving the checkpoint of step") == 2 and steps_in(tmp_path / "beside") == [2, 4, 6]
    for step in (2, 4, 6):
        folders = [tmp_path / name / f"checkpoint/step-{step}" for name in ("waits", "beside")]
        differing = milepost("diff", *folders, status=WANTING).out
        assert differing.startswith("milepost.run ") and "1 entry differs" in differing  # which holds the configuration
    events = [json.loads(line) for line in (tmp_path / "beside/checkpoint-events.jsonl").open()]
    assert [e["step"] for e in events if e["event"] == "staged"] == [2, 4] and [e["step"] for e in events if e["event"] == "committed"] == [2, 4, 6]
    # The pause begins with the wait for the save before it, the seconds after that.
    assert all(e["pause_seconds"] > 0 and e["seconds"] > 0 for e in events if e["event"] == "committed")
    assert "Loading the checkpoint from" in train(tmp_path / "beside", "--training.steps", 8, "--checkpoint.async-mode", mode)


def test_generates_from_either_form(tmp_path):
    flags = ("--generate", "The old mill", "--generation.max-new-tokens", 12)
    texts = {run(*TITAN_RUN, *flags, "--checkpoint.initial-load-path", path)[0]
             for path in (TITAN / "one_rank/step-10", TITAN / "hf_last_one_rank", TITAN / "hf_last_fsdp2_indexed")}
    drawn = {run(*TITAN_RUN, *flags, "--generation.temperature", "1.5", "--debug.seed", seed, "--checkpoint.initial-load-path",
                 TITAN / "one_rank/step-10")[0] for seed in (1, 1, 2)}
    assert len(drawn) == 2
    assert all(text.startswith("The old mill") and len(text) > len("The old mill\n") for text in texts | drawn)
    train(tmp_path, "--training.steps", 2)
    assert run(*TITAN_RUN, *flags, "--dump-folder", tmp_path)[0].startswith("The old mill")
    assert "there are no weights" in run(*TITAN_RUN, *flags, "--dump-folder", tmp_path / "none", status=FAILED)[1]


@pytest.mark.parametrize("temperature", ["1e-300", "1e-30", "1e30", "inf"])
def test_no_temperature_is_too_extreme(temperature):
    flags = ("--generate", "The old mill", "--generation.max-new-tokens", 3, "--checkpoint.initial-load-path", TITAN / "one_rank/step-10")
    drawn, likeliest = run(*TITAN_RUN, *flags, "--generation.temperature", temperature)[0], run(*TITAN_RUN, *flags)[0]
    assert drawn == likeliest or float(temperature) > 1


@pytest.mark.parametrize("flags, words", [
    (("--generation.max-new-tokens", 100000), "do not fit into the model's"), (("--generation.max-new-tokens", 0), "must be at least 1"),
    (("--generation.temperature", "-1"), "cannot be negative"), (("--generation.temperature", "nan"), "cannot be negative")])
def test_what_cannot_be_generated_is_refused(flags, words):
    log = run(*TITAN_RUN, "--generate", "The old mill", *flags, "--checkpoint.initial-load-path", TITAN / "one_rank/step-10", status=FAILED)[1]
    assert words in log.rstrip("\n").split("\n")[-1]
