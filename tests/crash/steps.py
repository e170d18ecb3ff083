"""What steps of a run hold, and when they are whole."""
from tool import milepost

# What the last save of a run holds.
LAST = {"full": (), "model": ("--checkpoint.last-save-model-only",), "hf": ("--checkpoint.last-save-model-only", "--checkpoint.last-save-in-hf")}
HASHES = "--checkpoint.extensions.verify-hash-manifest"
MANIFEST, PENDING = "_checkpoint_hash_manifest.json", "_checkpoint_hash_manifest.pending"


def check_step(path, has_manifest):
    """That it reads as what was written, and that a manifest, if it has one, is finished."""
    milepost("verify", path)
    names = {file.name for file in path.iterdir()}
    assert PENDING not in names and (MANIFEST in names) == has_manifest, sorted(names)
    if has_manifest:
        milepost("manifest", "verify", path)
