#!/usr/bin/env python3
"""power_cut.py DRIVERS LOG_IO - power is cut from a run that saves, after each of its calls on names and files. Each possible
state of the disk is rebuilt, and a run goes on from it. The run ends with the bytes of an undisturbed run, or, if nothing that was
promised to stay is lost, it is refused with one line. LOG_IO is log_io.c, built. Prints TAP.

If processes save parts, threads go on, and values are compared; without SL_TEST_LONG from some of the states.

Contents of a disk: of a file that was not synced nothing, zeros, its first half, or all; of changes of a folder's names
since it was synced, any of them. Synced files and names are there."""

import collections
import hashlib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys

from points import folder, plan, point

drivers, shim = (os.path.abspath(path) for path in sys.argv[1:3])
STEPS = 4
tiny = ("--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2 --batch 8")
jobs = {
    "looping_pipeline": "looping_pipeline --hidden 16 --layers 4 --microbatches 2 --batch 16 --mesh data=1,model=2 --save-every 1",
    "looping_pipeline --save-async": "looping_pipeline --hidden 16 --layers 4 --microbatches 2 --batch 16 --mesh data=1,model=2 --save-every 1 --save-async",
    "transformer": f"transformer train --mesh data=1,tensor=2 --data {{text}} {tiny} --save-every 2",
}
parts = "looping_pipeline --save-parts"
if shutil.which("mpirun"):
    jobs[parts] = "looping_pipeline --hidden 16 --layers 4 --microbatches 2 --batch 16 --mesh data=1,model=2 --schedule 1f1b --save-every 2 --save-parts"
mpirun = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpirun"), "2"]
MOST = 60  # states of parts that are tried
work = folder()
here = os.path.join(work, "here")
saved = os.path.join(here, "saved")


def run(job, *more, launcher=(), **environment):
    driver, *arguments = jobs[job].format(text=os.path.join(work, "text")).split()
    return subprocess.run([*launcher, os.path.join(drivers, driver), *arguments, "--steps", str(STEPS), "--save", saved, *more],
                          cwd=work, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


def is_checkpoint(path):
    return re.fullmatch(r"step-\d+\.(safetensors|index\.json)", os.path.basename(path)) is not None


class Disk:
    """A disk: its names and files in the program's view, and those that are certain to be there after a cut."""

    def __init__(self):
        self.names, self.sure = {}, {}  # path -> number of a file, or "folder"
        self.files = {}  # number -> [synced content: None or bytes, its content now]
        self.changes = collections.defaultdict(list)  # folder -> [(names to remove, names to add)] since it was synced

    def change(self, path, remove, add):
        for name in remove:
            self.names.pop(name, None)
        self.names.update(add)
        self.changes[os.path.dirname(path)].append((remove, add))

    def apply(self, event, later, log, syncs):
        what, path, *rest = event
        to_come = [number for kind, other, *number in later if kind == "sync" and other == path][:1]
        if what == "mkdir":
            self.change(path, [], {path: "folder"})
        elif what == "create":
            number = len(self.files)
            self.files[number] = [None, content(log, to_come[0][0]) if to_come else b""]  # written through memory, unseen
            self.change(path, [], {path: number})
        elif what == "unlink":
            self.change(path, [path], {})
        elif what == "rename":
            number = self.names[path]
            self.files[number][1] = content(log, rest[1])
            self.change(path, [path], {rest[0]: number})
        elif what == "sync" and syncs:
            self.files[self.names[path]] = [content(log, rest[0])] * 2
        elif what == "sync":
            self.files[self.names[path]][1] = content(log, rest[0])
        elif what == "syncdir":
            for remove, add in self.changes.pop(path, []):
                for name in remove:
                    self.sure.pop(name, None)
                self.sure.update(add)

    def states(self):
        """Yields the possible contents of the disk, each as {path: bytes or "folder"}."""
        changes = [change for found in self.changes.values() for change in found]
        for taken in itertools.product((False, True), repeat=len(changes)):
            names = dict(self.sure)
            for (remove, add), is_taken in zip(changes, taken):
                if is_taken:
                    for name in remove:
                        names.pop(name, None)
                    names.update(add)
            numbers = sorted({number for number in names.values() if number != "folder"})
            for contents in itertools.product(*(self.contents(number) for number in numbers)):
                held = dict(zip(numbers, contents))
                yield {path: "folder" if number == "folder" else held[number] for path, number in names.items()}

    def contents(self, number):
        sure, now = self.files[number]
        return [sure] if sure is not None else list(dict.fromkeys([b"", bytes(len(now)), now[: len(now) // 2], now]))

    def promised(self):
        """Returns whether every possible state has a checkpoint."""
        gone = {name for changes in self.changes.values() for remove, _ in changes for name in remove}
        return any(is_checkpoint(path) and path not in gone for path in self.sure)


def content(log, number):
    with open(os.path.join(log, number), "rb") as file:
        return file.read()


def name_of(state):
    hashed = hashlib.sha256()
    for path, held in sorted(state.items()):
        hashed.update(path.encode() + b"\0" + (b"folder" if held == "folder" else hashlib.sha256(held).digest()))
    return hashed.digest()


def cuts(events, log, syncs=True):
    """Returns each possible state after any event once: [(state, whether a checkpoint is promised, number of the event)]."""
    disk = Disk()
    disk.names[here] = disk.sure[here] = "folder"
    found = {}
    for number, event in enumerate(events):
        disk.apply(event, events[number + 1 :], log, syncs)
        for state in disk.states():
            key = (name_of(state), disk.promised())
            found.setdefault(key, (state, disk.promised(), number))
    return list(found.values())


def rebuild(state):
    shutil.rmtree(here, ignore_errors=True)
    for path, held in sorted(state.items()):
        if held == "folder":
            os.makedirs(path, exist_ok=True)
        elif os.path.isdir(os.path.dirname(path)):
            with open(path, "wb") as file:
                file.write(held)


def last():
    path = os.path.join(saved, f"step-{STEPS:08d}.safetensors")
    with open(path, "rb") as file:
        return file.read()


def judge(job, whole, state, promised):
    """Returns the fault of the run that goes on from STATE; None: no fault."""
    rebuild(state)
    done = run(job, "--resume", saved)
    if done.returncode == 0 and job == parts:
        differ = subprocess.run([os.path.join(drivers, "diff"), saved, whole], capture_output=True, text=True)
        return None if differ.returncode == 0 else f"it ends with other values: {differ.stdout[:300]!r}"
    if done.returncode == 0:
        return None if last() == whole else "it ends with other bytes"
    if done.returncode != 2 or done.stderr.count("\n") != 1:
        return f"status {done.returncode}: {done.stderr[:300]!r}"
    return f"refused, though a checkpoint was synced: {done.stderr[:300]!r}" if promised else None


def try_all(job, whole, states):
    bad = []
    for state, promised, number in states:
        wrong = judge(job, whole, state, promised)
        if wrong:
            names = {os.path.relpath(path, here): held if held == "folder" else len(held) for path, held in state.items()}
            bad.append(f"cut after event {number}, {names}: {wrong}")
    return bad


with open(os.path.join(work, "text"), "w") as text:
    text.write("".join(f"{i} times {i} is {i * i}. " for i in range(100)))
tried = 0
for job in jobs:
    log = os.path.join(work, "log")
    shutil.rmtree(log, ignore_errors=True)
    shutil.rmtree(here, ignore_errors=True)
    os.mkdir(log)
    os.mkdir(here)
    if job == parts:
        done = run(job, "--engine", "mpi", launcher=[*mpirun, "env", f"LD_PRELOAD={shim}"], IO_UNDER=here, IO_LOG=log)
    else:
        done = run(job, LD_PRELOAD=shim, IO_UNDER=here, IO_LOG=log)
    with open(os.path.join(log, "events")) as file:
        events = [line.split() for line in file]
    kinds = collections.Counter(event[0] for event in events)
    point(f"{job} saves, with {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}",
          [] if done.returncode == 0 and kinds["sync"] and kinds["syncdir"] and kinds["rename"] else [done.stderr])
    states = cuts(events, log)
    if job == parts:
        whole = os.path.join(work, "whole")
        shutil.move(saved, whole)
        if not os.environ.get("SL_TEST_LONG") and len(states) > MOST:
            states = random.Random(1).sample(states, MOST)
    else:
        whole = last()
    tried += len(states)
    point(f"{job}: from {len(states)} states of the disk it goes on to the same bytes, or nothing that was synced is lost",
          try_all(job, whole, states))
    if job == "looping_pipeline":  # proves the program's syncs, not the disk's kindness
        careless = [found for found in cuts(events, log, syncs=False) if found[1]]
        lost = any(judge(job, whole, state, promised) for state, promised, _ in careless)
        point("without the syncs of files something is lost", [] if lost else [f"nothing, in {len(careless)} states"])
print(f"# {tried} states of disks resumed")
plan()
