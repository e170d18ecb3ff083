"""The conversion scripts under the spellings that people know: what they make of a command line, seen by a program in the tool's place."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FROM_HF = ("checkpoint_conversion/convert_from_hf.py", "convert_from_hf.py")
TO_HF = ("checkpoint_conversion/convert_to_hf.py", "convert_to_hf.py")
NO_MTP = ["--mtp-layers", "0"]
LLAMA = ["--model", "llama3", "--flavor", "8B", *NO_MTP]
DEFAULT_ASSETS = "assets/hf/Llama-3.1-8B"


def make_tool(path):
    """A program that writes its name and arguments to $RECORD, and exits with $STATUS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n"
                    "open(os.environ['RECORD'], 'w').write(json.dumps(sys.argv))\nprint('said by the tool')\n"
                    "sys.exit(int(os.environ.get('STATUS', '0')))\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path):
    tool = make_tool(tmp_path / "tool/milepost")
    return {**os.environ, "MILEPOST": str(tool), "RECORD": str(tmp_path / "record.json"), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run(environment, tmp_path):
    """Runs a script in tmp_path; returns (what ran, what the tool was called with or None)."""
    def run(script, *arguments, status=0, scripts=SCRIPTS):
        record = Path(environment["RECORD"])
        record.unlink(missing_ok=True)
        words = [sys.executable, str(scripts / script), *map(str, arguments)]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done, json.loads(record.read_text()) if record.exists() else None
    return run


@pytest.mark.parametrize("script", FROM_HF)
@pytest.mark.parametrize("arguments, words", [
    (["hf", "dcp"], ["import", "hf", "dcp", *LLAMA, "--dtype", "float32"]),
    (["hf", "dcp", "--model_name", "deepseek_v3", "--model_flavor", "671B"],
     ["import", "hf", "dcp", "--model", "deepseek_v3", "--flavor", "671B", *NO_MTP, "--dtype", "float32"]),
    (["--model_name", "some.models.deepseek_v3", "hf", "--model_flavor=16B", "dcp"],
     ["import", "hf", "dcp", "--model", "deepseek_v3", "--flavor", "16B", *NO_MTP, "--dtype", "float32"]),
    (["--ckpt_path", "hf", "--output_path", "dcp", "--tokenizer_path", "t", "--flavor", "1B"],
     ["import", "hf", "dcp", "--model", "llama3", "--flavor", "1B", *NO_MTP, "--dtype", "float32"]),
    (["hf", "dcp", "--overwrite", "--max-memory", "1GiB", "--model_flavor", "70B"],
     ["import", "hf", "dcp", "--model", "llama3", "--flavor", "70B", *NO_MTP, "--dtype", "float32", "--overwrite", "--max-memory", "1GiB"]),
    (["--output_path", "dcp", "hf", "--resume"], ["import", "hf", "dcp", *LLAMA, "--dtype", "float32", "--resume"]),
    (["hf", "dcp", "--mtp-layers", "1"], ["import", "hf", "dcp", "--model", "llama3", "--flavor", "8B", "--dtype", "float32", "--mtp-layers", "1"]),
])
def test_from_hf_imports_in_float32(run, script, arguments, words):
    done, called = run(script, *arguments)
    assert called[1:] == words
    assert done.stdout == "said by the tool\n" and done.stderr == ""


@pytest.mark.parametrize("script", TO_HF)
@pytest.mark.parametrize("arguments, words", [
    (["dcp", "hf"], ["export", "dcp", "hf", *LLAMA, "--dtype", "float32"]),
    (["dcp", "hf", "--export_dtype", "bfloat16", "--model_name", "a.b.deepseek_v3", "--model_flavor", "16B"],
     ["export", "dcp", "hf", "--model", "deepseek_v3", "--flavor", "16B", *NO_MTP, "--dtype", "bfloat16"]),
    (["dcp", "hf", "--export_dtype", "float16", "--read_threads", "4", "--dry-run"],
     ["export", "dcp", "hf", *LLAMA, "--dtype", "float16", "--threads", "4", "--dry-run"]),
    (["dcp", "hf", "--mtp-layers=1"], ["export", "dcp", "hf", "--model", "llama3", "--flavor", "8B", "--dtype", "float32", "--mtp-layers=1"]),
    (["dcp", "hf", "--hf_assets_path", "original"], ["export", "dcp", "hf", *LLAMA, "--dtype", "float32", "--like", "original"]),
    (["--ckpt_path", "step-1000", "--output_path", "hf_out", "--tokenizer_path", "original", "--model_name", "llama3", "--flavor", "8B"],
     ["export", "step-1000", "hf_out", *LLAMA, "--dtype", "float32", "--like", "original"]),
])
def test_to_hf_exports(run, tmp_path, script, arguments, words):
    (tmp_path / "original").mkdir()
    done, called = run(script, *arguments)
    assert called[1:] == words
    assert done.stdout == "said by the tool\n" and done.stderr == ""


def test_the_default_assets_are_taken_where_they_are_there(run, tmp_path):
    (tmp_path / DEFAULT_ASSETS).mkdir(parents=True)
    _, called = run(TO_HF[0], "dcp", "hf")
    assert called[-2:] == ["--like", f"./{DEFAULT_ASSETS}"]


@pytest.mark.parametrize("arguments", [["--model_flavor", "70B"], ["--model_name", "deepseek_v3", "--model_flavor", "8B"]])
def test_the_default_assets_are_not_taken_for_another_model(run, tmp_path, arguments):
    (tmp_path / DEFAULT_ASSETS).mkdir(parents=True)
    _, called = run(TO_HF[0], "dcp", "hf", *arguments)
    assert "--like" not in called


def test_named_assets_that_are_not_there_are_noted(run):
    done, called = run(TO_HF[0], "dcp", "hf", "--hf_assets_path", "nowhere")
    assert "--like" not in called and "there is no folder nowhere" in done.stderr


@pytest.mark.parametrize("script", TO_HF)
@pytest.mark.parametrize("averages", [[], [{"name": "ema_optimizer.state.w.ema_params"}]])
def test_averages_are_a_second_export(run, environment, script, averages):
    tool = Path(environment["MILEPOST"])
    tool.write_text(f"#!{sys.executable}\nimport json, os, sys\n"
                    "calls = json.load(open(os.environ['RECORD'])) if os.path.exists(os.environ['RECORD']) else []\n"
                    "json.dump(calls + [sys.argv[1:]], open(os.environ['RECORD'], 'w'))\n"
                    f"print(json.dumps({{'tensors': {averages!r}}}))\n")
    done, called = run(script, "dcp", "hf", "--ema_output", "ema", "--ema_key", "decay_0p9")
    words = [*LLAMA, "--dtype", "float32"]
    assert called[:2] == [["export", "dcp", "hf", *words], ["inspect", "dcp", "--match", "ema*.state.*", "--json"]]
    assert called[2:] == ([["export", "dcp", "ema", "--ema", "--ema-key", "decay_0p9", *words]] if averages else [])
    assert ("holds no moving averages of weights, so --ema_output is skipped" in done.stderr) == (not averages)


@pytest.mark.parametrize("script", TO_HF)
def test_averages_are_not_exported_after_a_failure(run, environment, script):
    environment["STATUS"] = "3"
    _, called = run(script, "dcp", "hf", "--ema_output", "ema", status=3)
    assert called[1:4] == ["export", "dcp", "hf"]


@pytest.mark.parametrize("script", FROM_HF + TO_HF)
@pytest.mark.parametrize("arguments, words", [
    ([], "two folders are needed"),
    (["one"], "two folders are needed"),
    (["--ckpt_path", "one"], "two folders are needed"),
    (["--overwrite", "one", "two"], "before options of the tool"),
    (["one", "--max-memory", "two"], "before options of the tool"),
    (["one", "two", "three"], "unexpected: three"),
    (["one", "--ckpt_path", "a", "--output_path", "b"], "unexpected: one"),
    (["one", "two", "--model_name"], "expected one argument"),
])
def test_a_wrong_command_line_runs_nothing(run, script, arguments, words):
    done, called = run(script, *arguments, status=2)
    assert called is None and words in done.stderr


@pytest.mark.parametrize("arguments", [["--export_dtype", "float64"], ["--read_threads", "many"], ["--ema_key", "decay_0p9"]])
def test_to_hf_refuses_other_values(run, arguments):
    _, called = run(TO_HF[0], "dcp", "hf", *arguments, status=2)
    assert called is None


@pytest.mark.parametrize("script", FROM_HF + TO_HF)
def test_help_names_the_options(run, script):
    done, called = run(script, "--help")
    assert called is None and "--model_flavor" in done.stdout and "--ckpt_path" in done.stdout


@pytest.mark.parametrize("script", FROM_HF + TO_HF)
@pytest.mark.parametrize("status", [1, 3, 4])
def test_the_tools_exit_status_is_the_scripts(run, environment, script, status):
    environment["STATUS"] = str(status)
    _, called = run(script, "a", "b", status=status)
    assert called


@pytest.fixture
def project(tmp_path):
    """The scripts in a tree of their own, where nothing is built."""
    shutil.copytree(SCRIPTS, tmp_path / "project/scripts")
    return tmp_path / "project"


def test_finds_what_was_built_before_what_is_on_the_path(run, environment, tmp_path, project):
    del environment["MILEPOST"]
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    for place in (tmp_path / "bin/milepost", project / "build/dev/cli/milepost", project / "build/release/cli/milepost"):
        make_tool(place)
        _, called = run(FROM_HF[1], "a", "b", scripts=project / "scripts")
        assert called[0] == str(place)


def test_says_how_to_build_a_missing_tool(run, environment, project):
    del environment["MILEPOST"]
    environment["PATH"] = "/nowhere"
    done, _ = run(TO_HF[0], "a", "b", scripts=project / "scripts", status=4)
    assert f"`{project}/scripts/build.sh release`" in done.stderr


def test_does_not_run_another_tool_than_the_one_named(run, environment, tmp_path, project):
    make_tool(project / "build/release/cli/milepost")
    environment["MILEPOST"] = str(tmp_path / "missing")
    done, called = run(TO_HF[0], "a", "b", scripts=project / "scripts", status=4)
    assert called is None and f"MILEPOST={tmp_path / 'missing'} is not a program" in done.stderr


def test_a_tool_that_cannot_start_is_named(run, environment, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/interpreter\n")
    broken.chmod(0o755)
    environment["MILEPOST"] = str(broken)
    done, _ = run(FROM_HF[0], "a", "b", status=4)
    assert f"cannot run {broken}" in done.stderr
