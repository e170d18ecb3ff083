"""Runs loader_tool, the program that the environment variable MILEPOST_LOADER_TOOL names (ctest sets it)."""
import dataclasses
import json
import os
import subprocess


@dataclasses.dataclass
class Read:
    batches: list
    messages: list
    skipped: int
    is_exact: bool


class Refused(Exception):
    pass


def loader(folder, **request):
    path = folder / "request.json"
    path.write_text(json.dumps(request, default=str), encoding="utf-8")
    done = subprocess.run([os.environ["MILEPOST_LOADER_TOOL"], path], capture_output=True, text=True, timeout=120)
    if done.returncode == 3:
        raise Refused(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    *batches, last = [json.loads(line) for line in done.stdout.splitlines()]
    return Read(batches, last["messages"], last["skipped"], last["is_exact"])


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path
