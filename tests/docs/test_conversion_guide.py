"""Runs every command of docs/conversion.md, in order, in a folder that holds small models under the guide's names."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import hub as hub_module  # noqa: E402
import tool  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "conversion.md"
HUB_MODEL = "deepseek-ai/DeepSeek-V3.1-Base"
TOKENIZER = {"tokenizer.json": b'{"version": "1.0"}', "tokenizer_config.json": b"{}"}


def blocks():
    """(heading, commands) of every block of the guide that is marked as shell."""
    heading, out = "", []
    for part in re.findall(r"^##+ ([^\n]*)$|^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        if part[0]:
            heading = part[0]
        else:
            out.append((heading, part[1].strip().splitlines()))
    return out


def small(command):
    """The command for a small model: the guide's models are here those of the debug flavors."""
    if "synth" in command or "keymap" in command:
        return command
    return re.sub(r"(flavor) (8B|671B)\b", r"\1 debugmodel", command)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to run the guide in, and the environment to run it with."""
    folder = tmp_path_factory.mktemp("guide")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "milepost").symlink_to(tool.program())
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python3").chmod(0o755)
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "outputs" / "checkpoint").mkdir(parents=True)
    llama = folder / "assets/hf/Llama-3.1-8B"
    llama.parent.mkdir(parents=True)
    assert tool.milepost("synth", "llama3", llama).status == tool.DONE
    for name, content in TOKENIZER.items():
        (llama / name).write_bytes(content)
    assert tool.milepost("import", llama, folder / "outputs/checkpoint/step-1000", "--dtype", "float32").status == tool.DONE
    released = folder / "released"
    assert tool.milepost("synth", "deepseek_v3", released, "--fp8", "--shard-size", "8MB").status == tool.DONE
    with hub_module.serving() as hub:
        hub.repositories[HUB_MODEL] = {path.name: path.read_bytes() for path in released.iterdir()} | TOKENIZER
        kept = {k: v for k, v in tool.environment().items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        yield folder, {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "MILEPOST": tool.program(), "HF_ENDPOINT": hub.url,
                       "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@pytest.mark.parametrize("heading, commands", blocks(), ids=[heading for heading, _ in blocks()])
def test_commands_of(heading, commands, place):
    folder, environment = place
    for command in commands:
        done = subprocess.run(["bash", "-ec", small(command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    wrote = [word for command in commands for word in command.split() if word.startswith("outputs/") and "--dry-run" not in command]
    for path in wrote:
        assert (folder / path).exists(), path


def test_the_guide_has_the_common_jobs():
    headings = [heading for heading, _ in blocks()]
    assert [heading.split(".")[0] for heading in headings[:10]] == [str(i) for i in range(1, 11)]


def test_import_by_script_equals_import(place):
    folder, _ = place
    assert tool.milepost("diff", folder / "outputs/dcp_older", folder / "outputs/checkpoint/step-1000").status == tool.DONE
