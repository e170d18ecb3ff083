"""The conversion scripts with the real tool: a model goes to DCP and comes back."""
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tool import BAD_INPUT, USAGE, contents, environment, milepost, program

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FROM_HF, TO_HF = "checkpoint_conversion/convert_from_hf.py", "checkpoint_conversion/convert_to_hf.py"
STAGE = "model.layers.6."  # of multi-token prediction; the debug model has six layers


def run(script, *arguments, status=0):
    words = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    done = subprocess.run(words, env={**environment(), "MILEPOST": program()}, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def load_folder(folder):
    return {name: values for file in sorted(folder.glob("*.safetensors")) for name, values in load_file(file).items()}


def assert_equal(want, got):
    assert want.keys() == got.keys()
    assert [name for name in want if want[name].dtype != got[name].dtype or want[name].tobytes() != got[name].tobytes()] == []


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "hf"
    milepost("synth", "llama3", path, "--flavor", "debugmodel", "--dtype", "float32")
    return path


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory):
    """With a stage of multi-token prediction, as the releases have one."""
    path = tmp_path_factory.mktemp("deepseek") / "hf"
    milepost("synth", "deepseek_v3", path, "--flavor", "debugmodel", "--mtp-layers", "1", "--dtype", "float32")
    return path


def test_llama_to_dcp_and_back(llama, tmp_path):
    run(FROM_HF, llama, tmp_path / "dcp", "--model_name", "llama3", "--model_flavor", "debugmodel")
    milepost("verify", tmp_path / "dcp")
    run(TO_HF, tmp_path / "dcp", tmp_path / "hf", "--hf_assets_path", llama, "--model_name", "llama3", "--model_flavor", "debugmodel")
    assert_equal(load_folder(llama), load_folder(tmp_path / "hf"))


def test_older_spellings(llama, tmp_path):
    folders = ["--ckpt_path", llama, "--output_path", tmp_path / "dcp"]
    run("convert_from_hf.py", *folders, "--model_name", "torchtitan.models.llama3", "--flavor", "debugmodel")
    folders = ["--ckpt_path", tmp_path / "dcp", "--output_path", tmp_path / "hf"]
    run("convert_to_hf.py", *folders, "--tokenizer_path", llama, "--model_name", "llama3", "--flavor", "debugmodel")
    assert_equal(load_folder(llama), load_folder(tmp_path / "hf"))


def test_stages_beyond_the_flavor_are_left_out_as_by_the_reference(deepseek, tmp_path):
    said = run(FROM_HF, deepseek, tmp_path / "dcp", "--model_name", "deepseek_v3", "--model_flavor", "debugmodel")
    assert STAGE in said
    assert not any(name.startswith("mtp_layers.") for name in contents(tmp_path / "dcp")[0])
    run(TO_HF, tmp_path / "dcp", tmp_path / "hf", "--model_name", "deepseek_v3", "--model_flavor", "debugmodel")
    want = {name: values for name, values in load_folder(deepseek).items() if not name.startswith(STAGE)}
    assert_equal(want, load_folder(tmp_path / "hf"))


def test_stages_that_are_asked_for_are_kept(deepseek, tmp_path):
    model = ["--model_name", "deepseek_v3", "--model_flavor", "debugmodel", "--mtp-layers", "1"]
    run(FROM_HF, deepseek, tmp_path / "dcp", *model)
    run(TO_HF, tmp_path / "dcp", tmp_path / "hf", *model)
    assert_equal(load_folder(deepseek), load_folder(tmp_path / "hf"))


def test_float32_unless_told_otherwise(tmp_path):
    model = ["--model_name", "llama3", "--model_flavor", "debugmodel"]
    milepost("synth", "llama3", tmp_path / "original", "--flavor", "debugmodel", "--dtype", "bfloat16")
    run(FROM_HF, tmp_path / "original", tmp_path / "dcp", *model)
    run(TO_HF, tmp_path / "dcp", tmp_path / "hf", *model)
    run(TO_HF, tmp_path / "dcp", tmp_path / "back", *model, "--export_dtype", "bfloat16")
    for written in ("dcp", "hf"):
        assert {tensor["dtype"] for tensor in contents(tmp_path / written)[0].values()} == {"float32"}
    want, got = contents(tmp_path / "original")[0], contents(tmp_path / "back")[0]
    assert {name: tensor["sha256"] for name, tensor in want.items()} == {name: tensor["sha256"] for name, tensor in got.items()}


def test_what_the_tool_refuses_ends_the_script_with_its_status(llama, tmp_path):
    said = run(FROM_HF, llama, tmp_path / "dcp", "--model_flavor", "1B", status=BAD_INPUT)
    assert "[2048, 256]" in said and "[128256, 2048]" in said
    said = run(FROM_HF, llama, tmp_path / "dcp", "--model_name", "llama9", status=USAGE)
    assert "llama3" in said
    assert not (tmp_path / "dcp").exists()
