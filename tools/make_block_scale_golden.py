#!/usr/bin/env python3
"""Write tests/data/block_scale: what torch gives for block-quantised elements. Needs torch and numpy.

float8_X.bin: the scales (float32), then for each of float32, bfloat16 and float16 the values of all 256 codes for each
scale: `(codes.float() * scale).to(dtype)`.
quantise_X.bin: the scales, how many values there are (int32), the values (type X), then the float8_e4m3fn codes of all
values for each scale: `(values.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)`.
mxfp4.bin: 8 packed bytes for each of the 256 scales, which hold each of the 16 codes once, then the float32, bfloat16 and
float16 values.
NaNs are written as one code a type, as in tests/data/cast.
"""

import pathlib
import sys

import numpy as np
import torch
from make_cast_golden import from_codes, to_codes

SCALES = np.array([1, 2.5e-4, 1.7e-3, 0.75, 3e-41, 2e37, np.inf, np.nan, 0], np.float32)
RESULTS = ["float32", "bfloat16", "float16"]
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def dequantised(name):
    codes = from_codes(np.arange(256), name).float()
    products = codes[None] * torch.from_numpy(SCALES)[:, None]
    return [to_codes(products.to(getattr(torch, to)), to) for to in RESULTS]


def hard_values(rng):
    """Float64 values: the codes times a scale, the middles between them and their neighbours, and the far ends."""
    finite = from_codes(np.arange(127), "float8_e4m3fn").double().numpy()
    middles = np.concatenate([(finite[1:] + finite[:-1]) / 2, [464, 480, 1000]])
    scales = SCALES[:5].astype(np.float64)
    values = [(finite[::3, None] * scales[:2]).ravel(), (middles[:, None] * scales[:1]).ravel(),
              (rng.choice(middles, (60, 1)) * scales).ravel(), rng.normal(0, 0.1, 150), rng.normal(0, 300, 50),
              [0, np.inf, np.nan, 1e-45, 1e-41, 1e-38, 6e-8, 6e4, 3.3e38, 1e39, 1e300, 1e-300]]
    values = np.concatenate(values)
    values[::2] *= -1
    return torch.from_numpy(values)


def quantised(values):
    quotients = values.float()[None] / torch.from_numpy(SCALES)[:, None]
    return to_codes(quotients.clamp(-448, 448).to(torch.float8_e4m3fn), "float8_e4m3fn")


def mxfp4(rng):
    nibbles = np.stack([rng.permutation(16) for _ in range(256)]).astype(np.uint8)
    packed = nibbles[:, 0::2] | nibbles[:, 1::2] << 4
    magnitudes = E2M1[torch.from_numpy(nibbles & 7).long()]
    values = torch.where(torch.from_numpy(nibbles >= 8), -magnitudes, magnitudes)
    powers = from_codes(np.arange(256), "float8_e8m0fnu").float()
    return [packed] + [to_codes((values * powers[:, None]).to(getattr(torch, to)), to) for to in RESULTS]


def write(path, arrays):
    path.write_bytes(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path("tests/data/block_scale")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(4)
    for name in ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]:
        write(folder / f"{name}.bin", [SCALES, *dequantised(name)])
    values = hard_values(rng)
    for name in ["float64", "float32", "bfloat16", "float16"]:
        typed = values.to(getattr(torch, name))
        write(folder / f"quantise_{name}.bin",
              [SCALES, np.int32(len(typed)), to_codes(typed, name), quantised(typed)])
    write(folder / "mxfp4.bin", mxfp4(rng))


if __name__ == "__main__":
    main()
