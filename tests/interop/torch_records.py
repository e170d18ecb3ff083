"""Tensors and Python objects as the records of the fixtures' expected.json (its notation is in tests/data/dcp/README.md)."""
import hashlib
import json
import math

import torch


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def raw_bytes(tensor):
    """The elements row-major and little-endian, whatever the strides and view bits."""
    tensor = tensor.detach().cpu()
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    tensor = tensor.resolve_neg()
    if tensor.numel() == 0:
        return b""
    return tensor.contiguous().clone().reshape(-1).view(torch.uint8).numpy().tobytes()


def tensor_record(tensor):
    data = raw_bytes(tensor)
    return {"kind": "tensor", "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape), "nbytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest()}


def render(value):
    """A value in the fixtures' JSON notation."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(value) is int:
        return value if abs(value) < 2**53 else {"$int": str(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, complex):
        return {"$complex": [value.real, value.imag]}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, torch.Tensor):
        record = tensor_record(value)
        del record["kind"]
        return {"$tensor": record}
    if isinstance(value, torch.dtype):
        return {"$dtype": dtype_name(value)}
    if isinstance(value, torch.Size):
        return {"$size": list(value)}
    if isinstance(value, tuple):
        return {"$tuple": [render(x) for x in value]}
    if isinstance(value, list):
        return [render(x) for x in value]
    if isinstance(value, (set, frozenset)):
        return {"$set": sorted((render(x) for x in value), key=json.dumps)}
    if type(value) is dict and all(isinstance(k, str) and not k.startswith("$") for k in value):
        return {k: render(v) for k, v in value.items()}
    if isinstance(value, dict):
        return {"$dict": [[render(k), render(v)] for k, v in value.items()], "$class": type(value).__name__}
    return {"$repr": type(value).__name__}


def record(value):
    if isinstance(value, torch.Tensor):
        return tensor_record(value)
    return {"kind": "bytes", "type": type(value).__name__, "json": render(value)}


def differences(want, value):
    """What is wrong with a loaded value, as one line; empty when it is right."""
    got = record(value)
    return "; ".join(f"{field}: want {str(want[field])[:90]} got {str(got[field])[:90]}"
                     for field in got if field in want and got[field] != want[field])
