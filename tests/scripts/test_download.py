"""scripts/download_hf_assets.py against a hub on the loopback interface; nothing leaves this machine."""
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub import COMMIT, serving

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/download_hf_assets.py"
REPOSITORY = "an-org/A-Model"
FILES = {
    ".gitattributes": b"*.safetensors lfs\n",
    "README.md": b"# A model\n",
    "config.json": b"{}",
    "generation_config.json": b'{"a": 1}',
    "model-00001-of-00002.safetensors": b"one" * 1000,
    "model-00002-of-00002.safetensors": b"two" * 1000,
    "model.safetensors.index.json": b'{"weight_map": {}}',
    "original/params.json": b'{"dim": 4}',
    "original/tokenizer.model": b"\x00\x01",
    "tokenizer.json": b'{"t": 1}',
    "tokenizer_config.json": b'{"t": 2}',
}
TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "original/tokenizer.model"}
# huggingface_hub writes what it received 10 MiB at a time: less is not there to go on from.
LARGE = bytes(range(256)) * (12 * 4096)
WRITTEN = 10 << 20


@pytest.fixture
def hub():
    with serving() as hub:
        hub.repositories[REPOSITORY] = dict(FILES)
        yield hub


@pytest.fixture
def environment(hub, tmp_path):
    """A closed port as the proxy for everything beyond loopback."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    nowhere = "http://127.0.0.1:1"
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "http_proxy": nowhere, "https_proxy": nowhere, "no_proxy": "127.0.0.1"}


@pytest.fixture
def run(environment, tmp_path):
    def run(*arguments, status=0, repository=REPOSITORY, command=(sys.executable, SCRIPT)):
        words = [*map(str, command), "--repo_id", repository, *arguments]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done
    return run


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("download_hf_assets", SCRIPT)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def there(folder):
    """{path: content} below a folder, without what huggingface_hub keeps to go on from."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and p.relative_to(folder).parts[0] != ".cache"}


def only(names):
    return {name: FILES[name] for name in names}


@pytest.mark.parametrize("arguments, names", [
    (["--assets", "tokenizer"], TOKENIZER),
    (["--assets", "safetensors"], {n for n in FILES if "safetensors" in n}),
    (["--assets", "index"], {"model.safetensors.index.json"}),
    (["--assets", "config"], {"config.json", "generation_config.json"}),
    (["--assets", "index", "config", "--additional_patterns", "params.json", "*.md"],
     {"model.safetensors.index.json", "config.json", "generation_config.json", "original/params.json", "README.md"}),
    (["--additional_patterns", "Tokenizer.json", "model-0000?-of-00002.safetensors"],
     {"tokenizer.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}),
    (["--all"], set(FILES)),
    (["--all", "--assets", "index"], set(FILES)),
])
def test_takes_the_files_that_match_by_their_base_name(run, tmp_path, arguments, names):
    done = run(*arguments)
    folder = tmp_path / "assets/hf/A-Model"
    assert there(folder) == only(names)
    listed = [line[4:] for line in done.stdout.splitlines() if line.startswith("  - ")]
    assert listed == sorted(names)
    assert f"Scanning repository {REPOSITORY} for files...\n" in done.stdout
    assert f"Found {len(names)} files:\n" in done.stdout
    assert f"Successfully downloaded {len(names)} files to: assets/hf/A-Model\n" in done.stdout
    assert "Downloading files" in done.stderr and "Warning" not in done.stdout


def test_all_files_are_of_the_revision_that_was_listed(run, hub, tmp_path):
    run("--assets", "tokenizer", "--local_dir", tmp_path / "elsewhere")
    assert there(tmp_path / "elsewhere/A-Model") == only(TOKENIZER)
    downloads = [r for r in hub.requests if "/resolve/" in r.path]
    assert downloads and all(f"/resolve/{COMMIT}/" in r.path for r in downloads)


def test_a_name_that_guides_use_gets_its_organization(run, hub, tmp_path):
    hub.repositories = {"deepseek-ai/deepseek-moe-16b-base": {"tokenizer.json": b"{}"}}
    done = run("--assets", "tokenizer", repository="deepseek-moe-16b-base")
    assert "Note: deepseek-moe-16b-base is taken as deepseek-ai/deepseek-moe-16b-base\n" in done.stdout
    assert there(tmp_path / "assets/hf/deepseek-moe-16b-base") == {"tokenizer.json": b"{}"}


def test_a_second_run_downloads_nothing_again(run, hub, tmp_path):
    run("--assets", "config")
    hub.requests.clear()
    run("--assets", "config")
    assert [r for r in hub.requests if "/resolve/" in r.path] == []
    assert there(tmp_path / "assets/hf/A-Model") == only({"config.json", "generation_config.json"})


def test_goes_on_within_a_file_when_the_connection_breaks(run, hub, tmp_path):
    hub.repositories[REPOSITORY] = {"model.safetensors": LARGE}
    hub.cuts = {"model.safetensors": WRITTEN + 5}
    done = run("--assets", "safetensors")
    assert "The connection broke within model.safetensors; going on" in done.stdout
    assert there(tmp_path / "assets/hf/A-Model") == {"model.safetensors": LARGE}
    assert [r.range for r in hub.sent("GET", "model.safetensors")] == [None, f"bytes={WRITTEN}-"]


def test_gives_up_on_a_connection_that_keeps_breaking(module, monkeypatch, tmp_path):
    import huggingface_hub
    from requests.exceptions import ChunkedEncodingError
    calls = []

    def broken(**arguments):
        calls.append(arguments)
        raise ChunkedEncodingError("broken")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", broken)
    monkeypatch.setattr(module, "WAIT_AFTER_BREAK_S", 0)
    with pytest.raises(ChunkedEncodingError):
        module.fetch(huggingface_hub, REPOSITORY, COMMIT, ["a"], tmp_path, None)
    assert len(calls) == 1 + module.BREAKS_PER_FILE


def test_goes_on_within_a_file_after_the_script_was_killed(run, hub, environment, tmp_path):
    hub.repositories[REPOSITORY] = {"model.safetensors": LARGE}
    hub.stalls = {"model.safetensors": WRITTEN + 5}
    words = [sys.executable, SCRIPT, "--repo_id", REPOSITORY, "--assets", "safetensors"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as script:
        try:
            assert hub.stalled.wait(60)
            wait_until(lambda: any(p.stat().st_size == WRITTEN for p in tmp_path.rglob("*.incomplete")))
        finally:
            script.kill()
    assert there(tmp_path / "assets/hf/A-Model") == {}
    hub.requests.clear()
    run("--assets", "safetensors")
    assert there(tmp_path / "assets/hf/A-Model") == {"model.safetensors": LARGE}
    assert [r.range for r in hub.sent("GET", "model.safetensors")] == [f"bytes={WRITTEN}-"]


def wait_until(condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_the_token_goes_with_every_request(run, hub, tmp_path):
    hub.token = "hf_secret"
    done = run("--assets", "config", "--hf_token", "hf_secret")
    assert there(tmp_path / "assets/hf/A-Model") == only({"config.json", "generation_config.json"})
    assert all(r.authorization == "Bearer hf_secret" for r in hub.requests)
    assert "hf_secret" not in done.stdout + done.stderr


def test_without_the_token_a_gated_repository_is_refused_with_a_hint(run, hub, tmp_path):
    hub.token = "hf_secret"
    done = run("--assets", "config", status=1)
    assert "HTTP status 401" in done.stderr and "--hf_token" in done.stderr and "GatedRepoError: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "assets").exists()


@pytest.mark.parametrize("http_status", [403, 429, 500])
def test_a_refusal_to_list_is_raised_again_after_a_hint(run, hub, http_status):
    hub.status = http_status
    done = run("--all", status=1)
    assert f"HTTP status {http_status}" in done.stderr and "--hf_token" in done.stderr and "HfHubHTTPError: " in done.stderr


def test_a_repository_that_is_not_there_is_refused_with_a_hint(run):
    done = run("--all", repository="an-org/Another", status=1)
    assert "HTTP status 404" in done.stderr and "--hf_token" in done.stderr and "RepositoryNotFoundError: " in done.stderr


def test_a_hub_that_cannot_be_reached_is_an_error(run, environment):
    environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    done = run("--all", status=1)
    assert "Connection" in done.stderr and "Traceback" not in done.stderr


def test_a_listed_file_that_is_not_there_is_skipped(run, hub, tmp_path):
    hub.absent = {"config.json"}
    done = run("--assets", "config")
    assert "Skipped config.json: the hub does not have it\n" in done.stdout
    assert "Successfully downloaded 1 files" in done.stdout
    assert there(tmp_path / "assets/hf/A-Model") == only({"generation_config.json"})


def test_kinds_without_a_file_are_named(run, hub, tmp_path):
    del hub.repositories[REPOSITORY]["model.safetensors.index.json"]
    done = run("--assets", "index", "config", "--additional_patterns", "*.pth")
    assert "Warning: no files found for asset type 'index'\n" in done.stdout
    assert "Warning: no files found for pattern '*.pth'\n" in done.stdout
    assert "'config'" not in done.stdout
    assert there(tmp_path / "assets/hf/A-Model") == only({"config.json", "generation_config.json"})


@pytest.mark.parametrize("arguments, files", [(["--additional_patterns", "*.pth"], FILES), (["--all"], {})])
def test_nothing_found_is_a_warning(run, hub, tmp_path, arguments, files):
    hub.repositories[REPOSITORY] = files
    done = run(*arguments)
    assert f"Warning: nothing to download from {REPOSITORY}\n" in done.stdout and "Found" not in done.stdout
    assert not (tmp_path / "assets").exists()


@pytest.mark.parametrize("name", ["../outside.json", "a/../../outside.json", "/etc/outside.json"])
def test_a_name_that_leaves_the_folder_is_refused(run, hub, tmp_path, name):
    hub.repositories[REPOSITORY] = {"config.json": b"{}", name: b"x"}
    done = run("--all", status=1)
    assert f"ValueError: The repository lists a file '{name}'" in done.stderr
    assert not (tmp_path / "assets").exists()


@pytest.mark.parametrize("arguments", [[], ["--hf_token", "x"], ["--local_dir", "x"]])
def test_a_choice_of_files_is_required(run, hub, arguments):
    done = run(*arguments, status=2)
    assert "At least one of --all, --assets or --additional_patterns must be specified." in done.stderr
    assert hub.requests == []


@pytest.mark.parametrize("name", ["A-Model", "deepseek-moe-16b", "an-org/", "/A-Model", "an-org/A-Model/x", ""])
def test_a_name_of_another_form_is_refused(run, hub, module, name):
    with pytest.raises(ValueError, match="Invalid repo_id format: .* Expected format: 'organization/model-name'"):
        module.full_repo_id(name)
    done = run("--all", repository=name, status=1)
    assert f"ValueError: Invalid repo_id format: '{name}'. Expected format: 'organization/model-name'" in done.stderr
    assert hub.requests == []


def test_an_unknown_asset_type_is_refused(run, hub, module):
    with pytest.raises(ValueError, match="Unknown asset type: weights, logs. Known types: tokenizer, safetensors, index, config"):
        module.wanted_patterns(["tokenizer", "weights", "logs"], [])
    assert "ValueError: Unknown asset type: weights." in run("--assets", "weights", status=1).stderr
    assert hub.requests == []


# Python without its site packages stands for one that has no huggingface_hub.
WITHOUT_HUB = (sys.executable, "-S")


@pytest.fixture
def copied_script(tmp_path):
    script = tmp_path / "project/scripts/download_hf_assets.py"
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    return script


def test_finds_the_projects_own_python(run, tmp_path, copied_script):
    (tmp_path / "project/.venv").symlink_to(sys.prefix)
    run("--assets", "config", command=(*WITHOUT_HUB, copied_script))
    assert there(tmp_path / "assets/hf/A-Model") == only({"config.json", "generation_config.json"})


def test_says_what_to_install_when_no_python_has_the_hub(run, copied_script):
    done = run("--assets", "config", command=(*WITHOUT_HUB, copied_script), status=1)
    assert "scripts/setup.sh --with-download" in done.stderr and "requirements/download.txt" in done.stderr


def test_a_wrong_command_line_is_told_without_the_hub(run, copied_script):
    assert "ValueError: Unknown asset type" in run("--assets", "weights", command=(*WITHOUT_HUB, copied_script), status=1).stderr
