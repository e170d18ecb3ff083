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


def kept_numbers_per_token(name):
    """(in the compute dtype, in float32): what a token's backward pass needs of all layers, where norms, rotations and gated products are
    not kept twice."""
    score_inputs = {"llama3": 4 * DIM, "deepseek_v3": HEADS * (192 + 192 + 128 + 128) + 576 + 512 + HEADS * 128}[name]
    dense = {"llama3": 3 * 768, "deepseek_v3": 3 * 1024}[name]
    around = 4 * DIM  # both inputs of norms and both results
    if name == "llama3":
        return LAYERS * (around + score_inputs + dense) + 3 * DIM, LAYERS * HEADS
    routed = 3 * (DIM + 3 * 256 + DIM)
    experts = 3 * 2 * 256 + routed / 2  # routed experts compute in bfloat16
    return LAYERS * (around + score_inputs) + dense + (LAYERS - 1) * experts + 3 * DIM, LAYERS * (HEADS + 8)


def memory_bytes(name, dtype, batch, seq_len):
    """Parameters, gradients and two moments in float32; what is kept; logits of an eighth of the tokens with their gradients; with
    bfloat16, parameters and gradients in it."""
    shapes = MODELS[name]
    count = DIM * VOCABULARY + sum(k * n for k, n in shapes.projections) + (LAYERS - 1) * 8 * 3 * 256 * DIM * (name == "deepseek_v3")
    size = 2 if dtype == "bfloat16" else 4
    narrow, wide = kept_numbers_per_token(name)
    tokens = batch * seq_len
    activations = tokens * (narrow * size + wide * 4) + 3 * 4 * tokens / 8 * VOCABULARY
    copies = count * 2 if dtype == "bfloat16" else 0
    return {"parameters": 4 * count, "gradients": 4 * count, "moments": 8 * count, "activations": activations + copies}
