#!/usr/bin/env python3
"""Write tests/data/cast: what torch's `.to()` gives for every pair of real float types. Needs torch and numpy.

For float64, float32 and the float8 types, TYPE.bin holds the inputs and then the outputs for each other type, in the
order of TYPES: float8 inputs are all 256 codes, the others a list of hard cases (ties, edges, subnormals, overflow).
For float16 and bfloat16, all 65536 codes are inputs and checksums.txt holds the CRC-32 of each output.
NaNs are written as one code a type: torch's own differ between its vector code and its scalar code.
"""

import pathlib
import sys
import zlib

import numpy as np
import torch

TYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
         "float8_e5m2fnuz", "float8_e8m0fnu"]
NAN = {"float32": 0x7FC00000, "float64": 0x7FF8000000000000, "float16": 0x7E00, "bfloat16": 0x7FC0,
       "float8_e4m3fn": 0x7F, "float8_e5m2": 0x7F, "float8_e4m3fnuz": 0x80, "float8_e5m2fnuz": 0x80,
       "float8_e8m0fnu": 0xFF}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype(name):
    return getattr(torch, name)


def from_codes(codes, name):
    size = dtype(name).itemsize
    array = np.asarray(codes, UNSIGNED[size])
    signed = array if size == 1 else array.view(f"int{8 * size}")
    return torch.from_numpy(signed.copy()).view(dtype(name))


def to_codes(tensor, name):
    size = dtype(name).itemsize
    codes = tensor.contiguous().view(SIGNED[size]).numpy().view(UNSIGNED[size]).copy()
    codes[torch.isnan(tensor.to(torch.float32)).numpy()] = NAN[name]
    return codes


def converted(codes, source, target):
    return to_codes(from_codes(codes, source).to(dtype(target)), target)


def boundary_values(rng):
    """float64 values at and between neighbouring codes of every narrow type, all exact in float32."""
    values = [0.0]
    for name in TYPES[2:]:
        size = dtype(name).itemsize
        half = 1 << (8 * size - 1)
        codes = np.arange(half if size == 1 else half - 1)
        finite = from_codes(codes, name).to(torch.float64).numpy()
        finite = np.unique(finite[np.isfinite(finite)])
        middle = (finite[1:] + finite[:-1]) / 2
        if size == 2:
            chosen = np.unique(np.concatenate([np.arange(12), len(middle) - 1 - np.arange(12),
                                               rng.integers(0, len(middle), 60)]))
        else:
            chosen = np.arange(0, len(middle), 2 if len(middle) < 130 else 4)
        values += list(finite[chosen]) + list(middle[chosen])
        step = finite[-1] - finite[-2]
        values += [finite[-1], finite[-1] + step / 2, finite[-1] + step, finite[-1] + 1.5 * step, finite[0] / 2]
    return np.array([v for v in values if abs(v) < 3.4e38])


def float32_codes(rng):
    centre = boundary_values(rng).astype(np.float32).view(np.uint32).astype(np.int64)
    near = np.concatenate([centre, centre[::2] + 1, centre[1::2] - 1])
    powers = np.arange(256, dtype=np.int64) << 23
    edges = np.array([0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
                      0x7FFFFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x7F7F8001])
    codes = np.unique(np.concatenate([near, powers, powers[::8] + 1, edges, rng.integers(0, 1 << 31, 200)]))
    codes = codes[(codes >= 0) & (codes < 1 << 31)]
    signs = np.where(rng.random(len(codes)) < 0.4, 1 << 31, 0)
    both = np.concatenate([codes | signs, edges | 1 << 31])
    return both.astype(np.uint32)


def float64_codes(rng, singles):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = singles.view(np.float32).astype(np.float64)
    base = values.view(np.uint64)[rng.permutation(len(values))[:1100]]
    finite = base[np.isfinite(base.view(np.float64))]
    nudged = finite[: len(finite) // 2] + np.uint64(1)  # not exact in float32: rounded twice on the way down
    single_ties = rng.integers(0x38, 0x47, 150).astype(np.uint64) << np.uint64(56)
    single_ties |= rng.integers(0, 1 << 56, 150).astype(np.uint64) & ~np.uint64((1 << 29) - 1) | np.uint64(1 << 28)
    edges = np.array([0x47EFFFFFE0000000, 0x47EFFFFFEFFFFFFF, 0x47EFFFFFF0000000, 0x47F0000000000000, 0x36A0000000000000,
                      0x3690000000000000, 0x3690000000000001, 0x380FFFFFE0000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
                      0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001, 1, 0x8000000000000000], np.uint64)
    noise = rng.integers(0, 1 << 63, 100).astype(np.uint64)
    return np.concatenate([base, nudged, single_ties, single_ties + np.uint64(1), edges, noise])


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/data/cast")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    inputs = {name: np.arange(1 << (8 * dtype(name).itemsize)) for name in TYPES if dtype(name).itemsize <= 2}
    inputs["float32"] = float32_codes(rng)
    inputs["float64"] = float64_codes(rng, inputs["float32"])
    checksums = []
    for source in TYPES:
        codes = inputs[source].astype(UNSIGNED[dtype(source).itemsize])
        outputs = {target: converted(codes, source, target) for target in TYPES if target != source}
        if dtype(source).itemsize == 2:
            checksums += [f"{source} {target} {zlib.crc32(out.tobytes()):08x}\n" for target, out in outputs.items()]
        else:
            (folder / f"{source}.bin").write_bytes(codes.tobytes() + b"".join(o.tobytes() for o in outputs.values()))
    (folder / "checksums.txt").write_text("".join(checksums))


main()
