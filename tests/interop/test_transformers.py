"""transformers loads a Hugging Face folder and computes with it what torchtitan does with the native weights."""
import pytest
import torch
from models import Fixture, config_of, load_folder
from tool import milepost
from transformers_logits import EXPECTED, NUMERICS, TOLERANCE, described_shapes, largest_difference, load_model


@pytest.mark.parametrize("fixture", EXPECTED)
def test_the_references_files_give_its_logits(fixture):
    assert largest_difference(load_model(NUMERICS / fixture / "hf"), fixture) <= TOLERANCE


def test_a_missing_permutation_of_rows_shows():
    model = load_model(NUMERICS / "llama3/hf")
    with torch.no_grad():
        for layer in model.model.layers:
            for weight in (layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight):
                heads = weight.unflatten(0, (-1, 2, layer.self_attn.head_dim // 2))
                weight.copy_(heads.transpose(1, 2).flatten(0, 2))
    assert largest_difference(model, "llama3") > 100 * TOLERANCE


@pytest.mark.parametrize("option", ["--like", "--config"])
@pytest.mark.parametrize("fixture", EXPECTED)
def test_our_export_gives_the_logits(fixture, option, tmp_path):
    """With the original's config.json, and with one that the tool writes itself."""
    original = Fixture(fixture)
    dcp = original.native_dcp(tmp_path / "dcp")
    milepost("export", dcp, tmp_path / "hf", option, original.hf)
    assert (config_of(tmp_path / "hf") == config_of(original.hf)) == (option == "--like")
    assert largest_difference(load_model(tmp_path / "hf"), fixture) <= TOLERANCE


MODELS = [("llama3", "debugmodel"), ("llama3", "1B", "--bytes", "30MB"), ("deepseek_v3", "debugmodel"), ("deepseek_v3", "671B", "--bytes", "30MB")]


@pytest.mark.parametrize("model, flavor, scaled", [(m, f, s) for m, f, *s in MODELS])
def test_a_flavors_config_describes_what_was_exported(model, flavor, scaled, tmp_path):
    milepost("synth", model, tmp_path / "original", "--flavor", flavor, *scaled)
    milepost("import", tmp_path / "original", tmp_path / "dcp")
    named = ["--config", tmp_path / "original"] if scaled else ["--model", model, "--flavor", flavor]
    milepost("export", tmp_path / "dcp", tmp_path / "hf", *named)
    exported = {name: tensor.shape for name, tensor in load_folder(tmp_path / "hf").items()}
    assert exported == described_shapes(tmp_path / "hf")
    load_model(tmp_path / "hf")
