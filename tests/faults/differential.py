#!/usr/bin/env python3
"""differential.py DRIVERS [--files N] [--seed N] - compares Python's safetensors and the driver diff on whole and damaged files.
Python reads all files that diff reads, with the same names, types, shapes and bytes. diff reads all files that Python reads, or
names the limit, its own or the format's, that forbids it. Each reads the other's files. Prints TAP. With SL_TEST_LONG set,
5,000 files in place of 150."""

import argparse
import collections
import json
import os
import random
import re
import struct
import subprocess
import sys

from points import folder, plan, point

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as missing:
    peers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "peers")
    for python in (os.environ.get("SL_TEST_PYTHON", ""), *(os.path.join(peers, name, "bin", "python") for name in ("safetensors", "transformers"))):
        if os.path.exists(python) and not subprocess.run([python, "-c", "import numpy, safetensors"], capture_output=True).returncode:
            os.execv(python, [python, *sys.argv])
    print(f"1..0 # SKIP no Python here has {missing.name}: ./benchmarks/peers/setup safetensors installs it")
    sys.exit()

parser = argparse.ArgumentParser()
parser.add_argument("drivers", type=os.path.abspath)
parser.add_argument("--files", type=int, default=5000 if os.environ.get("SL_TEST_LONG") else 150)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
chance = random.Random(given.seed)
work = folder("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
ours, theirs = os.path.join(work, "file"), os.path.join(work, "again")
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4}
OTHERS = {"F64": 8, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}  # types of the format that this library does not have
LIMITS = {  # refusals by diff of files that Python reads
    "only F32, BF16, I32 and F16 can be read": "a limit",
    "shape is not a list of at most": "a limit",
    "the name is longer than": "a limit",
    "the header is not a JSON object: it does not begin with '{'": "what the format forbids and Python takes",
    "the header is not a JSON object: duplicate object key": "what the format forbids and Python takes",
    "__metadata__ is not an object of strings": "what the format forbids and Python takes",
}


def pack(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def draw_tensors():
    """Draws a valid header and its data."""
    header, data = {}, b""
    if chance.random() < 0.3:
        header["__metadata__"] = {chance.choice(("format", "a", "é")): chance.choice(("pt", "", "ü"))}
    for i in range(chance.randrange(5)):
        other = chance.random() < 0.05
        dtype = chance.choice(list(OTHERS if other else SIZES))
        shape = [chance.choice((0, 1, 2, 3, 5)) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4, 7)))]
        size = (OTHERS if other else SIZES)[dtype]
        for extent in shape:
            size *= extent
        name = chance.choice(("weight", "a.b", "ü", "", "x" * 300 if chance.random() < 0.1 else "layers")) + str(i)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes(chance.randrange(120) for _ in range(size))  # no byte makes a NaN, of which no two are equal
    return header, data


def spoil(header, data):
    """Returns HEADER and DATA with a mistake, or with a change that resembles one."""
    names = [name for name in header if name != "__metadata__"]
    way = chance.randrange(12)
    text = json.dumps(header).encode()
    if way == 0:  # bytes of the header
        changed = bytearray(text)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return pack(bytes(changed), data)
    if way == 1:
        whole = pack(header, data)
        return whole[: chance.randrange(len(whole))]
    if way == 2:
        return pack(header, data + bytes(chance.randrange(1, 9)))
    if way == 3:
        return pack(chance.choice((b" ", b"\n", b"")) + text + chance.choice((b" ", b"   ", b"\0", b"{}", b",")), data)
    if way == 4:  # another length of the header
        return struct.pack("<Q", max(0, len(text) + chance.choice((-2, -1, 1, 2, 1 << 20, 1 << 40)))) + text + data
    if way == 5:  # a key twice
        return pack(text[:-1] + (b", " if header else b"") + text[1:], data)
    if way == 6:
        header["__metadata__"] = chance.choice(({"a": 1}, [], "a", {"a": {"b": "c"}}, None, {}))
        return pack(header, data)
    if not names:
        return pack(chance.choice((b"", b"{}", b"[]", b"{", b"null", b'{"a": 1}', b'{"a": null}')), data)
    tensor = header[chance.choice(names)]
    if way == 7:
        at = chance.randrange(2)
        tensor["data_offsets"][at] += chance.choice((-4, -1, 1, 4, 1 << 62, 0.5))
    elif way == 8:
        tensor["shape"] = chance.choice(([-1], [1 << 62, 4], [1.0], "a", [[1]], None, [1 << 32, 1 << 32], tensor["shape"] + [1]))
    elif way == 9:
        del tensor[chance.choice(list(tensor))]
    elif way == 10:
        tensor[chance.choice(("more", "dtype"))] = chance.choice(("F32", "f32", "", 4, None, "BF16"))
    else:  # the order of names is not that of the data
        header = dict(reversed(header.items()))
    return pack(header, data)


def read_by_python(content):
    """Returns {name: (type, shape, bytes)} without the metadata; None if Python refuses the file."""
    try:
        return {name: (str(of["dtype"]), list(of["shape"]), bytes(of["data"])) for name, of in safetensors.deserialize(content)}
    except safetensors.SafetensorError:
        return None


def compare(one, other):
    done = subprocess.run([os.path.join(given.drivers, "diff"), one, other], capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode(errors="replace")


def put(path, content):
    with open(path, "wb") as file:
        file.write(content)


counts = collections.Counter()


def judge(content):
    """Returns lines about differences between the two readers of this file."""
    put(ours, content)
    tensors = read_by_python(content)
    again, data = {}, b""
    for name, (dtype, shape, values) in (tensors or {}).items():
        again[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]]) if tensors is not None else {}
    if "__metadata__" in header:
        again["__metadata__"] = header["__metadata__"]
    put(theirs, pack(again, data))
    status, said = compare(ours, theirs if tensors is not None else ours)
    if status == 0 and tensors is not None:
        counts["taken by both, with the same tensors"] += 1
    elif status == 2 and said.count("\n") == 1 and tensors is None:
        counts["refused by both"] += 1
    else:
        why = next((why for limit, why in LIMITS.items() if status == 2 and said.count("\n") == 1 and limit in said), None)
        if tensors is None or not why:
            return f"status {status} {said[:200]!r}, and Python " + ("refuses it" if tensors is None else "takes it")
        counts[f"refused for {why}"] += 1
    return None


bad = []
for number in range(given.files):
    header, data = draw_tensors()
    content = pack(header, data) if chance.random() < 0.3 else spoil(header, data)
    wrong = judge(content)
    if wrong:
        bad.append(f"file {number}: {wrong}: {content[:300]!r}")
point(f"{given.files} files: " + ", ".join(f"{number} {what}" for what, number in counts.items()), bad)
point("none of these kinds is missing", [] if len(counts) == 4 and min(counts.values()) > given.files // 200 else [str(counts)])

values = {"weight": numpy.arange(12, dtype="float32").reshape(3, 4), "half": numpy.ones((2, 0, 3), dtype="float16"), "count": numpy.array(7, dtype="int32")}
safetensors.numpy.save_file(values, ours, metadata={"format": "np"})
with open(ours, "rb") as file:
    wrong = judge(file.read())
point("what Python writes is read", [wrong] if wrong else [])

train = "looping_pipeline --hidden 16 --layers 4 --microbatches 2 --batch 16 --mesh data=1,model=2 --steps 1 --save saved --gradients gradients"
done = subprocess.run([os.path.join(given.drivers, train.split()[0]), *train.split()[1:]], cwd=work, capture_output=True)
bad = [] if done.returncode == 0 else [done.stderr.decode()]
for name in ("gradients", "saved/step-00000001.safetensors") if not bad else ():
    with open(os.path.join(work, name), "rb") as file:
        content = file.read()
    wrong = judge(content)
    if wrong or len(read_by_python(content)) < 4:
        bad.append(f"{name}: {wrong}")
point("what a run writes Python reads", bad)
plan()
