#!/usr/bin/env python3
"""events.py DRIVERS - --tensorboard: its files have the numbers of --metrics, both for the reader below and for TensorBoard; a
resumed run has a file of its own; a full disk ends the run. Prints TAP.

TensorBoard is searched for in the Python named by SL_TEST_PYTHON, in this one, and in that of ./benchmarks/peers/setup
tensorboard."""
import glob
import json
import os
import struct
import subprocess
import sys

from points import folder, plan, point

drivers = os.path.abspath(sys.argv[1])
os.chdir(folder())
TRANSFORMER = "transformer train --mesh data=2 --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --clip 1 --evaluate-every 2"
CLASSIFIER = "looping_pipeline --rng global --mesh data=1,model=2 --layers 2 --hidden 8 --batch 32 --microbatches 2"


def run(words, **how):
    driver, *rest = words.split()
    return subprocess.run([os.path.join(drivers, driver), *rest], capture_output=True, text=True, stdin=subprocess.DEVNULL, **how)


def check(passed, name, lines=()):
    point(name, [] if passed else [*lines, "it is not so"])


# ---- a reader ----

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest = TABLE[(rest ^ byte) & 255] ^ rest >> 8
    rest ^= 0xFFFFFFFF
    return ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """Yields the bytes of each record. Fails if one of its two checksums is wrong."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        of_length, of_data = struct.unpack_from("<I", data, at + 8)[0], struct.unpack_from("<I", data, at + 12 + length)[0]
        body = data[at + 12 : at + 12 + length]
        assert len(body) == length and masked(data[at : at + 8]) == of_length and masked(body) == of_data, f"{path}: byte {at}"
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Returns a message's fields by their numbers."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            found[key >> 3], at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                size, at = varint(data, at)
            found[key >> 3], at = data[at : at + size], at + size
    return found


def scalars(path):
    """Returns {(tag, step): number}, the file's version, and the steps at which a run began."""
    found, version, starts = {}, None, []
    for record in records(path):
        event = fields(record)
        assert 1.6e9 < struct.unpack("<d", event[1])[0] < 1e11, "no time of day"
        if 3 in event:
            version = event[3].decode()
        if 7 in event:
            starts.append((event.get(2, 0), fields(event[7])))
        if 5 in event:
            value = fields(fields(event[5])[1])
            found[value[1].decode(), event.get(2, 0)] = struct.unpack("<f", value[2])[0]
    return found, version, starts


def told(path):
    """Returns the records of --metrics in the form of scalars."""
    found, step = {}, 0
    with open(path) as file:
        for line in file:
            one = json.loads(line)
            if "step" not in one and "epoch" not in one:
                continue
            step = one.get("step", step)
            found.update({(key, step): value for key, value in one.items() if key != "step" and value is not None})
    return found


def same(found, wanted):
    """Returns whether floats equal their nine digits, up to a neighbouring float."""
    return found.keys() == wanted.keys() and all(abs(found[key] - wanted[key]) <= abs(wanted[key]) * 2**-23 for key in wanted)


def files(name):
    return sorted(glob.glob(f"{name}/events.out.tfevents.*"))


for name, words in (("words", f"{TRANSFORMER} --steps 5"), ("classes", f"{CLASSIFIER} --steps 3")):
    done = run(f"{words} --metrics {name}.jsonl --tensorboard {name}")
    found, version, starts = scalars(files(name)[0])
    wanted = told(f"{name}.jsonl")
    check(done.returncode == 0 and len(files(name)) == 1 and version == "brain.Event:2" and not starts and len(wanted) > 10 and same(found, wanted),
          f"{words.split()[0]}: the numbers of --metrics", [done.stderr, str(found), str(wanted)])
tags = {tag for tag, _ in scalars(files("words")[0])[0]}
check({"loss", "lr", "tokens_per_second", "evaluation_loss", "norm"} <= tags, "loss, rate, speed, evaluation and norm", sorted(tags))
alone = run(f"{TRANSFORMER} --steps 5 --tensorboard alone")
kept = {key: value for key, value in scalars(files("alone")[0])[0].items() if key[0] in ("loss", "norm", "evaluation_loss")}
check(alone.returncode == 0 and kept and same(kept, {key: value for key, value in told("words.jsonl").items() if key in kept}), "without --metrics the same", [alone.stderr])

# ---- runs that go on ----

first = run(f"{TRANSFORMER} --steps 6 --save saved --save-every 3 --tensorboard both")
check("--save-every 3 --tensorboard both --steps 12" in first.stderr, "the command that goes on has the folder, too", [first.stderr])
second = run(f"transformer train --resume saved/step-00000003.safetensors --steps 5 --clip 1 --evaluate-every 2 --tensorboard both --metrics rest.jsonl")
new = [path for path in files("both") if scalars(path)[2]]
check(first.returncode == second.returncode == 0 and len(files("both")) == 2 and len(new) == 1 and scalars(new[0])[2] == [(3, {1: 1})] and
      same(scalars(new[0])[0], told("rest.jsonl")), "a run that goes on has a new file, which says from where", [first.stderr, second.stderr, *files("both")])

READ = """import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1])
found.Reload()
print(json.dumps([[tag, one.step, one.value] for tag in found.Tags()["scalars"] for one in found.Scalars(tag)]))"""


def tensorboard():
    """Returns the command of a Python with TensorBoard; empty if there is none."""
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "peers", "tensorboard", "bin", "python")
    for python in (os.environ.get("SL_TEST_PYTHON", ""), sys.executable, peer):
        if python and os.path.exists(python) and not subprocess.run([python, "-c", "import tensorboard"], capture_output=True).returncode:
            return python
    return None


python = tensorboard()
for name, wanted in (("words", told("words.jsonl")), ("both", None)):
    about = f"TensorBoard reads {name}"
    if not python:
        check(True, f"{about} # SKIP no Python here has tensorboard: ./benchmarks/peers/setup tensorboard installs it")
        continue
    done = subprocess.run([python, "-c", READ, name], capture_output=True, text=True)
    read = {(tag, step): value for tag, step, value in json.loads(done.stdout or "[]")}
    if wanted is None:  # each step once: steps after the checkpoint are of the second run
        wanted = {key: value for key, value in scalars([path for path in files(name) if path not in new][0])[0].items() if key[1] < 3} | told("rest.jsonl")
    check(same(read, wanted), about, [done.stderr, str(read), str(wanted)])

# ---- bad places ----

done = run(f"{CLASSIFIER} --steps 1 --tensorboard nowhere/events")
check(done.returncode == 2 and done.stderr.count("\n") == 1 and "--tensorboard: nowhere/events: No such file" in done.stderr, "no such folder", [done.stderr])
done = run(f"{CLASSIFIER} --steps 1 --tensorboard words.jsonl")
check(done.returncode == 2 and done.stderr.count("\n") == 1 and "--tensorboard words.jsonl: cannot be opened" in done.stderr, "a file is no folder", [done.stderr])
done = run(f"{CLASSIFIER} --steps 1 --tensorboard saved --save saved")
check(done.returncode == 2 and "--tensorboard and --save name the same directory" in done.stderr.replace("--save and --tensorboard", "--tensorboard and --save"),
      "the folder of --save", [done.stderr])
words = f"{os.path.join(drivers, CLASSIFIER)} --steps 100 --tensorboard full"
done = subprocess.run(["sh", "-c", f"ulimit -f 1; exec {words}"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
check(done.returncode == 3 and done.stderr.count("\n") == 1 and "full/events.out.tfevents." in done.stderr and "File too large" in done.stderr,
      "a full disk ends the run", [str(done.returncode), done.stderr])
plan()
