"""`milepost import` and `export` with wrong input: each refusal names what is wrong and where, says what to do, and leaves nothing behind."""
import json
import shutil
import struct

import pytest
from tool import BAD_INPUT, DATA, DONE, SYSTEM, USAGE, milepost, tree

LLAMA = DATA / "numerics/llama3/hf"
LLAMA_NATIVE = DATA / "numerics/llama3/weights.safetensors"
DEEPSEEK = DATA / "numerics/deepseek_v3/a_sigmoid_groups/hf"
CONFIGS = DATA / "hf_config"
INDEX = "model.safetensors.index.json"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
ITEM_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I64": 8}


class Folder:
    """A copy of a Hugging Face folder of one file, whose tensors, {name: (dtype, shape, bytes)}, may be changed before save()."""

    def __init__(self, source, path):
        shutil.copytree(source, path)
        self.path, self.file = path, path / "model.safetensors"
        data = self.file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__", None)
        self.tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            self.tensors[name] = entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end]

    def zeros(self, name, dtype, shape):
        count = ITEM_BYTES[dtype]
        for size in shape:
            count *= size
        self.tensors[name] = dtype, shape, bytes(count)

    def save(self):
        header, blobs, end = {}, [], 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
            blobs.append(data)
            end += len(data)
        text = json.dumps(header).encode()
        self.file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
        return self.path

    def configure(self, **fields):
        path = self.path / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.fixture
def llama(tmp_path):
    return Folder(LLAMA, tmp_path / "llama")


@pytest.fixture
def deepseek(tmp_path):
    return Folder(DEEPSEEK, tmp_path / "deepseek")


@pytest.fixture
def mtp(tmp_path):
    """Two stages of multi-token prediction, and fp8."""
    milepost("synth", "deepseek_v3", tmp_path / "made", "--config", CONFIGS / "tiny_mtp.json", "--fp8")
    (tmp_path / "made" / INDEX).unlink()
    return Folder(tmp_path / "made", tmp_path / "mtp")


def refused(command, source, *options, status=BAD_INPUT, mention=(), tmp_path, destination=None):
    """The message of a refusal, which must be short and printable, and leave nothing at the destination or beside it."""
    destination = destination or tmp_path / "out"
    before = tree(tmp_path)
    result = milepost(command, source, destination, *options, status=status)
    assert tree(tmp_path) == before, str(result)
    assert len(result.err) < 5000
    assert all(c.isprintable() or c == "\n" for c in result.err)
    assert result.out == ""
    for word in mention:
        assert str(word) in result.err, f"no {word!r}\n{result}"
    return result.err


# ---- which model it is

@pytest.mark.parametrize("command", ["import", "export"])
def test_unknown_model_lists_the_known(command, tmp_path):
    refused(command, LLAMA, "--model", "bert", status=USAGE, mention=["'bert'", "llama3", "deepseek_v3"], tmp_path=tmp_path)
    refused(command, LLAMA, "--model", "bert", "--flavor", "8B", status=USAGE, mention=["'bert'", "llama3"], tmp_path=tmp_path)


@pytest.mark.parametrize("command", ["import", "export"])
def test_unknown_flavor_lists_the_known(command, tmp_path):
    refused(command, LLAMA, "--model", "llama3", "--flavor", "9B", status=USAGE, mention=["'9B'", "debugmodel, 1B, 3B, 8B"], tmp_path=tmp_path)
    refused(command, LLAMA, "--flavor", "9B", status=USAGE, mention=["'9B'", "llama3 8B", "deepseek_v3 671B"], tmp_path=tmp_path)


def test_a_flavor_that_does_not_fit_names_a_tensor_and_both_shapes(tmp_path):
    refused("import", LLAMA, "--model", "llama3", "--flavor", "8B", tmp_path=tmp_path,
            mention=[LLAMA, "model.embed_tokens.weight", "[96, 64]", "llama3 8B", "[128256, 4096]", "flavor"])
    refused("export", LLAMA_NATIVE, "--model", "llama3", "--flavor", "8B", tmp_path=tmp_path,
            mention=["tok_embeddings.weight", "[96, 64]", "[128256, 4096]"])


def test_without_a_config_the_nearest_flavor_is_named(llama, tmp_path):
    (llama.path / "config.json").unlink()
    refused("import", llama.path, mention=[llama.path, "no known flavor", "nearest is llama3", "--config", "--flavor"], tmp_path=tmp_path)
    refused("export", LLAMA_NATIVE, mention=["no known flavor", "nearest is llama3"], tmp_path=tmp_path)


def test_a_flavor_and_a_config_contradict(tmp_path):
    refused("import", LLAMA, "--flavor", "8B", "--config", LLAMA, status=USAGE, mention=["flavor", "config.json", "one of them"], tmp_path=tmp_path)


def test_a_model_that_the_config_contradicts(tmp_path):
    refused("import", LLAMA, "--model", "deepseek_v3", mention=["llama3", "deepseek_v3", "--model"], tmp_path=tmp_path)


def test_other_models_are_named(llama, tmp_path):
    llama.configure(model_type="gpt2")
    refused("import", llama.path, mention=["config.json", "gpt2", "llama", "deepseek_v3"], tmp_path=tmp_path)


def test_a_folder_that_is_no_model(tmp_path):
    (tmp_path / "empty").mkdir()
    refused("import", tmp_path / "empty", mention=["empty"], tmp_path=tmp_path)
    refused("import", tmp_path / "absent", mention=["absent"], tmp_path=tmp_path)
    refused("export", DATA / "dcp/fsdp_2rank/ckpt", mention=["names of no known model", "milepost convert"], tmp_path=tmp_path)


def test_an_empty_checkpoint(llama, tmp_path):
    llama.tensors.clear()
    refused("import", llama.save(), mention=[llama.path, "holds no tensors"], tmp_path=tmp_path)


# ---- config.json

@pytest.mark.parametrize("text, words", [
    ("", ["not valid JSON"]), ("[]", ["not a JSON object"]), ('{"model_type": "llama"', ["not valid JSON"]), ("{}", ["model_type", "missing"]),
    ('{"model_type": "llama"}', ["hidden_size", "missing", "--flavor"]), ('{"model_type": 7}', ["model_type", "not a string"]),
    ('{"model_type": "llama", "hidden_size": "64"}', ["hidden_size", "not an integer"]),
])
def test_a_damaged_config_is_named(llama, tmp_path, text, words):
    (llama.path / "config.json").write_text(text)
    refused("import", llama.path, mention=[llama.path / "config.json", *words], tmp_path=tmp_path)


@pytest.mark.parametrize("fields", [
    {"num_hidden_layers": 10**12}, {"n_routed_experts": 10**9}, {"num_hidden_layers": 10**30}, {"vocab_size": -1}, {"hidden_size": 0},
    {"num_hidden_layers": 4096, "n_routed_experts": 256}, {"num_hidden_layers": 16, "n_routed_experts": 65536, "n_group": 1, "topk_group": 1},
    {"num_nextn_predict_layers": 10**6}, {"moe_intermediate_size": 10**9},
], ids=str)
def test_absurd_sizes_neither_hang_nor_take_memory(deepseek, tmp_path, fields):
    deepseek.configure(**fields)
    refused("import", deepseek.path, mention=[deepseek.path], tmp_path=tmp_path)
    assert milepost("import", deepseek.path, tmp_path / "out", status=BAD_INPUT, timeout_s=60).peak_kib < 2**20


def test_a_flavor_makes_up_for_an_unreadable_config(tmp_path):
    milepost("synth", "llama3", tmp_path / "hf", "--flavor", "debugmodel")
    (tmp_path / "hf/config.json").write_text("{")
    refused("import", tmp_path / "hf", mention=["config.json"], tmp_path=tmp_path)
    result = milepost("import", tmp_path / "hf", tmp_path / "out", "--model", "llama3", "--flavor", "debugmodel")
    assert "config.json is not used" in result.out


# ---- tensors

def test_missing_tensors_are_listed(llama, tmp_path):
    del llama.tensors[Q_PROJ], llama.tensors["model.norm.weight"]
    refused("import", llama.save(), mention=[llama.path, "2 of the tensors", Q_PROJ, "model.norm.weight", "complete the checkpoint"], tmp_path=tmp_path)


def test_missing_embeddings_are_missing(llama, tmp_path):
    del llama.tensors["model.embed_tokens.weight"]
    refused("import", llama.save(), mention=["1 of the tensors", "missing: model.embed_tokens.weight"], tmp_path=tmp_path)


@pytest.mark.parametrize("gap, count", [("experts.3.", 6), ("layers.1.mlp.experts.3.up_proj", 1), ("layers.2.mlp.experts.7.", 3), (".mlp.experts.", 48)])
def test_expert_gaps(deepseek, tmp_path, gap, count):
    missing = [name for name in deepseek.tensors if gap in name]
    for name in missing:
        del deepseek.tensors[name]
    assert len(missing) == count
    refused("import", deepseek.save(), mention=[f"{count} of the tensors", missing[0]], tmp_path=tmp_path)


def test_another_shape_names_the_tensor_and_both_shapes(llama, tmp_path):
    llama.zeros(Q_PROJ, "F32", [64, 60])
    refused("import", llama.save(), mention=[llama.path, Q_PROJ, "[64, 60]", "[64, 64]"], tmp_path=tmp_path)


@pytest.mark.parametrize("shape", [[], [0, 64], [0]], ids=str)
def test_scalars_and_empty_tensors_where_a_matrix_is_due(llama, tmp_path, shape):
    llama.zeros(Q_PROJ, "F32", shape)
    refused("import", llama.save(), mention=[Q_PROJ, f"its shape is {shape}", "[64, 64]"], tmp_path=tmp_path)


def test_unknown_tensors_are_listed_or_left_out(llama, tmp_path):
    llama.zeros("model.layers.0.self_attn.q_proj.bias", "F32", [64])
    path = llama.save()
    refused("import", path, mention=["1 of the tensors has no place", "q_proj.bias", "--skip-unsupported"], tmp_path=tmp_path)
    result = milepost("import", path, tmp_path / "out", "--skip-unsupported", "--report", tmp_path / "report.json")
    assert "q_proj.bias" in result.out
    (fate,) = [t for t in json.loads((tmp_path / "report.json").read_text())["sources"] if t["name"].endswith("q_proj.bias")]
    assert fate["fate"] == "left out"
    assert "no place" in fate["why"]


def test_hostile_names_make_a_short_printable_message(llama, tmp_path):
    for name in ("\x1b[31mred\n", "n" * 100_000, "MODEL.norm.weight", "model.norm.weight ", "mtp_layers.9223372036854775807.x",
                 "model.layers.99999999999999999999.y", *(f"x.{i}" for i in range(100_000))):
        llama.tensors[name] = "F32", [0], b""
    message = refused("import", llama.save(), mention=["100006 of the tensors have no place", "\\x1b[31mred\\n", "99994 more"], tmp_path=tmp_path)
    assert "\x1b" not in message
    milepost("import", llama.path, tmp_path / "out", "--skip-unsupported")


def test_six_bit_experts_are_refused(deepseek, tmp_path):
    for name, (_, shape, _) in deepseek.tensors.items():
        if ".experts." in name:
            deepseek.tensors[name] = "F6_E2M3", shape, bytes(shape[0] * shape[1] * 6 // 8)
    refused("import", deepseek.save(), mention=["float6_e2m3", "mlp.experts.0"], tmp_path=tmp_path)


def test_integers_keep_their_dtype(llama, tmp_path):
    llama.zeros("model.layers.0.mlp.up_proj.weight", "I64", llama.tensors["model.layers.0.mlp.up_proj.weight"][1])
    milepost("import", llama.save(), tmp_path / "out", "--dtype", "bfloat16")
    dtypes = {t["name"]: t["dtype"] for t in milepost("inspect", tmp_path / "out", "--json").json["tensors"]}
    assert dtypes["layers.0.feed_forward.w3.weight"] == "int64"
    assert dtypes["layers.0.feed_forward.w1.weight"] == "bfloat16"


# ---- multi-token prediction

def test_extra_mtp_stages_are_refused_both_ways(mtp, tmp_path):
    wanted = "Checkpoint MTP stage 1 is not present in the model config, which owns 1 stage(s)."
    milepost("import", mtp.path, tmp_path / "dcp")
    mtp.configure(num_nextn_predict_layers=1)
    refused("import", mtp.path, mention=[mtp.path, wanted, "--mtp-layers 2", "--mtp-layers 1"], tmp_path=tmp_path)
    refused("export", tmp_path / "dcp", "--config", mtp.path, mention=[wanted], tmp_path=tmp_path)
    refused("export", tmp_path / "dcp", "--like", mtp.path, mention=[wanted], tmp_path=tmp_path)
    for stages in ("1", "2"):
        milepost("import", mtp.path, tmp_path / f"dcp-{stages}", "--mtp-layers", stages)
        milepost("export", tmp_path / "dcp", tmp_path / f"hf-{stages}", "--config", mtp.path, "--mtp-layers", stages)
        milepost("export", tmp_path / "dcp", tmp_path / f"like-{stages}", "--like", mtp.path, "--mtp-layers", stages)
        milepost("import", tmp_path / f"like-{stages}", tmp_path / f"again-{stages}")
        milepost("diff", tmp_path / f"again-{stages}", tmp_path / f"dcp-{stages}")
    assert "not asked for" in milepost("import", mtp.path, tmp_path / "out", "--mtp-layers", "1", "--dry-run").out
    refused("import", mtp.path, "--mtp-layers", "3", mention=["missing", "model.layers.4."], tmp_path=tmp_path)
    refused("import", LLAMA, "--mtp-layers", "1", status=USAGE, mention=["llama3", "--mtp-layers"], tmp_path=tmp_path)


# ---- scales

SCALES = "model.layers.0.self_attn.o_proj.weight_scale_inv"


def test_a_missing_scale_is_named(mtp, tmp_path):
    del mtp.tensors[SCALES]
    refused("import", mtp.save(), mention=[mtp.path, "o_proj.weight'", "float8_e4m3fn codes", SCALES, "missing"], tmp_path=tmp_path)


def test_a_scale_of_the_wrong_shape_is_named(mtp, tmp_path):
    mtp.zeros(SCALES, "F32", [2, 1])
    refused("import", mtp.save(), mention=[mtp.path, SCALES, "[2, 1]", "[64, 64]", "[1, 1]", "weight_block_size"], tmp_path=tmp_path)


def test_blocks_of_another_size_need_other_scales(mtp, tmp_path):
    config = json.loads((mtp.path / "config.json").read_text())
    mtp.configure(quantization_config={**config["quantization_config"], "weight_block_size": [16, 16]})
    refused("import", mtp.path, mention=["_scale_inv", "weight_block_size"], tmp_path=tmp_path)
    mtp.configure(quantization_config={**config["quantization_config"], "weight_block_size": [128, 64]})
    refused("import", mtp.path, mention=["128 x 64", "square"], tmp_path=tmp_path)


def test_a_scale_without_codes_has_no_place(deepseek, tmp_path):
    name = "model.layers.0.self_attn.o_proj.weight_scale_inv"
    deepseek.zeros(name, "F32", [1, 1])
    refused("import", deepseek.save(), mention=["no place", name], tmp_path=tmp_path)
    deepseek.tensors["x_scale_inv"] = deepseek.tensors.pop(name)
    refused("import", deepseek.save(), mention=["no place", "x_scale_inv"], tmp_path=tmp_path)


# ---- files

def test_an_index_that_names_a_missing_shard(llama, tmp_path):
    weight_map = dict.fromkeys(llama.tensors, "model-00001-of-00002.safetensors")
    weight_map["model.norm.weight"] = "model-00002-of-00002.safetensors"
    (llama.path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    llama.file.rename(llama.path / "model-00001-of-00002.safetensors")
    refused("import", llama.path, mention=[llama.path, "model-00002-of-00002.safetensors"], tmp_path=tmp_path)


def test_an_existing_destination(llama, tmp_path):
    milepost("import", llama.path, tmp_path / "out")
    refused("import", llama.path, status=(USAGE, BAD_INPUT, SYSTEM), mention=[tmp_path / "out", "--overwrite"], tmp_path=tmp_path)
    refused("export", tmp_path / "out", status=(USAGE, BAD_INPUT, SYSTEM), destination=llama.path, mention=["llama"], tmp_path=tmp_path)


def test_a_destination_inside_the_source(llama, tmp_path):
    for destination in (llama.path / "dcp", f"{llama.path}/../llama/dcp", f"{llama.path}//./dcp", f"file:{llama.path}/dcp"):
        refused("import", llama.path, status=(USAGE, BAD_INPUT), destination=destination, mention=["inside the source"], tmp_path=tmp_path)


def test_a_full_disk_leaves_nothing(tmp_path):
    refused("import", LLAMA, status=SYSTEM, destination=f"faulty+file:{tmp_path}/out?fail=write:1:ENOSPC", mention=["No space left"], tmp_path=tmp_path)


def test_a_disk_too_small_is_found_before_anything_is_written(tmp_path):
    if shutil.disk_usage(tmp_path).free > 1.6e12:
        pytest.skip("this disk would hold it")
    milepost("synth", "llama3", tmp_path / "hf", "--flavor", "405B", "--sparse")
    for command, source in (("import", tmp_path / "hf"), ("export", tmp_path / "hf")):
        plan = milepost(command, source, tmp_path / "out", "--dtype", "float32", "--dry-run", "--json").json
        assert plan["disk_bytes_needed"] > 1.6e12 > plan["disk_bytes_free"]
        result = milepost(command, source, tmp_path / "out", "--dtype", "float32", status=SYSTEM)
        assert str(plan["disk_bytes_needed"]) in result.err
        assert "free" in result.err
        assert not list(tmp_path.glob("*out*"))


# ---- --match

def test_match_looks_at_the_names_that_are_written(llama, tmp_path):
    refused("import", llama.path, "--match", "*o_proj*", status=USAGE, mention=["names that are written", "'*o_proj*'", "keymap"], tmp_path=tmp_path)
    milepost("import", llama.path, tmp_path / "out", "--match", "*.wo.*", "--dtype", "float16", "--report", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {t["name"].split(".")[-2] for t in report["targets"]} == {"wo"}
    assert {t["dtype"] for t in report["targets"]} == {"float16"}


# ---- keymap

@pytest.mark.parametrize("options", [["--all"], ["--mtp-layers", "1"]])
def test_keymap_lists_tensors_of_a_known_size_only(options):
    assert "--flavor" in milepost("keymap", "deepseek_v3", *options, status=USAGE).err


# ---- --report

@pytest.mark.parametrize("place, words", [("no/such/report.json", ["no/such/report.json"]), ("llama/model.safetensors", ["source"]),
                                          ("llama", ["source"]), ("out/report.json", ["destination"]), ("folder", ["folder"])])
def test_a_report_that_cannot_be_written_is_found_first(llama, tmp_path, place, words):
    (tmp_path / "folder").mkdir()
    refused("import", llama.path, "--report", tmp_path / place, status=(USAGE, BAD_INPUT, SYSTEM), mention=words, tmp_path=tmp_path)


def test_a_failed_conversion_leaves_reports_as_they_were(llama, tmp_path):
    refused("import", llama.path, "--report", tmp_path / "report.json", status=SYSTEM, mention=["Input/output"], tmp_path=tmp_path,
            destination=f"faulty+file:{tmp_path}/out?fail=write:1:EIO")
    (tmp_path / "report.json").write_text("of an earlier run, " * 10_000)
    refused("import", llama.path, "--report", tmp_path / "report.json", status=SYSTEM, mention=["Input/output"], tmp_path=tmp_path,
            destination=f"faulty+file:{tmp_path}/out?fail=write:1:EIO")
    milepost("import", llama.path, tmp_path / "out", "--report", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["model"] == "llama3"


# ---- --like

def test_like_must_be_a_model_folder_of_this_model(llama, tmp_path):
    refused("export", LLAMA_NATIVE, "--config", LLAMA, "--like", tmp_path / "absent", mention=["absent", "no such folder"], tmp_path=tmp_path)
    refused("export", LLAMA_NATIVE, "--like", tmp_path / "absent", mention=["absent", "no such folder"], tmp_path=tmp_path)
    refused("export", LLAMA_NATIVE, "--config", LLAMA, "--like", LLAMA_NATIVE, mention=["weights.safetensors"], tmp_path=tmp_path)
    refused("export", LLAMA_NATIVE, "--config", LLAMA, "--like", DEEPSEEK, mention=["config.json", "deepseek_v3"], tmp_path=tmp_path)
    llama.configure(num_attention_heads=2, head_dim=32, num_key_value_heads=1)
    refused("export", LLAMA_NATIVE, "--config", LLAMA, "--like", llama.path, mention=["n_heads is 2, not 4"], tmp_path=tmp_path)


@pytest.mark.parametrize("file", ["../escaped.safetensors", "sub/x.safetensors", "/tmp/x.safetensors", "config.json", INDEX, "\x1b[31m"])
def test_like_index_that_names_other_files(llama, tmp_path, file):
    (llama.path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(llama.tensors, file)}))
    refused("export", LLAMA_NATIVE, "--like", llama.path, mention=[INDEX], tmp_path=tmp_path)


def test_like_index_that_lacks_a_tensor(llama, tmp_path):
    names = [name for name in llama.tensors if name != Q_PROJ]
    (llama.path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}))
    refused("export", LLAMA_NATIVE, "--like", llama.path, mention=["1 of the tensors", "not in the index", Q_PROJ], tmp_path=tmp_path)


def test_like_lends_links_too(llama, tmp_path):
    """As in the hub's cache, where every file is a link."""
    (tmp_path / "blob").write_text("{}")
    (llama.path / "tokenizer.json").symlink_to(tmp_path / "blob")
    milepost("export", LLAMA_NATIVE, tmp_path / "out", "--like", llama.path)
    assert (tmp_path / "out/tokenizer.json").read_text() == "{}"


def test_good_input_still_passes(tmp_path):
    milepost("import", DEEPSEEK, tmp_path / "dcp", status=DONE)
    milepost("export", tmp_path / "dcp", tmp_path / "hf", "--like", DEEPSEEK, status=DONE)
    milepost("diff", DEEPSEEK, tmp_path / "hf", status=DONE)
