#!/usr/bin/env python3
"""Checks that every #include goes to a layer that docs/layers.txt allows.

    tools/check_layers.py [ROOT]

A file's layer is the folder it lies in: include/milepost/LAYER/, src/LAYER/ or cli/. An include names a layer as
"milepost/LAYER/x.h" or "LAYER/x.h" (private headers, relative to src/); "x.h" must lie beside the including file.
Also: the allowed includes form no cycle, docs/layers.txt and the folders of src/ agree, public headers include no
private ones, and nothing includes by "..". Prints each violation as FILE:LINE: TEXT; exits with 1 when there is one.
"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(milepost/[^>]+)>)')
SOURCES = {".h", ".cc"}


def read_layers(path, problems):
    """LAYER: ALLOWED... -> {layer: set of allowed layers}."""
    layers = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, colon, allowed = line.partition(":")
        if not colon or not re.fullmatch(r"\w+(/\w+)?", name):
            problems.append(f"{path}:{number}: want 'LAYER: ALLOWED...', found '{line}'")
        elif name in layers:
            problems.append(f"{path}:{number}: layer '{name}' is listed twice")
        else:
            layers[name] = set(allowed.split())
            for other in sorted(layers[name] - layers.keys()):
                # Each may only name layers listed above it, so the graph has no cycle.
                problems.append(f"{path}:{number}: layer '{name}' names '{other}', which is not listed above it")
    return layers


def layer_of(path, root):
    parts = path.relative_to(root).parts
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    if parts[:2] == ("include", "milepost"):
        return parts[2] if len(parts) > 3 else None
    return layer_in_train(parts) or parts[0]


def layer_in_train(parts):
    """The trainer's folders are layers of their own; the files beside them lie above them all, torch.h apart."""
    return f"train/{parts[1]}" if parts[0] == "train" and len(parts) > 2 else None


def target_of(name, path, layers):
    """The layer that an include names, "" for the file's own folder, None for what is not ours."""
    parts = name.split("/")
    if parts[0] == "milepost":
        return parts[1] if len(parts) > 2 else None
    if name == "train/torch.h":
        return None
    if parts[0] in layers and len(parts) > 1:
        return layer_in_train(parts) or parts[0]
    return "" if (path.parent / name).is_file() else None


def check_file(path, root, layers, problems):
    layer = layer_of(path, root)
    if layer not in layers:
        problems.append(f"{path}:1: lies in no layer that docs/layers.txt lists")
        return
    is_public = path.relative_to(root).parts[0] == "include"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1) or match.group(2)
        where = f"{path}:{number}"
        target = target_of(name, path, layers)
        if ".." in name.split("/"):
            problems.append(f'{where}: "{name}" includes by ".."')
        elif is_public and target is not None and not name.startswith("milepost/"):
            problems.append(f'{where}: public header includes the private "{name}"')
        elif target and target != layer and target not in layers:
            problems.append(f"{where}: \"{name}\" is in '{target}', which docs/layers.txt does not list")
        elif target and target != layer and target not in layers[layer]:
            problems.append(f"{where}: layer '{layer}' may not include '{target}' (\"{name}\")")


def check(root):
    problems = []
    table = root / "docs/layers.txt"
    layers = read_layers(table, problems)
    folders = {p.name for p in (root / "src").iterdir() if p.is_dir()}
    for name in sorted(folders - layers.keys()):
        problems.append(f"{table}:1: src/{name} is not listed")
    for name in sorted(layers.keys() - folders):
        if not (root / name).is_dir():
            problems.append(f"{table}:1: layer '{name}' has no folder src/{name} or {name}")
    tops = ["include", "src"] + sorted(name for name in layers if name not in folders)
    files = [p for top in tops for p in sorted((root / top).rglob("*")) if p.suffix in SOURCES]
    for path in files:
        check_file(path, root, layers, problems)
    return problems, len(files)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems, num_files = check(root)
    for problem in problems:
        print(problem)
    print(f"layers: {num_files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
