"""A numerics fixture through real transformers: the logits of a Hugging Face folder, one packed document at a time."""
import os

# Before the import: nothing is to be asked of a hub.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from safetensors.torch import load_file
from tool import DATA
from transformers import AutoConfig, AutoModelForCausalLM

NUMERICS = DATA / "numerics"

# Where torchtitan rounds the routed experts to bfloat16, the run that does not is the one to compare with.
EXPECTED = {"llama3": "expected.safetensors", "deepseek_v3/a_sigmoid_groups": "expected_fp32experts.safetensors"}

# The fixtures' own, for logits of a standard deviation of about 1: only the order of sums differs.
TOLERANCE = 5e-5


def load_model(folder):
    """The model of a folder in float32; asserts that its files hold every tensor of the model and no other."""
    model, loading = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    assert not any(loading.values()), loading
    return model.eval()


def described_shapes(folder):
    """{name: shape} of the tensors that a folder must hold for its config.json."""
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in AutoModelForCausalLM.from_config(config).state_dict().items()}
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    return shapes


def expected_logits(fixture):
    return load_file(NUMERICS / fixture / EXPECTED[fixture])["logits"]


def logits(model, fixture):
    """[batch, length, vocabulary] for the fixture's first batch. A document of a row does not see the others, and starts at position 0."""
    batches = load_file(NUMERICS / fixture / "batches.safetensors")
    rows = []
    for tokens, positions in zip(batches["tokens.0"].long(), batches["positions.0"]):
        starts = (positions == 0).nonzero().flatten().tolist()
        with torch.no_grad():
            rows.append(torch.cat([model(document[None]).logits[0] for document in tokens.tensor_split(starts[1:])]))
    return torch.stack(rows)


def largest_difference(model, fixture):
    return (logits(model, fixture) - expected_logits(fixture)).abs().max().item()
