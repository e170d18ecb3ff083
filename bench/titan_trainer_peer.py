"""TorchTitan 0.3.0's Trainer as a peer of bench/train.py: steps of its own loop on a random batch, one document a row."""
import importlib
import logging
import pathlib
import sys
import tempfile

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/titan"))

import titan_trainer


class Trainer:
    def __init__(self, name, dtype, batch, seq_len, uses_flex=False):
        titan_trainer.prepare()
        if not uses_flex:
            titan_trainer.use_scaled_dot_product_attention()
        spec = importlib.import_module(f"torchtitan.models.{name}").model_registry("debugmodel")
        tokens_BL = torch.randint(0, 2000, (batch, seq_len + 1), generator=torch.Generator().manual_seed(0))
        positions_BL = torch.arange(seq_len).expand(batch, seq_len).contiguous()
        train = {"local_batch_size": batch, "seq_len": seq_len, "steps": 1000, "mixed_precision_param": dtype, "adamw": {"lr": 8e-4},
                 "lr_scheduler": {"warmup_steps": 2}}
        self.folder = tempfile.TemporaryDirectory()
        config = titan_trainer.trainer_config(spec, train, dump_folder=self.folder.name, tokenizer=ROOT / "tests/assets/tokenizer",
                                              loader=titan_trainer.fixed_loader([(tokens_BL[:, :-1], tokens_BL[:, 1:], positions_BL)]))
        logging.disable(logging.WARNING)
        self.trainer = config.build()
        self.trainer.metrics_processor.log = self.record
        self.batches = self.trainer.batch_generator(self.trainer.dataloader)
        self.model = self.trainer.model_parts[0]

    def record(self, step, avg, *_, **__):
        self.loss = avg

    def step(self):
        self.trainer.step += 1
        self.trainer.train_step(self.batches)
        return self.loss
