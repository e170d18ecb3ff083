"""Writes the expectations of numerics folders by TorchTitan's own Trainer: `titan_expectations.py FOLDER...`."""
import json
import sys
import tempfile
from pathlib import Path

import torch
import titan_trainer
from safetensors.torch import load_file, save_file
from titan_trainer import full

TOKENIZER = Path(__file__).resolve().parents[1] / "assets/tokenizer"
SUFFIXES = {"genuine": "", "fp32experts": "_fp32experts"}
SMALL = 700


class Recording:
    """What a Trainer does with the batches of a folder, in the form of expected.json and expected.safetensors."""

    def __init__(self, folder, dump_folder):
        self.variant = json.loads((folder / "variant.json").read_text())
        stored = load_file(folder / "batches.safetensors")
        self.batches = [tuple(stored[f"{kind}.{i}"].long() for kind in ("tokens", "labels", "positions")) for i in range(len(stored) // 3)]
        self.train = self.variant["train"]
        self.depths = self.variant["arch"].get("num_mtp_layers", 0)
        spec = titan_trainer.spec_of(self.variant, self.train["seq_len"])
        self.trainer = titan_trainer.trainer_config(spec, self.train, dump_folder=dump_folder, tokenizer=TOKENIZER, depths=self.depths,
                                                    loader=titan_trainer.fixed_loader(self.batches)).build()
        self.model = self.trainer.model_parts[0]
        self.load(load_file(folder / "weights.safetensors"))
        self.moes = [(name, block.moe) for name, block in self.model.named_modules() if getattr(block, "moe_enabled", False)]
        self.tensors = {}

    def load(self, weights):
        from torch.distributed.tensor import DTensor, distribute_tensor
        state = {}
        for name, into in self.model.state_dict().items():
            value = weights[name].clone()
            state[name] = distribute_tensor(value, into.device_mesh, into.placements) if isinstance(into, DTensor) else value
        self.model.load_state_dict(state, strict=True)

    def forward(self):
        tokens, labels, positions = self.batches[0]
        skip, self.model._skip_lm_head = self.model._skip_lm_head, False
        self.model.eval()
        with torch.no_grad(), self.trainer.train_context():
            inputs, labels, options = self.trainer.post_dataloading_process({"input": tokens, "positions": positions}, labels)
            out = self.model(inputs, **options)
        self.model.train()
        self.model._skip_lm_head = skip
        self.trainer.ntokens_seen = 0
        for number, logits in enumerate(out if isinstance(out, list) else [out]):
            self.tensors[f"mtp_logits.{number - 1}" if number else "logits"] = full(logits).float().contiguous()
        loss_sum = torch.nn.functional.cross_entropy(self.tensors["logits"].flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        valid = int((labels != -100).sum())
        return {"loss_sum": float(loss_sum), "valid_tokens": valid, "loss_mean": float(loss_sum) / valid}

    def steps(self):
        from torchtitan.distributed import utils
        clip, record = utils.clip_grad_norm_, {}

        def before_clipping(*arguments, **options):
            record["tokens_per_expert"] = {name: [int(n) for n in full(moe.tokens_per_expert_E)] for name, moe in self.moes}
            if self.trainer.step <= 2:
                gradients = {name: full(p.grad) for name, p in self.model.named_parameters()}
                record["param_grad_norms"] = {name: float(g.double().norm()) for name, g in gradients.items()}
                if self.trainer.step == 1:
                    self.tensors |= {f"grad1.{name}": g.clone() for name, g in gradients.items() if g.numel() <= SMALL}
            return clip(*arguments, **options)

        def log(step, loss, _, grad_norm, extra_metrics):
            record.update(step=step, loss=loss, grad_norm=grad_norm, ntokens_seen=extra_metrics["n_tokens_seen"],
                          lr=[value for name, value in extra_metrics.items() if name.startswith("lr/")])
        utils.clip_grad_norm_, self.trainer.metrics_processor.log = before_clipping, log
        batches, num_steps = self.trainer.batch_generator(self.trainer.dataloader), self.train["steps"]
        for step in range(1, num_steps + 1):
            record.clear()
            self.trainer.step += 1
            self.trainer.train_step(batches)
            if self.moes:
                record["expert_bias"] = {name: full(moe.expert_bias_E).tolist() for name, moe in self.moes}
            if step in (1, num_steps):
                record["param_norms_after"] = {name: float(full(p).double().norm()) for name, p in self.model.named_parameters()}
            yield dict(record)
        utils.clip_grad_norm_ = clip


def write_expectations(folder, kind):
    titan_trainer.use_fp32_experts(kind == "fp32experts")
    with tempfile.TemporaryDirectory() as dump_folder:
        recording = Recording(folder, dump_folder)
        expected = {"mode": kind, "forward": recording.forward(), "steps": list(recording.steps())}
    for curve, key in (("loss_curve", "loss"), ("grad_norm_curve", "grad_norm")):
        expected[curve] = [record[key] for record in expected["steps"]]
    expected["lr_used"] = [record["lr"][0] for record in expected["steps"]]
    (folder / f"expected{SUFFIXES[kind]}.json").write_text(json.dumps(expected))
    tensors = recording.tensors if kind == "genuine" else {"logits": recording.tensors["logits"]}
    save_file(tensors, folder / f"expected{SUFFIXES[kind]}.safetensors")
    torch.distributed.destroy_process_group()


def main():
    torch.set_num_threads(1)
    titan_trainer.prepare()
    for folder in map(Path, sys.argv[1:]):
        for kind in SUFFIXES if "deepseek" in (folder / "variant.json").read_text() else ["genuine"]:
            write_expectations(folder, kind)


if __name__ == "__main__":
    main()
