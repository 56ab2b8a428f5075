#!/usr/bin/env python3
"""threads.py DRIVERS [--faults N] [--every N] [--seed N] - coordinates of engine local fail (--fail) while a watcher (--restart) is there: they start again
in their process, and the last checkpoint has the bytes of an undisturbed run. They fail at each call (or each N-th) of a step, its save and its
commit, and at N drawn moments on each mesh. Prints TAP, and the times from a fault to the end of the next step. With SL_TEST_LONG set, 200 in place of 20."""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

from points import folder, plan, point

parser = argparse.ArgumentParser()
parser.add_argument("drivers", type=os.path.abspath)
parser.add_argument("--faults", type=int, default=200 if os.environ.get("SL_TEST_LONG") else 20)
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
if not os.access("/dev/shm", os.W_OK):
    print("1..0 # SKIP there is no /dev/shm")
    sys.exit()
work = folder("/dev/shm")
chance = random.Random(given.seed)
LOOPING = "looping_pipeline --layers 4 --hidden 8 --batch 8 --microbatches 2 --schedule 1f1b"
BLOCKS = "transformer train --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2 --batch 8 --microbatches 2"
cells = [
    (f"{LOOPING} --mesh data=1,model=2", "--protect 1", 2),
    (f"{LOOPING} --mesh data=2,model=2", "--protect 1 --save-async", 4),
    (f"{BLOCKS} --mesh data=2,pipe=2", "--protect 1", 4),
    (f"{BLOCKS} --mesh data=2,tensor=2 --exact data=4", "--protect 1 --check-replicas", 4),
    (f"{BLOCKS} --mesh data=2,pipe=2 --fsdp", "--protect 0", 4),
]


def run(cell, steps, *more):
    """Runs the driver in a new folder: its status, its lines on stdout with the times at which they came, and stderr."""
    shutil.rmtree(os.path.join(work, "saved"), ignore_errors=True)
    driver, *arguments = f"{cell} --steps {steps} --json --save saved".split()
    with open(os.path.join(work, "err"), "w") as err:
        one = subprocess.Popen([os.path.join(given.drivers, driver), *arguments, *more], cwd=work, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=err, text=True)
    lines = [(time.monotonic(), json.loads(line)) for line in one.stdout]
    status = one.wait()
    with open(os.path.join(work, "err")) as err:
        return status, lines, err.read()


def last(steps):
    try:
        with open(os.path.join(work, "saved", f"step-{steps:08d}.safetensors"), "rb") as file:
            return file.read()
    except OSError:
        return b"no file"


def disturbed(cell, options, steps, faults, whole):
    """A run with FAULTS, texts of --fail: errors, and its lines."""
    metrics = os.path.join(work, "metrics")
    if os.path.exists(metrics):
        os.remove(metrics)
    status, lines, err = run(cell, steps, *options.split(), "--restart", "1000", "--metrics", "metrics", "--fail", ",".join(faults))
    bad = [] if status == 0 else [f"status {status}: {err[-300:]!r}"]
    if last(steps) != whole:
        bad.append(f"the last checkpoint differs: {err[-600:]!r}")
    with open(metrics) as file:
        numbers = [line["step"] for line in map(json.loads, file) if "step" in line and "loss" in line]
    if numbers != list(range(steps)):
        bad.append("not each step is in the metrics once")
    failed, kept = len(re.findall("fails at call", err)), len(re.findall("restart [0-9]+ of 1000 goes on from .*, in the same process", err))
    if failed != len(faults) or kept != len(faults):
        bad.append(f"{len(faults)} faults: {failed} came, {kept} restarts in the same process: {err[-600:]!r}")
    if "--protect 1" in options and not bad:
        losses = lines[-1][1]
        if losses["restarts"]["count"] != len(faults) or losses["steps_again"] or not 0 < losses["restarts"]["seconds"]:
            bad.append(f"the losses are {losses}")
    if [name for name in os.listdir("/dev/shm") if name.startswith("shardloop-") and saves_here(name)]:
        bad.append("steps are left in memory")
    return bad, lines


def saves_here(name):
    try:
        with open(f"/dev/shm/{name}/save") as file:
            return file.read() == os.path.join(work, "saved")
    except OSError:
        return False


def pauses(lines):
    """Milliseconds from the last line before a fault to the first one after it, less than a step: of each restart."""
    steps = [(when, line["step"], line["ms"]) for when, line in lines if "step" in line and "loss" in line]
    usual = statistics.median(ms for _, _, ms in steps)
    gaps = sorted(1000 * (b[0] - a[0]) - b[2] for a, b in zip(steps, steps[1:]))
    return usual, gaps


def calls_of_a_step(cell, coordinate):
    """The number of COORDINATE's calls from the beginning of a run's only step to its end."""
    low, high = 0, 4096  # fails at LOW, and no longer at HIGH
    while low + 1 < high:
        middle = (low + high) // 2
        status, _, _ = run(cell, 1, "--protect", "1", "--fail", f"{coordinate}@0:{middle}")
        low, high = (middle, high) if status == 3 else (low, middle)
    return high


# Each call of a step: of all its actions, its save, and its commit. A step of the run has one call for each moment that
# a fault needs; the next fault comes two steps later, when the run has kept one.
cell = f"{BLOCKS} --mesh data=1,pipe=2"
for coordinate in 0, 1:
    calls = calls_of_a_step(cell, coordinate) + 8  # the last step of a run has no commit
    chosen = range(0, calls, given.every)
    steps = 2 * len(chosen) + 4
    run(cell, steps)
    whole = last(steps)
    bad, lines = disturbed(cell, "--protect 1 --save-every 1", steps, [f"{coordinate}@{2 * number}:{call}" for number, call in enumerate(chosen)], whole)
    point(f"coordinate {coordinate} fails at {len(chosen)} of the {calls} calls of a step", bad)

for cell, options, size in cells:
    steps = 4 * given.faults + 4
    run(cell, steps)
    whole = last(steps)
    faults = [f"{chance.randrange(size)}@{4 * number + chance.randrange(2)}:{int(40 ** chance.random()) - 1}" for number in range(given.faults)]
    bad, lines = disturbed(cell, f"{options} --save-every {2 if 'protect 0' not in options else 1}", steps, faults, whole)
    point(f"{cell.split('--mesh ')[1]} of {cell.split()[0]}, {options}: {given.faults} coordinates fail", bad)
    if not bad:
        usual, gaps = pauses(lines)
        most = gaps[-given.faults:]
        print(f"# a step takes {usual:.2f} ms; from a fault to the next finished step {statistics.median(most):.1f} ms, at most {most[-1]:.1f}")
plan()
