"""What the conversion scripts share: the command line that people know, and the `milepost` program that does the work.

The folders come first or through --ckpt_path and --output_path; options that the scripts do not know go to the tool as they are.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("build/release/cli/milepost", "build/dev/cli/milepost")

# As the tool's own: a wrong command line, and a system that lacks something.
USAGE, SYSTEM = 2, 4


def _is_program(path):
    return os.path.isfile(path) and os.access(path, os.X_OK)


def find_tool():
    """The path of `milepost`: what MILEPOST names, this repository's newest kind of build, or the one on PATH. Exits without one."""
    named = os.environ.get("MILEPOST")
    if named:
        # Another program than the one asked for would be a surprise.
        if not _is_program(named):
            stop(SYSTEM, f"MILEPOST={named} is not a program; name the milepost program, or unset it")
        return named
    for path in (ROOT / built for built in BUILT):
        if _is_program(path):
            return str(path)
    on_path = shutil.which("milepost")
    if not on_path:
        stop(SYSTEM, f"the milepost program is not built: `{ROOT}/scripts/build.sh release` builds it (before that, once: scripts/setup.sh); "
             "or name it in the environment variable MILEPOST")
    return on_path


def stop(status, message):
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(status)


def run_tool(*words):
    """Becomes the tool, so that its output, signals and exit status are the script's."""
    tool = find_tool()
    try:
        os.execv(tool, [tool, *words])
    except OSError as error:
        stop(SYSTEM, f"cannot run {tool}: {error.strerror}")


def run_tool_first(*words):
    """Runs the tool before more is done; where it fails, its exit status becomes the script's."""
    status = subprocess.run([find_tool(), *words], check=False).returncode
    if status != 0:
        sys.exit(status if status > 0 else 128 - status)


def holds_average(folder):
    """Whether the checkpoint holds moving averages of weights."""
    listed = subprocess.run([find_tool(), "inspect", folder, "--match", "ema*.state.*", "--json"], stdout=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        sys.exit(listed.returncode)
    return bool(json.loads(listed.stdout)["tensors"])


def parser(description, folders):
    result = argparse.ArgumentParser(
        description=description, allow_abbrev=False, usage=f"%(prog)s {folders} [OPTION...]",
        epilog="Options that are not listed go to the tool as they are, behind the folders: --overwrite, --resume, --max-memory SIZE, "
               "--dry-run and so on.")
    result.add_argument("--ckpt_path", metavar="DIR", help="older spelling of the first folder")
    result.add_argument("--output_path", metavar="DIR", help="older spelling of the second folder")
    result.add_argument("--model_name", default="llama3", metavar="NAME",
                        help="llama3, deepseek_v3 or so; of a dotted module path the last part counts [%(default)s]")
    result.add_argument("--model_flavor", "--flavor", default="8B", metavar="NAME", help="size of the model [%(default)s]")
    return result


def parse(result, arguments):
    """(options, [first folder, second folder], words for the tool)."""
    options, rest = result.parse_known_args(arguments)
    folders = [options.ckpt_path, options.output_path]
    # Past an unknown option, nothing tells its value from a folder.
    plain = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
    for index, named in enumerate(folders):
        if named is None and plain > 0:
            folders[index] = rest.pop(0)
            plain -= 1
    if None in folders:
        result.error("two folders are needed: where to read and where to write, before options of the tool")
    if plain > 0:
        result.error(f"unexpected: {' '.join(rest[:plain])}")
    return options, folders, rest


def model_words(options):
    return ["--model", options.model_name.rsplit(".", 1)[-1], "--flavor", options.model_flavor]


def mtp_words(rest):
    """The flavors that the scripts know own no stages of multi-token prediction, unless `rest` gives the tool a number."""
    return [] if any(word.split("=")[0] == "--mtp-layers" for word in rest) else ["--mtp-layers", "0"]
