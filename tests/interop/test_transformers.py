"""transformers loads a Hugging Face folder and computes with it what torchtitan does with the native weights."""
import pytest
import torch
from transformers_logits import EXPECTED, NUMERICS, TOLERANCE, largest_difference, load_model


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
