"""The repository's own checks: each must pass on a clean tree and fail on a tree with the fault that it is for."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check_layers(root):
    return subprocess.run([sys.executable, ROOT / "tools/check_layers.py", root], capture_output=True, text=True)


@pytest.fixture
def small_tree(tmp_path):
    files = {
        "docs/layers.txt": "base:\ntensor: base  # a comment\ncli: base tensor\n",
        "include/milepost/base/a.h": "#pragma once\n#include <vector>\n",
        "include/milepost/tensor/b.h": '#include "milepost/base/a.h"\n',
        "src/base/a.cc": '#include "milepost/base/a.h"\n\n#include "base/private.h"\n#include "private.h"\n',
        "src/base/private.h": "#pragma once\n",
        "src/tensor/b.cc": '#include "milepost/tensor/b.h"\n#include "base/private.h"\n#include "gtest/gtest.h"\n',
        "cli/main.cc": '#include "milepost/tensor/b.h"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_layers_pass_on_this_tree():
    done = check_layers(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_layers_pass_on_a_clean_tree(small_tree):
    done = check_layers(small_tree)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file, text, where, words", [
    ("src/base/a.cc", '\n#include "milepost/tensor/b.h"\n', "src/base/a.cc:2", "'base' may not include 'tensor'"),
    ("src/base/a.cc", '#include "tensor/c.h"\n', "src/base/a.cc:1", "'base' may not include 'tensor'"),
    ("src/base/a.cc", "#  include <milepost/tensor/b.h>\n", "src/base/a.cc:1", "'base' may not include 'tensor'"),
    ("src/tensor/b.cc", '#include "cli/flags.h"\n', "src/tensor/b.cc:1", "'tensor' may not include 'cli'"),
    ("src/tensor/b.cc", '#include "milepost/plan/x.h"\n', "src/tensor/b.cc:1", "does not list"),
    ("src/tensor/b.cc", '#include "../base/private.h"\n', "src/tensor/b.cc:1", '".."'),
    ("include/milepost/tensor/b.h", '#include "base/private.h"\n', "include/milepost/tensor/b.h:1", "private"),
    ("src/extra/x.cc", "\n", "docs/layers.txt:1", "src/extra is not listed"),
    ("docs/layers.txt", "base: tensor\ntensor: base\ncli: base tensor\n", "docs/layers.txt:1", "not listed above"),
    ("docs/layers.txt", "base:\nbase:\ntensor: base\ncli: base tensor\n", "docs/layers.txt:2", "listed twice"),
    ("docs/layers.txt", "base:\ntensor: base\ncli: base tensor\nghost: base\n", "docs/layers.txt:1", "has no folder"),
])
def test_layers_fail_on_a_violation(small_tree, file, text, where, words):
    (small_tree / file).parent.mkdir(exist_ok=True)
    (small_tree / file).write_text(text)
    done = check_layers(small_tree)
    assert done.returncode == 1, done.stdout
    assert f"{small_tree}/{where}: " in done.stdout and words in done.stdout, done.stdout


def check_registered(root):
    return subprocess.run([sys.executable, ROOT / "tools/check_registered.py", "--root", root], capture_output=True, text=True)


def test_forgotten_files_are_named(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES CXX)\nenable_testing()\nadd_library(x STATIC src/base/known.cc)\n"
        "add_test(NAME known COMMAND python3 -m pytest ${CMAKE_SOURCE_DIR}/tests/known)\n")
    for name in ("src/base/known.cc", "src/base/forgotten.cc", "tests/known/test_a.py", "tests/forgotten/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    done = check_registered(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "src/base/forgotten.cc: no target builds it" in done.stdout
    assert "tests/forgotten/test_b.py: ctest does not run it" in done.stdout
    assert "known.cc" not in done.stdout.replace("forgotten.cc", "")


def test_readme_shows_code_that_is_compiled():
    snippet = re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    program = (ROOT / "examples/load_rows.cc").read_text()
    assert snippet.strip() in re.sub(r"(?m)^    ", "", program)
