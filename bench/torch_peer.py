"""torch.distributed.checkpoint and safetensors as peers, driven a command a line like state_bench.

Started once a rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; every rank gets every command. Commands:

  build BYTES | save DIR THREADS | load DIR | safetensors-save FILE | safetensors-load FILE

The answer is a line of JSON with the seconds between two barriers. Python's cyclic collector is off inside timed parts.
"""
import gc
import json
import logging
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.tensor import DTensor

import statedict


def local(value):
    return value.to_local() if isinstance(value, DTensor) else value


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(2)
    world = dist.get_world_size()
    state = {}
    for line in sys.stdin:
        words = line.split()
        gc.collect()
        gc.disable()
        cpu = time.process_time()
        dist.barrier()
        start = time.perf_counter()
        if words[0] == "build":
            state = statedict.build(int(words[1]), world)
        elif words[0] == "save":
            dcp.save(state, storage_writer=FileSystemWriter(words[1], thread_count=int(words[2])))
        elif words[0] == "load":
            dcp.load(state, storage_reader=FileSystemReader(words[1]))
        elif words[0] == "safetensors-save":
            from safetensors.torch import save_file

            save_file({k: local(v) for k, v in state.items() if isinstance(v, DTensor)}, words[1])
        elif words[0] == "safetensors-load":
            from safetensors import safe_open

            with safe_open(words[1], framework="pt") as file:
                for key in file.keys():
                    local(state[key]).copy_(file.get_tensor(key))
        dist.barrier()
        seconds = time.perf_counter() - start
        gc.enable()
        print(json.dumps({"seconds": seconds, "cpu_seconds": time.process_time() - cpu}), flush=True)
    dist.destroy_process_group()


main()
