"""Models under both kinds of names: what the tool makes of a fixture is, to the bit, what the reference made of it.

The results are read by safetensors and by torch.distributed.checkpoint; what must be in them was written by torchtitan 0.3.0.
"""
import json

import pytest
import torch
import torch_check
from models import (FIXTURES, FIXTURES_WITH_FILES, GROUPS, SOFTMAX, TITAN_RUNS, config_of, folder_with_index, load_dcp, load_folder,
                    records, weight_map)
from safetensors.torch import load_file
from tool import BAD_INPUT, milepost, tree
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

# A training run, and what torchtitan exported at the end of a run that was the same up to there.
EXPORTED_RUNS = {"one_rank": TITAN_RUNS / "hf_last_one_rank", "fsdp2": TITAN_RUNS / "hf_last_fsdp2_indexed"}
NOT_OF_THE_MODEL = ("optimizer.", "lr_scheduler.", "dataloader.", "train_state.")


def export(source, target, *options):
    milepost("export", source, target, *options)
    milepost("verify", target)
    return target


def export_run(run, target, *options):
    return export(TITAN_RUNS / run / "step-10", target, "--config", TITAN_RUNS / "config.json", *options)


@pytest.mark.parametrize("fixture", FIXTURES_WITH_FILES, ids=str)
def test_import_gives_the_references_tensors(fixture, tmp_path):
    milepost("import", fixture.hf, tmp_path / "dcp")
    milepost("verify", tmp_path / "dcp")
    torch_check.check_dcp(tmp_path / "dcp", fixture.native_records()).assert_passed()


@pytest.mark.parametrize("fixture", FIXTURES_WITH_FILES, ids=str)
def test_import_and_export_give_the_start(fixture, tmp_path):
    milepost("import", fixture.hf, tmp_path / "dcp")
    hf = export(tmp_path / "dcp", tmp_path / "hf", "--like", fixture.hf)
    torch_check.check_safetensors(hf, records(load_folder(fixture.hf))).assert_passed()
    assert config_of(hf) == config_of(fixture.hf)


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_export_gives_the_references_tensors_and_import_the_start(fixture, tmp_path):
    dcp = fixture.native_dcp(tmp_path / "dcp")
    torch_check.check_dcp(dcp, fixture.native_records()).assert_passed()
    hf = export(dcp, tmp_path / "hf", "--config", fixture.config)
    torch_check.check_safetensors(hf, fixture.hf_records()).assert_passed()
    milepost("import", hf, tmp_path / "back")
    torch_check.check_dcp(tmp_path / "back", fixture.native_records()).assert_passed()


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_export_needs_no_dcp_between(fixture, tmp_path):
    hf = export(fixture.weights, tmp_path / "hf", "--config", fixture.config)
    torch_check.check_safetensors(hf, fixture.hf_records()).assert_passed()


@pytest.mark.parametrize("run", EXPORTED_RUNS)
def test_export_of_a_training_checkpoint(run, tmp_path):
    want = load_folder(EXPORTED_RUNS[run])
    torch_check.check_safetensors(export_run(run, tmp_path / "hf"), records(want)).assert_passed()


@pytest.mark.parametrize("run", EXPORTED_RUNS)
def test_the_report_names_what_is_not_of_the_model(run, tmp_path):
    step, report = TITAN_RUNS / run / "step-10", tmp_path / "report.json"
    text = milepost("export", step, tmp_path / "hf", "--config", TITAN_RUNS / "config.json", "--report", report).out
    sources = {source["name"]: source for source in json.loads(report.read_text())["sources"]}
    listing = milepost("inspect", step, "--json").json
    assert sources.keys() == {entry["name"] for entry in listing["tensors"] + listing["objects"]}
    left_out = {name for name, source in sources.items() if source["fate"] == "left out"}
    assert left_out == {name for name in sources if name.startswith(NOT_OF_THE_MODEL)} and left_out != sources.keys()
    assert all(sources[name]["why"] for name in left_out)
    assert f"left out {len(left_out)} entries of the source" in text


def test_export_takes_the_originals_files(tmp_path):
    reference = EXPORTED_RUNS["fsdp2"]
    like = folder_with_index(tmp_path / "like", reference / "input_index.json")
    hf = export_run("fsdp2", tmp_path / "hf", "--like", like)
    for file in reference.glob("*.safetensors"):
        torch_check.check_safetensors(hf / file.name, records(load_file(file))).assert_passed()
    assert weight_map(hf) == weight_map(reference)
    torch_check.check_safetensors(hf, records(load_folder(reference))).assert_passed()


def test_training_checkpoints_of_any_layout_import(tmp_path):
    for run, ranks in (("one_rank", 1), ("fsdp2", 2)):
        step = TITAN_RUNS / run / "step-10"
        assert len(list(step.glob("*.distcp"))) == ranks
        milepost("import", step, tmp_path / run, "--config", TITAN_RUNS / "config.json")
        back = export(tmp_path / run, tmp_path / f"{run}_hf", "--config", TITAN_RUNS / "config.json")
        torch_check.check_safetensors(back, records(load_folder(EXPORTED_RUNS[run]))).assert_passed()
        assert tree(back) == tree(export_run(run, tmp_path / f"{run}_direct"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("fixture", FIXTURES_WITH_FILES, ids=str)
def test_a_cast_takes_every_tensor(fixture, dtype, tmp_path):
    option = ("--dtype", str(dtype).removeprefix("torch."))
    hf = export(fixture.weights, tmp_path / "hf", "--like", fixture.hf, *option)
    torch_check.check_safetensors(hf, records({name: t.to(dtype) for name, t in load_folder(fixture.hf).items()})).assert_passed()
    assert config_of(hf)["torch_dtype"] == option[1]
    milepost("import", fixture.hf, tmp_path / "dcp", *option)
    torch_check.check_dcp(tmp_path / "dcp", records({name: t.to(dtype) for name, t in load_file(fixture.weights).items()})).assert_passed()


def test_files_of_torch_save_are_sources(tmp_path):
    """Of a model's weights alone, and of a whole training state, nested as torch's own conversion nests it."""
    torch.save(load_file(GROUPS.weights), tmp_path / "weights.pth")
    milepost("import", tmp_path / "weights.pth", tmp_path / "dcp", "--config", GROUPS.config)
    torch_check.check_dcp(tmp_path / "dcp", GROUPS.native_records()).assert_passed()
    dcp_to_torch_save(TITAN_RUNS / "one_rank/step-10", tmp_path / "state.pth")
    hf = export(tmp_path / "state.pth", tmp_path / "hf", "--config", TITAN_RUNS / "config.json")
    torch_check.check_safetensors(hf, records(load_folder(EXPORTED_RUNS["one_rank"]))).assert_passed()


def test_tied_embeddings_are_written_once_and_read_twice(tmp_path):
    milepost("synth", "llama3", tmp_path / "start", "--flavor", "1B", "--bytes", "20MB")
    start = load_folder(tmp_path / "start")
    assert config_of(tmp_path / "start")["tie_word_embeddings"] and "lm_head.weight" not in start
    milepost("import", tmp_path / "start", tmp_path / "dcp")
    native = load_dcp(tmp_path / "dcp")
    assert torch.equal(native["lm_head.weight"], native["tok_embeddings.weight"])
    hf = export(tmp_path / "dcp", tmp_path / "hf", "--like", tmp_path / "start")
    torch_check.check_safetensors(hf, records(start)).assert_passed()


def test_an_unknown_model_needs_a_config(tmp_path):
    refusal = milepost("export", TITAN_RUNS / "one_rank/step-10", tmp_path / "hf", status=(2, BAD_INPUT))
    assert "--config" in refusal.err and not (tmp_path / "hf").exists()


def test_softmax_routing_is_told(tmp_path):
    result = milepost("export", SOFTMAX.weights, tmp_path / "hf", "--config", SOFTMAX.config)
    assert config_of(tmp_path / "hf")["scoring_func"] == "softmax"
    assert "softmax" in result.out and "transformers" in result.out
