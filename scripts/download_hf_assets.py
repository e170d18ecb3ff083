#!/usr/bin/env python3
"""Downloads a model's files from the Hugging Face hub: its tokenizer, weights, index or configuration, or files by pattern.

    scripts/download_hf_assets.py --repo_id deepseek-ai/DeepSeek-V3.1-Base --assets tokenizer index

The repository ORG/NAME goes to LOCAL_DIR/NAME. All files are of one revision, the newest when the script starts. Called again after
an interruption, it takes what is there and goes on within the file that it was at. HF_ENDPOINT names a mirror; without --hf_token the
token is HF_TOKEN's or the one that a login left. Needs huggingface_hub: scripts/setup.sh --with-download.
"""
import argparse
import fnmatch
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]

ASSETS = {
    "tokenizer": ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt", "vocab.json", "merges.txt",
                  "special_tokens_map.json"),
    "safetensors": ("*.safetensors", "*model.safetensors.index.json"),
    "index": ("*model.safetensors.index.json",),
    "config": ("config.json", "generation_config.json"),
}

# Names that guides give without the organisation.
KNOWN_NAMES = {"deepseek-moe-16b-base": "deepseek-ai/deepseek-moe-16b-base"}

LISTING_TIMEOUT_S = 30
BREAKS_PER_FILE = 5
WAIT_AFTER_BREAK_S = 1


def full_repo_id(repo_id):
    """`repo_id` as ORG/NAME. Throws ValueError where it is not of that form and no name that guides use."""
    if repo_id in KNOWN_NAMES:
        return KNOWN_NAMES[repo_id]
    organization, _, name = repo_id.partition("/")
    if not organization or not name or "/" in name:
        raise ValueError(f"Invalid repo_id format: '{repo_id}'. Expected format: 'organization/model-name'")
    return repo_id


def wanted_patterns(assets, additional_patterns):
    """{what to call it in a warning: patterns}."""
    unknown = [a for a in assets if a not in ASSETS]
    if unknown:
        raise ValueError(f"Unknown asset type: {', '.join(unknown)}. Known types: {', '.join(ASSETS)}")
    return {**{f"asset type '{a}'": ASSETS[a] for a in assets}, **{f"pattern '{p}'": (p,) for p in additional_patterns}}


def matches(path, pattern):
    name = PurePosixPath(path).name
    return name == pattern.lower() or fnmatch.fnmatchcase(name, pattern)


def select(paths, wanted):
    """The paths that any pattern matches, in the order of `paths`, and the names of what matches none."""
    chosen = [p for p in paths if any(matches(p, pattern) for patterns in wanted.values() for pattern in patterns)]
    absent = [what for what, patterns in wanted.items() if not any(matches(p, pattern) for p in paths for pattern in patterns)]
    return chosen, absent


def refuse_escape(paths):
    """Nobody vouches for the names in a repository, and huggingface_hub joins them to the folder as they are."""
    for path in paths:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"The repository lists a file '{path}', which would leave the target folder; nothing was downloaded")


def print_hint(error):
    print(f"The hub refused with HTTP status {error.response.status_code}. Check the name; for a private or gated repository accept its "
          "terms on its page and pass a token that may read it: --hf_token=TOKEN", file=sys.stderr)


def list_files(hub, repo_id, token):
    """(revision, paths)."""
    try:
        info = hub.HfApi().model_info(repo_id, token=token, timeout=LISTING_TIMEOUT_S)
    except hub.errors.HfHubHTTPError as error:
        print_hint(error)
        raise
    return info.sha, sorted(s.rfilename for s in info.siblings or [])


def fetch_file(hub, path, **where):
    """Goes on where a connection broke. huggingface_hub itself goes on only after some of the ways in which one can."""
    from requests.exceptions import ChunkedEncodingError

    for breaks in range(BREAKS_PER_FILE + 1):
        try:
            return hub.hf_hub_download(filename=path, **where)
        except ChunkedEncodingError as error:
            if breaks == BREAKS_PER_FILE:
                raise
            hub.utils.tqdm.write(f"The connection broke within {path}; going on ({error})")
            time.sleep(WAIT_AFTER_BREAK_S)


def fetch(hub, repo_id, revision, paths, folder, token):
    """How many of the files are in the folder now; one that the hub lists but does not have is skipped."""
    done = 0
    for path in hub.utils.tqdm(paths, desc="Downloading files", unit="file"):
        try:
            fetch_file(hub, path, repo_id=repo_id, revision=revision, local_dir=folder, token=token)
            done += 1
        except hub.errors.LocalEntryNotFoundError:  # the hub cannot be reached, though the class is the next one's child
            raise
        except hub.errors.EntryNotFoundError:
            hub.utils.tqdm.write(f"Skipped {path}: the hub does not have it")
        except hub.errors.HfHubHTTPError as error:
            print_hint(error)
            raise
    return done


def download(repo_id, local_dir="assets/hf/", assets=(), additional_patterns=(), download_all=False, token=None):
    """The folder with the files, or None when the repository has none that is wanted.

    Throws ValueError on a bad name or asset type, and what huggingface_hub throws: HfHubHTTPError after a hint about the token,
    and OSError where the hub cannot be reached or the disk is full; files that were finished stay.
    """
    short_name, repo_id = repo_id, full_repo_id(repo_id)
    wanted = wanted_patterns(assets, additional_patterns)
    import huggingface_hub as hub

    if repo_id != short_name:
        print(f"Note: {short_name} is taken as {repo_id}")
    print(f"Scanning repository {repo_id} for files...", flush=True)
    revision, paths = list_files(hub, repo_id, token)
    if not download_all:
        paths, absent = select(paths, wanted)
        for what in absent:
            print(f"Warning: no files found for {what}")
    if not paths:
        print(f"Warning: nothing to download from {repo_id}")
        return None
    refuse_escape(paths)
    print(f"Found {len(paths)} files:")
    for path in paths:
        print(f"  - {path}", flush=True)
    folder = Path(local_dir) / repo_id.rsplit("/", 1)[1]
    done = fetch(hub, repo_id, revision, paths, folder, token)
    print(f"Successfully downloaded {done} files to: {folder}")
    return folder


def use_a_python_with_the_hub():
    """Goes on under .venv's Python when only that one has huggingface_hub. The environment as it is comes first."""
    if importlib.util.find_spec("huggingface_hub"):
        return
    python = ROOT / ".venv/bin/python"
    question = "import importlib.util as u, sys; sys.exit(not u.find_spec('huggingface_hub'))"
    if python.exists() and subprocess.run([python, "-c", question]).returncode == 0:
        os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])
    sys.exit("download_hf_assets: the Python package huggingface_hub is missing. `scripts/setup.sh --with-download` installs it into "
             ".venv, where this script finds it; `pip install -r requirements/download.txt` does into your own environment.")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--repo_id", required=True, metavar="ORG/NAME", help="the repository")
    parser.add_argument("--hf_token", metavar="TOKEN", help="for private and gated repositories")
    parser.add_argument("--local_dir", default="assets/hf/", metavar="DIR", help="files go to DIR/NAME [%(default)s]")
    parser.add_argument("--assets", nargs="+", default=[], metavar="TYPE", help=f"kinds of files: {', '.join(ASSETS)}")
    parser.add_argument("--additional_patterns", nargs="+", default=[], metavar="PATTERN",
                        help="also files with this name; * and ? stand for others")
    parser.add_argument("--all", action="store_true", help="every file")
    options = parser.parse_args(arguments)
    if not (options.all or options.assets or options.additional_patterns):
        parser.error("At least one of --all, --assets or --additional_patterns must be specified.")
    return options


def main(arguments=None):
    options = parse(arguments)
    try:
        # Before the search for huggingface_hub, so that a wrong command line is told without it.
        full_repo_id(options.repo_id)
        wanted_patterns(options.assets, options.additional_patterns)
        use_a_python_with_the_hub()
        download(options.repo_id, options.local_dir, options.assets, options.additional_patterns, options.all, options.hf_token)
    except (ValueError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
