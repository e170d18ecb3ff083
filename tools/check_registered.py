#!/usr/bin/env python3
"""Checks that nothing is forgotten: a target builds every .cc, and ctest runs every tests/**/test_*.py.

    tools/check_registered.py [--root DIR] [--build DIR]

Configures (never builds) one build folder with tests, benchmarks and fuzz targets on, and compares its
compile_commands.json and test list with what lies in the tree. Prints each forgotten file; exits with 1 when there is one.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

FOLDERS = ("src", "cli", "examples", "fuzz", "bench", "tests", "train", "python")


def configure(root, build):
    command = ["cmake", "-S", str(root), "-B", str(build), "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
               "-DMILEPOST_TESTS=ON", "-DMILEPOST_BENCH=ON", "-DMILEPOST_FUZZ=ON"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\ncheck_registered: cmake failed")


def built_files(build):
    commands = json.loads((build / "compile_commands.json").read_text())
    return {(Path(c["directory"]) / c["file"]).resolve() for c in commands}


def test_arguments(build):
    """Every argument of every test's command, and whether ctest has tests at all."""
    done = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], stdout=subprocess.PIPE, text=True, check=True)
    return [a for t in json.loads(done.stdout)["tests"] for a in t.get("command", [])] + _unbuilt(done.stdout)


def _unbuilt(text):
    """Test programs do not exist in a folder that is only configured: ctest then lists the test without a command."""
    return [t["name"] for t in json.loads(text)["tests"] if not t.get("command")]


def runs(path, arguments):
    return any(Path(a) == path or Path(a) in path.parents for a in arguments if a.startswith("/"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, help="default: ROOT/build/registered")
    options = parser.parse_args()
    root = options.root.resolve()
    build = options.build or root / "build/registered"
    configure(root, build)

    sources = [p for f in FOLDERS for p in sorted((root / f).rglob("*.cc"))]
    built = built_files(build)
    problems = [f"{p.relative_to(root)}: no target builds it" for p in sources if p.resolve() not in built]
    arguments = test_arguments(build)
    python_tests = sorted((root / "tests").rglob("test_*.py"))
    problems += [f"{p.relative_to(root)}: ctest does not run it" for p in python_tests if not runs(p, arguments)]
    for problem in problems:
        print(problem)
    print(f"registered: {len(sources)} C++ files, {len(python_tests)} Python tests, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
