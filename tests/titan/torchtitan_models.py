"""The models of real torchtitan on the CPU, with its own adapter to Hugging Face's names. `prepare` comes first."""
import dataclasses
import hashlib
import importlib
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements/torchtitan.txt"

# Of pip, where it met no index that knows the package at all; a version that an index does not have is an error.
UNREACHABLE = re.compile(r"\(from versions: none\)|connection broken|timed out|ConnectionError|Temporary failure", re.IGNORECASE)


def prepare():
    """Makes torchtitan importable: installs it into the build folder, unless that was done. Skips the tests where no index can be reached."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    site = ROOT / "build/torchtitan" / wanted
    if not site.exists():
        install(site)
    sys.path.append(str(site))
    # GPU kernels, which need a package of a gigabyte; nothing on the CPU calls them.
    sys.modules["torchtitan.distributed.minimal_async_ep.kernels"] = _Nothing("kernels")


def install(site):
    staging = site.with_name(f"{site.name}-incomplete")
    shutil.rmtree(staging, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1",
               "--timeout", "20", "--target", staging, "--requirement", REQUIREMENTS]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode and UNREACHABLE.search(done.stdout):
        pytest.skip(f"torchtitan cannot be installed, because no package index can be reached:\n{done.stdout[-1500:]}")
    assert done.returncode == 0, done.stdout
    staging.rename(site)


class _Nothing(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


@dataclasses.dataclass
class TitanModel:
    """A model of torchtitan's registry."""
    model: str
    flavor: str
    mtp_layers: int = 0

    def __str__(self):
        return f"{self.model}-{self.flavor}" + (f"-mtp{self.mtp_layers}" if self.mtp_layers else "")

    def options(self):
        """What the tool is told of it."""
        mtp = ["--mtp-layers", self.mtp_layers] if self.mtp_layers else []
        return ["--model", self.model, "--flavor", self.flavor, *mtp]

    def spec(self):
        module = importlib.import_module(f"torchtitan.models.{self.model}")
        mtp = {"num_mtp_layers": self.mtp_layers} if self.mtp_layers else {}
        return module.model_registry(self.flavor, **mtp)

    def build(self, device="cpu"):
        with torch.device(device):
            return self.spec().model.build()

    def to_hf(self, state):
        spec = self.spec()
        return spec.state_dict_adapter(spec.model, None).to_hf(dict(state))


def flavors(model):
    module = importlib.import_module(f"torchtitan.models.{model}")
    return list(getattr(module, {"llama3": "llama3_configs", "deepseek_v3": "deepseekv3_configs"}[model]))


def random_state(model, seed):
    """Values for every tensor of a built model's state dict, none of which is another's."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(tensor.shape, generator=generator) for name, tensor in model.state_dict().items()}
