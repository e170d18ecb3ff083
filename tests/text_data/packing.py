"""The rules of packed text data in plain Python: what the loader is held against."""
import pickle

import numpy


def byte_ids(text):
    return [256, *text.encode("utf-8"), 257]


class PackedData:
    """One data-parallel rank's samples, one after another; `state` and `load` speak TorchTitan's form."""

    def __init__(self, texts, seq_len, rank=0, world=1, infinite=True, encode=byte_ids):
        each, longer = divmod(len(texts), world)
        first = rank * each + min(rank, longer)
        self.block = texts[first:first + each + (rank < longer)]
        self.seq_len, self.infinite, self.encode = seq_len, infinite, encode
        self.inputs, self.labels, self.positions = [], [], []
        self.read, self.epoch, self.order = 0, 0, list(range(len(self.block)))

    def _start_epoch(self, epoch):
        self.epoch = epoch
        count = len(self.block)
        self.order = numpy.random.default_rng(42 + epoch).permutation(count).tolist() if epoch else list(range(count))

    def sample(self):
        """Inputs, positions and labels of the next sample; None when finite data has run out."""
        while len(self.inputs) < self.seq_len:
            if self.read == len(self.block):
                if not self.infinite:
                    return None
                self.read = 0
                self._start_epoch(self.epoch + 1)
            ids = self.encode(self.block[self.order[self.read]])
            self.read += 1
            self.inputs += ids[:-1]
            self.labels += ids[1:]
            self.positions += range(len(ids) - 1)
        cut = []
        for name in ("inputs", "positions", "labels"):
            buffer = getattr(self, name)
            cut.append(buffer[:self.seq_len])
            setattr(self, name, buffer[self.seq_len:])
        positions = cut[1]
        if offset := positions[0]:
            lead = positions.index(0) if 0 in positions else len(positions)
            positions[:lead] = [p - offset for p in positions[:lead]]
        return cut

    def batch(self, rows):
        samples = []
        while len(samples) < rows and (sample := self.sample()):
            samples.append(sample)
        if not samples:
            return None
        inputs, positions, labels = (list(part) for part in zip(*samples))
        return {"inputs": inputs, "positions": positions, "labels": labels}

    def state(self, batches, rows, protocol=4):
        return pickle.dumps({
            "_index_sampler_state": None, "_sampler_iter_state": {"samples_yielded": batches * rows},
            "_sampler_iter_yielded": batches, "_num_yielded": batches, "_IterableDataset_len_called": None, "_shared_seed": None,
            "fetcher_state": {"dataset_iter_state": None, "fetcher_ended": False},
            "dataset_state": {"inputs_buffer": self.inputs, "labels_buffer": self.labels, "positions_buffer": self.positions,
                              "sample_idx": self.read, "epoch": self.epoch},
            "_iterator_finished": False}, protocol=protocol)

    def load(self, state):
        data = state["dataset_state"]
        self.inputs, self.labels = list(data["inputs_buffer"]), list(data["labels_buffer"])
        self.positions = list(data["positions_buffer"])
        self._start_epoch(data["epoch"])
        self.read = data["sample_idx"]


def global_batches(texts, seq_len, world, rows):
    """Batches of all ranks, micro-step by micro-step, of the one packed stream that `dataloader.order` global deals out."""
    stream = PackedData(texts, seq_len)
    while True:
        yield [stream.batch(rows) for _ in range(world)]
