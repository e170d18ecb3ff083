#!/usr/bin/env python3
"""Writes docs/cli.md from the tool's own help: tools/write_cli_docs.py PATH_OF_MILEPOST > docs/cli.md (a test compares them)."""
import subprocess
import sys

COMMANDS = ("inspect", "verify", "diff", "convert", "reshard", "import", "export", "keymap", "synth", "tokenize", "pin", "manifest write", "manifest verify")
HEAD = """# The command line

Made from the tool's own help by `tools/write_cli_docs.py`; do not edit. What the exit statuses mean is in [README.md](../README.md#exit-status).

A PATH is a folder or file; `file:PATH` is the same. Sizes take units of 1000 (`5GB`) and of 1024 (`128MiB`). A GLOB matches a whole name: `*` is any run of characters, dots too, `?` is
one, `[0-3]` one of a set, `{a,b}` one of several words.
"""


def document(program):
    parts = [HEAD]
    for command in COMMANDS:
        shown = subprocess.run([program, *command.split(), "--help"], stdout=subprocess.PIPE, text=True, check=True)
        parts.append(f"## milepost {command}\n\n```\n{shown.stdout.strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(document(sys.argv[1]))
