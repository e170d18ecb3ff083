#!/usr/bin/env python3
"""Writes tests/data/pickle: what Python pickles, with the JSON that Milepost must show for it.

    python3 tools/make_pickle_golden.py            # Python 3.11; metadata.tsv needs torch, the others no packages

golden.tsv    name, protocol (0 to 5), pickle in hex, JSON (ASCII, json.dumps' layout; only in a name's first line)
torch.tsv     name, data.pkl in hex: one of each kind out of the torch.save archives in tests/data/dcp, to be
              written back byte for byte
metadata.tsv  name, protocol, pickle in hex: torch's own metadata objects
"""
import collections
import json
import math
import os
import pickle
import struct
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DATA = os.path.join(ROOT, "tests", "data")


def render(o):
    """The notation of tests/data/dcp/README.md, and slice and range."""
    if o is None or isinstance(o, (bool, str)):
        return o
    if type(o) is int:
        return o if abs(o) < 2**53 else {"$int": str(o)}
    if type(o) is float:
        return {"$float": repr(o)} if math.isnan(o) or math.isinf(o) else o
    if isinstance(o, complex):
        return {"$complex": [render(o.real), render(o.imag)]}
    if isinstance(o, (bytes, bytearray)):
        return {"$bytes": bytes(o).hex()}
    if isinstance(o, slice):
        return {"$slice": [render(x) for x in (o.start, o.stop, o.step)]}
    if isinstance(o, range):
        return {"$range": [render(x) for x in (o.start, o.stop, o.step)]}
    if isinstance(o, tuple):
        return {"$tuple": [render(x) for x in o]}
    if isinstance(o, list):
        return [render(x) for x in o]
    if isinstance(o, (set, frozenset)):
        return {"$set": sorted((render(x) for x in o), key=json.dumps)}
    if isinstance(o, dict):
        if all(isinstance(k, str) and not k.startswith("$") for k in o) and type(o) is dict:
            return {k: render(v) for k, v in o.items()}
        return {"$dict": [[render(k), render(v)] for k, v in o.items()], "$class": type(o).__name__}
    raise TypeError(type(o))


def objects():
    edges = [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64, 2**127]
    shared = ["shared", 1]
    dictionary = collections.defaultdict(list)
    dictionary["a"].append(1)
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    ordered.note = {"kept": True}
    thousand = range(1000)
    yield "none", None
    yield "bools", [True, False]
    yield "integers", [s * x for x in edges for s in (1, -1)] + [-(2**63) - 1, -129, -128, -32768, 10**40, -(10**40)]
    yield "long_integer", [3**1500, -(3**1500), 1 << 8000]
    yield "floats", [
        *(0.0, -0.0, 0.1, 1e-5, 1e-4, 1e15, 1e16, 123456789012345680.0, 3.14159, 1.0, -2.5, 5e-324, 1e22, 1e23),
        *(1.7976931348623157e308, 2.0**70, 0.30000000000000004, math.nan, math.inf, -math.inf),
    ]
    yield "complex", [1 + 2j, complex(-0.0, 1e-9), complex(math.nan, math.inf)]
    yield "texts", [
        *("", "a", "abc", "caf\xe9", "\u6f22\u5b57", "\U0001f600", "\ud83d", "\udc00x", "\\u0041", "\\\\u", "\"q'"),
        *("a\nb\tc\r\0\x01\x1a\x7f\x85", "x" * 255, "y" * 256, "\xff" * 200),
    ]
    yield "bytes", [b"", b"a", b"abc", bytes(range(256)), b"x" * 300, bytearray(b""), bytearray(b"\x00\xffab")]
    yield "lists", [[], [1], [1, 2], [None] * 1000, [None] * 1001, [[[[]]]], [None] * 2000]
    yield "tuples", [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),))]
    yield "dicts", [{}, {"a": 1}, {"a": 1, "b": [2]}, dict.fromkeys(thousand), dict.fromkeys(range(1001))]
    yield "odd_keys", [
        {1: "a", "1": "b", None: 0, (1, "x"): 1, b"k": 2, 2.5: 3, True: "t"},
        {"$x": 1},
        {frozenset([1, 2]): 1},
    ]
    yield "mappings", [
        collections.OrderedDict(),
        ordered,
        collections.OrderedDict.fromkeys(thousand),
        collections.OrderedDict.fromkeys(range(1001)),
        dictionary,
        collections.defaultdict(int, {"n": 3}),
        collections.defaultdict(None, x=1),
        collections.Counter("abca"),
    ]
    yield "sets", [
        *(set(), {1}, {1, 2, 3}, frozenset(), frozenset(["a", "b", "\xe9", "\U0001f600"])),
        {1.5, "x", None, (1, 2), frozenset([1])},
    ]
    yield "ranges", [range(3), range(1, 10, 2), range(5, -5, -1), slice(None), slice(1, 10, 2), slice("a", None, 2.5)]
    yield "shared", [shared, shared, {"x": shared, "y": (shared,)}, "text", "text"]
    yield "many_memos", [many := [[] for _ in range(300)], many[::-1]]
    yield "nested", {"a": {"b": {"c": [1, (2, {"d": {3}})]}}, "e": [{"f": b"\x80"}]}


def torch_pickles():
    """The distinct data.pkl records of the fixtures, found by their local headers."""
    seen = set()
    for folder, _, names in sorted(os.walk(os.path.join(DATA, "dcp"))):
        for name in sorted(names):
            with open(os.path.join(folder, name), "rb") as f:
                content = f.read()
            at = content.find(b"/data.pkl")
            while at >= 0:
                header = content.rfind(b"PK\3\4", 0, at)
                lengths = struct.unpack_from("<HH", content, header + 26)
                start = header + 30 + sum(lengths)
                end = content.find(b"PK\7\10", start)
                if header >= 0 and header + 30 + lengths[0] == at + 9 and end >= 0:
                    record = content[start:end]
                    if record not in seen and struct.unpack_from("<I", content, end + 8)[0] == len(record):
                        seen.add(record)
                        fixture = os.path.dirname(folder) if "ckpt" in folder else folder
                        yield os.path.basename(fixture) + "/" + name, record
                at = content.find(b"/data.pkl", at + 1)


def write_metadata_pickles(path):
    try:
        import torch  # noqa: F401
    except ImportError:
        print("torch is not there: metadata.tsv stays as it is")
        return
    with open(path, "w") as f:
        for fixture in ("old_style", "rank_local"):
            folder = os.path.join(DATA, "dcp", fixture, "ckpt")
            name = next(n for n in sorted(os.listdir(folder)) if n.endswith(".metadata"))
            with open(os.path.join(folder, name), "rb") as source:
                value = pickle.load(source)  # noqa: S301 our own fixture
            for protocol in range(6):
                f.write(f"{fixture}\t{protocol}\t{pickle.dumps(value, protocol).hex()}\n")


def main():
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    assert sys.version_info[:2] == (3, 11), "the golden pickles are those of Python 3.11"
    out = os.path.join(DATA, "pickle")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "golden.tsv"), "w") as f:
        for name, value in objects():
            text = json.dumps(render(value))
            previous = None
            for protocol in range(6):
                data = pickle.dumps(value, protocol)
                if data[2:] != previous:  # protocols 3 and 4 often differ by their number only
                    f.write(f"{name}\t{protocol}\t{data.hex()}\t{text}\n")
                    text = ""
                previous = data[2:]
    write_metadata_pickles(os.path.join(out, "metadata.tsv"))
    kinds = set()
    with open(os.path.join(out, "torch.tsv"), "w") as f:
        for name, record in torch_pickles():
            kind = frozenset(line for line in record.split(b"c") if b"\n" in line), len(record) // 100
            if kind not in kinds and len(record) < 20000:
                kinds.add(kind)
                f.write(f"{name}\t{record.hex()}\n")


if __name__ == "__main__":
    main()
