#!/usr/bin/env python3
"""goodput.py DRIVERS [--engine local|mpi] [--mesh MESH] [--deaths N] [--mean SECONDS] [--seed N] - a run is killed N times, at times drawn from an
exponential law with this mean, and goes on from its steps in memory (--restart, --protect). Its steps are those of one run. Prints TAP, and
its goodput beside the formula's: exp(-R/M) - s/2M for restarts of R seconds, deaths M seconds apart and steps of s seconds, of which a death
costs half a one. With SL_TEST_LONG set, 200 deaths in place of 5."""

import argparse
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

from points import folder, plan, point

parser = argparse.ArgumentParser()
parser.add_argument("drivers", type=os.path.abspath)
parser.add_argument("--engine", default="local")
parser.add_argument("--mesh", default="data=2,pipe=2")
parser.add_argument("--deaths", type=int, default=200 if os.environ.get("SL_TEST_LONG") else 5)
parser.add_argument("--mean", type=float, default=2)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
chance = random.Random(given.seed)
if given.engine != "local" and not shutil.which("mpirun"):
    print("1..0 # SKIP mpirun is not installed")
    sys.exit()
work = folder("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
driver = os.path.join(given.drivers, "transformer")
command = [driver, "train", *("--model-dimension 64 --n-heads 4 --latent-dim 32 --rope-dim 8 --sequence 64 --batch 16 --microbatches 4 "
           f"--blocks 4 --layers-per-block 1 --mesh {given.mesh} --steps 100000000 --save saved --save-every 1000000 --restart 1000000 "
           f"--protect 1 --metrics metrics --json --engine {given.engine}").split()]
if given.engine == "mpi":
    mpirun = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpirun")
    command += ["--launcher", f"{mpirun} %n"]


def processes(process):
    """The run's processes below PROCESS."""
    found = []
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:
            for child in file.read().split():
                found += [int(child)] * (os.readlink(f"/proc/{child}/exe") == os.path.realpath(driver)) + processes(int(child))
    except OSError:
        pass
    return found


def steps():
    """Of the metrics: the lines so far that are steps."""
    with open(os.path.join(work, "metrics")) as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return [line for line in lines if "step" in line]


with open(os.path.join(work, "out"), "w") as out, open(os.path.join(work, "err"), "w") as err:
    run = subprocess.Popen(command, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
while run.poll() is None and not (os.path.exists(os.path.join(work, "metrics")) and steps()):
    time.sleep(0.1)
deaths, intervals = 0, []
while deaths < given.deaths and run.poll() is None:
    intervals.append(chance.expovariate(1 / given.mean))
    time.sleep(intervals[-1])
    try:
        os.kill(chance.choice(processes(run.pid) or [0]) or sys.maxsize, signal.SIGKILL)
        deaths += 1
    except (ProcessLookupError, OverflowError):  # all are dead already: a death changes nothing
        pass
time.sleep(3)
run.send_signal(signal.SIGTERM)
try:
    status = run.wait(120)
except subprocess.TimeoutExpired:
    os.killpg(run.pid, signal.SIGKILL)
    status = f"hangs: {run.wait()}"
with open(os.path.join(work, "err")) as err:
    bad = [] if status == 0 else [f"status {status}: {err.read()[-300:]!r}"]
point(f"{deaths} deaths, {given.mean} s apart: the run goes on by itself", bad)
if not bad:
    made = steps()
    with open(os.path.join(work, "out")) as out:
        told = json.loads(out.readlines()[-1])
    numbers = [step["step"] for step in made]
    point("each step is there once", [] if numbers == list(range(len(numbers))) else [f"{len(numbers)} steps up to {numbers[-1]}"])
    seconds = statistics.median(step["ms"] for step in made) / 1000
    restart, apart = told["restarts"]["seconds"] / max(1, told["restarts"]["count"]), statistics.mean(intervals)
    formula = math.exp(-restart / apart) - seconds / (2 * apart)
    print(f"# {given.engine}, {given.mesh}: {told['restarts']['count']} restarts of {restart:.2f} s on average, {apart:.2f} s between deaths, "
          f"steps of {1000 * seconds:.1f} ms (median), {told['steps_again']} finished steps computed again")
    print(f"# goodput: {told['goodput']:.3f} by the watcher, {sum(step['ms'] for step in made) / 1000 / told['wall_seconds']:.3f} by the "
          f"times of steps, {formula:.3f} by the formula")
plan()
