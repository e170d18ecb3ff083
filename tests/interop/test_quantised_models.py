"""fp8 and MXFP4 weights of models: torch's reader and the tool make the same values of the same codes, and of the values the same codes."""
import json

import pytest
import torch
from fixtures import DCP
from models import GROUPS, config_of, differing, load_dcp, load_dequantised, load_folder, weight_map
from safetensors.torch import load_file, save_file
from tool import BAD_INPUT, milepost, tree
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader
from torch_check import HF_INDEX, FlatPlanner, load
from torch_records import tensor_record

DTYPES = [torch.float32, torch.bfloat16]
QUANTIZATION_CONFIG = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
BLOCK = 128
LARGEST_E4M3 = 448.0
QUANTISED = ("q_proj", "q_a_proj", "q_b_proj", "k_proj", "v_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "gate_proj", "up_proj",
             "down_proj")
MLP = "model.layers.0.mlp."


def dtype_option(dtype):
    return ("--dtype", str(dtype).removeprefix("torch."))


def save_model(path, config, *files):
    """A Hugging Face folder of those tensors, with the index that torch's quantised reader needs."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    places = {}
    for number, tensors in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        save_file(tensors, path / name)
        places |= {key: name for key in tensors}
    (path / HF_INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


@pytest.fixture(scope="module", params=["llama3", "deepseek_v3"])
def plain(request, tmp_path_factory):
    """A bfloat16 model whose matrices are larger than a block, some with ragged edges, and with a stage of MTP where there are any."""
    path = tmp_path_factory.mktemp(request.param) / "hf"
    options = {"llama3": ["--flavor", "debugmodel"], "deepseek_v3": ["--flavor", "671B", "--bytes", "16MB", "--mtp-layers", "1"]}
    milepost("synth", request.param, path, *options[request.param])
    return path


@pytest.fixture(scope="module")
def fp8(plain):
    path = plain.parent / "fp8"
    milepost("import", plain, plain.parent / "dcp")
    milepost("export", plain.parent / "dcp", path, "--fp8", "--like", plain)
    milepost("verify", path)
    return path


def quantised(weight):
    """(codes, scales) by the published formula."""
    padding = [-size % BLOCK for size in reversed(weight.shape)]
    blocks = torch.nn.functional.pad(weight.float(), (0, padding[0], 0, padding[1])).unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    largest = blocks.abs().amax(dim=(1, 3))
    scales = torch.where(largest == 0, 1, largest / LARGEST_E4M3)
    codes = (blocks / scales[:, None, :, None]).clamp(-LARGEST_E4M3, LARGEST_E4M3).to(torch.float8_e4m3fn)
    return codes.flatten(2).flatten(0, 1)[:weight.shape[0], :weight.shape[1]], scales


def test_the_codes_are_those_of_the_formula(plain, fp8):
    want = {}
    for name, tensor in load_folder(plain).items():
        if name.split(".")[-2] in QUANTISED:
            want[name], want[f"{name}_scale_inv"] = quantised(tensor)
        else:
            want[name] = tensor
    assert differing(want, load_folder(fp8)) == []
    assert sum(tensor.dtype == torch.float8_e4m3fn for tensor in want.values()) > len(want) / 4


def test_config_and_index_tell_of_the_codes(plain, fp8):
    assert config_of(fp8) == {**config_of(plain), "quantization_config": QUANTIZATION_CONFIG}
    places = weight_map(fp8)
    assert all(places[name] == places[f"{name}_scale_inv"] for name in places if f"{name}_scale_inv" in places)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_are_those_of_torchs_reader(fp8, dtype, tmp_path):
    want = load_dequantised(fp8, dtype)
    milepost("import", fp8, tmp_path / "dcp", *dtype_option(dtype))
    milepost("export", tmp_path / "dcp", tmp_path / "through_dcp", "--like", fp8)
    assert differing(want, {name: tensor.to(dtype) for name, tensor in load_folder(tmp_path / "through_dcp").items()}) == []
    milepost("export", fp8, tmp_path / "direct", "--like", fp8, *dtype_option(dtype))
    assert differing(want, {name: tensor.to(dtype) for name, tensor in load_folder(tmp_path / "direct").items()}) == []
    for folder in ("through_dcp", "direct"):
        assert "quantization_config" not in config_of(tmp_path / folder)


def test_codes_to_bfloat16_and_back_are_the_same_files(fp8, tmp_path):
    milepost("import", fp8, tmp_path / "dcp")
    assert {tensor.dtype for name, tensor in load_dcp(tmp_path / "dcp").items() if "bias" not in name} == {torch.bfloat16}
    milepost("export", tmp_path / "dcp", tmp_path / "again", "--fp8", "--like", fp8)
    assert tree(tmp_path / "again") == tree(fp8)


FP8_RECORDS = json.loads((DCP / "hf_fp8/expected.json").read_text())["keys"]


def dense_layer(rows, columns):
    """A deepseek_v3 of one dense layer whose MLP is [rows, columns]: (config, its tensors)."""
    config = {**config_of(GROUPS.hf), "hidden_size": columns, "intermediate_size": rows, "num_hidden_layers": 1, "first_k_dense_replace": 1,
              "torch_dtype": "bfloat16"}
    heads, nope, rope, value = (config[f] for f in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    q_rank, kv_rank, vocabulary = config["q_lora_rank"], config["kv_lora_rank"], config["vocab_size"]
    attention = {"q_a_proj": (q_rank, columns), "q_a_layernorm": (q_rank,), "q_b_proj": (heads * (nope + rope), q_rank),
                 "kv_a_proj_with_mqa": (kv_rank + rope, columns), "kv_a_layernorm": (kv_rank,),
                 "kv_b_proj": (heads * (nope + value), kv_rank), "o_proj": (columns, heads * value)}
    shapes = {"model.embed_tokens.weight": (vocabulary, columns), "model.norm.weight": (columns,), "lm_head.weight": (vocabulary, columns),
              "model.layers.0.input_layernorm.weight": (columns,), "model.layers.0.post_attention_layernorm.weight": (columns,),
              **{f"model.layers.0.self_attn.{name}.weight": shape for name, shape in attention.items()},
              MLP + "gate_proj.weight": (rows, columns), MLP + "up_proj.weight": (rows, columns), MLP + "down_proj.weight": (columns, rows)}
    return config, {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [name for name, want in FP8_RECORDS.items() if "scale" in want])
def test_the_fixtures_codes_give_the_recorded_values(name, dtype, tmp_path):
    stored = {key: tensor for file in (DCP / "hf_fp8/ckpt").glob("*.safetensors") for key, tensor in load_file(file).items()}
    config, tensors = dense_layer(*stored[name].shape)
    gate = MLP + "gate_proj.weight"
    tensors |= {gate: stored[name], f"{gate}_scale_inv": stored[f"{name}_scale_inv"]}
    hf = save_model(tmp_path / "hf", {**config, "quantization_config": QUANTIZATION_CONFIG}, tensors)
    milepost("import", hf, tmp_path / "dcp", *dtype_option(dtype))
    got = load_dcp(tmp_path / "dcp")["layers.0.feed_forward.w1.weight"]
    assert tensor_record(got)["sha256"] == FP8_RECORDS[name][f"dequant_{str(dtype).removeprefix('torch.')}"]


class WholeStackReader(QuantizedHuggingFaceStorageReader):
    """torch's reader with a chunk as large as the values: torch leaves it as large as the codes, and would load the first columns only."""

    def read_metadata(self):
        metadata = super().read_metadata()
        starts = {name: torch.Size([0] * len(entry.size)) for name, entry in metadata.state_dict_metadata.items()}
        for name, entry in metadata.state_dict_metadata.items():
            entry.chunks = [ChunkStorageMetadata(starts[name], entry.size)]
        metadata.storage_data = {MetadataIndex(index.fqn, starts[index.fqn]): info for index, info in metadata.storage_data.items()}
        return metadata


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mxfp4_values_are_those_of_torchs_reader(dtype, tmp_path):
    """torch reads stacks of matrices only, so the same codes are given to it as a stack of one."""
    rows, groups, codes_per_group = 24, 3, 16
    columns = groups * codes_per_group * 2
    random = torch.Generator().manual_seed(4)
    codes = torch.randint(0, 256, (rows, groups, codes_per_group), generator=random, dtype=torch.uint8)
    exponents = torch.randint(100, 150, (rows, groups), generator=random, dtype=torch.uint8)
    config, tensors = dense_layer(rows, columns)
    gate = MLP + "gate_proj.weight"
    del tensors[gate]
    hf = save_model(tmp_path / "hf", config, tensors | {f"{gate}_blocks": codes}, {f"{gate}_scales": exponents})
    milepost("import", hf, tmp_path / "dcp", *dtype_option(dtype))
    stack = save_model(tmp_path / "stack", config, {"x_blocks": codes[None], "x_scales": exponents[None]})
    want = load(WholeStackReader(stack, target_dtype=dtype), {"x_blocks": torch.empty(1, rows, columns, dtype=dtype)}, FlatPlanner())
    assert tensor_record(load_dcp(tmp_path / "dcp")["layers.0.feed_forward.w1.weight"]) == tensor_record(want["x_blocks"][0])


def test_codes_without_scales_are_refused(fp8, tmp_path):
    tensors = load_folder(fp8)
    missing = next(name for name in tensors if name.endswith("_scale_inv"))
    del tensors[missing]
    hf = save_model(tmp_path / "hf", config_of(fp8), tensors)
    assert missing in milepost("import", hf, tmp_path / "dcp", status=BAD_INPUT).err
    assert not (tmp_path / "dcp").exists()
