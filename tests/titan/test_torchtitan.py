"""torchtitan 0.3.0 loads what the tool imported into its own models, and the tool exports what torchtitan's models saved."""
import pytest
import torch
import torch.distributed.checkpoint as dcp
import torchtitan_models
from safetensors.torch import load_file, save_file
from tool import milepost
from torchtitan_models import TitanModel, random_state

MODELS = [TitanModel("llama3", "debugmodel"), TitanModel("deepseek_v3", "debugmodel"), TitanModel("deepseek_v3", "debugmodel", 1)]


@pytest.fixture(scope="module", autouse=True)
def torchtitan():
    torchtitan_models.prepare()


def differing(want, got):
    assert want.keys() == got.keys(), f"missing {want.keys() - got.keys()}, extra {got.keys() - want.keys()}"
    return [name for name in want if not torch.equal(want[name], got[name])]


def load_folder(folder):
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def load_into(model, checkpoint):
    """As a training run starts from a checkpoint; raises for keys that are missing on either side."""
    state = model.state_dict()
    dcp.load(state, checkpoint_id=checkpoint, no_dist=True)
    model.load_state_dict(state, strict=True)
    return model


@pytest.mark.parametrize("titan", MODELS, ids=str)
def test_loads_what_was_imported(titan, tmp_path):
    model = titan.build()
    want = random_state(model, seed=1)
    (tmp_path / "hf").mkdir()
    save_file({name: tensor.contiguous() for name, tensor in titan.to_hf(want).items()}, tmp_path / "hf/model.safetensors")
    milepost("import", tmp_path / "hf", tmp_path / "dcp", *titan.options())
    assert differing(want, load_into(model, tmp_path / "dcp").state_dict()) == []


@pytest.mark.parametrize("titan", MODELS, ids=str)
def test_export_of_what_it_saved_is_its_own_export(titan, tmp_path):
    model = titan.build()
    model.load_state_dict(random_state(model, seed=2), strict=True)
    state = model.state_dict()
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    milepost("export", tmp_path / "dcp", tmp_path / "hf", *titan.options())
    assert differing(titan.to_hf(state), load_folder(tmp_path / "hf")) == []


@pytest.mark.parametrize("model", ["llama3", "deepseek_v3"])
def test_every_flavor_has_its_names_and_shapes(model):
    for flavor in torchtitan_models.flavors(model):
        titan = TitanModel(model, flavor)
        state = titan.build("meta").state_dict()
        table = milepost("keymap", model, "--flavor", flavor, "--all", "--json").json["tensors"]
        assert {row["native"]: tuple(row["shape"]) for row in table if row["native"]} == {
            name: tuple(tensor.shape) for name, tensor in state.items()}, flavor
        known = {name for row in table if row["native"] for name in row["hf"]}
        exported = titan.to_hf(state).keys()
        assert exported <= known and known - exported <= {"lm_head.weight"}, flavor
