"""What the debug models multiply: shapes of their projections, operations of a step, bytes of a step's state. For bench/train.py."""
import dataclasses

VOCABULARY, DIM, LAYERS, HEADS = 2048, 256, 6, 16


@dataclasses.dataclass
class Shapes:
    """`projections`: [(inputs, outputs)] that every token passes through; `routed`: those of a token's experts; head sizes for scores."""
    projections: list
    routed: list
    key_dim: int
    value_dim: int


def swiglu(hidden):
    return [(DIM, hidden), (DIM, hidden), (hidden, DIM)]


MODELS = {
    "llama3": Shapes([*[(DIM, 3 * DIM), (DIM, DIM), *swiglu(768)] * LAYERS, (DIM, VOCABULARY)], [], 16, 16),
    "deepseek_v3": Shapes([*[(DIM, HEADS * 192), (DIM, 512 + 64), (512, HEADS * 256), (HEADS * 128, DIM)] * LAYERS, *swiglu(1024),
                           *swiglu(2 * 256) * (LAYERS - 1), (DIM, VOCABULARY)],
                          swiglu(256) * 3 * (LAYERS - 1), 192, 128),
}


def flops_of_a_step(name, batch, seq_len):
    """Forward and backward, of scores only what causality leaves."""
    shapes = MODELS[name]
    weights = sum(k * n for k, n in shapes.projections + shapes.routed)
    scores = LAYERS * HEADS * (shapes.key_dim + shapes.value_dim) * (seq_len + 1) / 2
    return 6 * (weights + scores) * batch * seq_len


def multiply_seconds(name, dtype, num_tokens, clock):
    """(operations, seconds) of the projections' three products each (forward, and the gradients of both factors), and nothing else."""
    import torch
    total_flops = total_seconds = 0.0
    for inputs, outputs in sorted(set(MODELS[name].projections)):
        x, w, g = (torch.randn(shape, dtype=dtype) for shape in ((num_tokens, inputs), (outputs, inputs), (num_tokens, outputs)))
        count = MODELS[name].projections.count((inputs, outputs))
        start = clock()
        x @ w.t(), g @ w, g.t() @ x
        total_seconds += (clock() - start) * count
        total_flops += 6 * num_tokens * inputs * outputs * count
    return total_flops, total_seconds
