#!/usr/bin/env python3
"""crash_resume.py DRIVERS [--engines local,mpi] [--kills N] [--seed N] - runs that save are killed at random moments, over
schedules, meshes and engines, and go on from their last checkpoint, or, if there is none, from the beginning: by threads
or by processes, whichever comes up, and perhaps to be killed again. The last checkpoint is that of a run without
a kill, byte for byte (in parts: value for value, for threads write one file), and no temporary file is left beside it. Of processes one is killed, or their launcher. Prints
TAP. With SL_TEST_LONG set, 1,000 kills in place of 6.

Then the same of runs that are started again from their steps in memory (--restart, --protect): a process of the run, its launcher or
its watcher is killed, and a dead watcher is replaced. Many kills wait for a start, a commit to memory or a save. With --exact the mesh
changes, too. SL_TEST_LONG: 300 kills in place of 8."""

import argparse
import array
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from points import folder, plan, point

parser = argparse.ArgumentParser()
parser.add_argument("drivers", type=os.path.abspath)
parser.add_argument("--engines", default="local")
parser.add_argument("--kills", type=int, default=1000 if os.environ.get("SL_TEST_LONG") else 6)
parser.add_argument("--protected-kills", type=int, default=300 if os.environ.get("SL_TEST_LONG") else 8)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
end = time.monotonic() + float(os.environ.get("SL_TEST_SECONDS", 1700))
mpirun = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpirun")
engines = [engine for engine in given.engines.split(",") if engine == "local" or shutil.which("mpirun")]
STEPS = 60
classifier = "looping_pipeline --hidden 32 --batch 64 --microbatches 4 --dropout 0.1"
transformer = ("transformer train --data {text} --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --batch 8 "
               "--microbatches 4 --layers-per-block 1 --dropout 0.1")
cells = [  # a mesh, a schedule, and how the state is kept
    f"{classifier} --layers 4 --mesh data=1,model=2 --schedule plain --save-every 7",
    f"{classifier} --layers 8 --mesh data=2,model=2 --schedule looping --save-every 5",
    f"{classifier} --layers 4 --mesh data=2,model=2 --schedule 1f1b --save-every 3 --save-parts",
    f"{transformer} --blocks 4 --mesh pipe=2 --schedule zbv --save-every 5",
    f"{classifier} --layers 4 --mesh data=2,model=2 --schedule 1f1b --save-every 6 --optimizer sgd --momentum 0.9",
    f"{transformer} --blocks 2 --mesh data=2,tensor=2 --save-every 6 --fsdp --warmup 5 --lr-schedule cosine",
    f"{classifier} --layers 8 --mesh data=1,model=4 --schedule interleaved-1f1b --save-every 9 --clip 0.5",
    f"{transformer} --blocks 4 --mesh data=2,pipe=2 --schedule interleaved-zb --save-every 5 --zero 2",
    f"{classifier} --layers 4 --mesh data=1,model=2 --schedule dualpipev --save-every 4 --precision bf16",
    f"{transformer} --blocks 4 --mesh pipe=2 --schedule looped-dfs --save-every 5 --recompute full",
    f"{classifier} --layers 4 --mesh data=2,model=1 --schedule single --save-every 5 --accumulate 2",
]
# Meshes that a protected run goes through; the first one is the undisturbed run's.
exact = f"{transformer} --microbatches 2 --blocks 2 --exact data=4 --mesh data=1"
meshes = ["data=2,pipe=2", "pipe=2", "data=4", "data=1", "data=2"]
MARK = "SL_CRASH_RESUME"  # in the environment of every process of a run
work = folder("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
saved = os.path.join(work, "saved")
chance = random.Random(given.seed)
failures = []  # of a chain
hung = 0  # launchers
PATIENCE = 10  # seconds for a launcher all of whose processes have ended


def coordinates(cell):
    count = 1
    for size in re.findall(r"=(\d+)", re.search(r"--mesh (\S+)", cell)[1]):
        count *= int(size)
    return count


def start(cell, engine, protected=False):
    """The run in a session of its own, from the last checkpoint in saved."""
    driver, *arguments = cell.format(text=os.path.join(work, "text")).split()
    command = [os.path.join(given.drivers, driver), *arguments, "--steps", str(STEPS), "--save", saved, "--engine", engine]
    if os.path.isdir(saved) and any(re.fullmatch(r"step-\d+\.(safetensors|index\.json)", name) for name in os.listdir(saved)):
        command += ["--resume", saved]
    if protected:
        command += ["--restart", "1000", "--protect", "1"]
        if "--save-every" not in cell:
            command += ["--save-every", "20"]
        if engine == "mpi":
            command += ["--launcher", f"{mpirun} %n", "--timeout", "20"]
    elif engine == "mpi":
        command = [mpirun, str(coordinates(cell)), *command, "--timeout", "20"]
    with open(os.path.join(work, "err"), "w") as err:
        return subprocess.Popen(command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                start_new_session=True, env=os.environ | {MARK: work})


def descendants(process):
    found = []
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:
            for child in file.read().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def members():
    """Processes of the run by their environment, also after their parents have ended."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if f"{MARK}={work}".encode() in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue
    return found


def end_members():
    while left := members():
        for one in left:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def finish(run, seconds=60):
    try:
        return run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return "hangs"


def computes():
    """Whether a process of the run is a driver: ended processes have no program."""
    for one in members():
        try:
            if os.readlink(f"/proc/{one}/exe").startswith(given.drivers):
                return True
        except OSError:
            continue
    return False


def release(run):
    """The run's status, or "hangs". Open MPI 4.1's launcher may hang itself, in PMIx_server_finalize, after it has ended
    all processes while some were starting: then it is killed, and counted."""
    global hung
    began = seen = time.monotonic()
    while run.poll() is None and time.monotonic() < min(seen + PATIENCE, began + 60):
        try:
            run.wait(0.2)
        except subprocess.TimeoutExpired:
            seen = time.monotonic() if computes() else seen
    if run.poll() is None and not computes():
        hung += 1
        os.killpg(run.pid, signal.SIGKILL)
    return finish(run, 1)


def kill(run, engine, after):
    """Kills a process after AFTER seconds; whether it came in time. Leaves no process of the run."""
    time.sleep(after)
    if run.poll() is not None:
        if run.returncode:
            failures.append(f"ends by itself: status {run.returncode}: {error()!r}")
        return False
    others = descendants(run.pid)
    victim = run.pid if engine == "local" or not others else chance.choice([run.pid, *others])
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return False
    status = release(run)
    if status == "hangs":
        failures.append(f"hangs after a kill: {error()!r}")
    end_members()  # they have lost their launcher, and end by themselves within the timeout: the next run must not meet them
    return status != 0


def tensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    del header["__metadata__"]
    return {name: array.array("f", data[slice(*tensor["data_offsets"])]) for name, tensor in header.items()}


def joined(path):
    """The tensors of the index PATH, a file in the format of docs/checkpoints/format.md."""
    with open(path) as file:
        index = json.load(file)
    parts = [tensors(os.path.join(saved, name)) for name, _ in index["parts"]]
    whole = {}
    for name, tensor in index["tensors"].items():
        elements = 1
        for size in tensor["shape"]:
            elements *= size
        whole[name] = array.array("f", bytes(4 * elements))
        for part, first, count, *dims in tensor["pieces"]:
            places = [0]
            for segments, segment, start, piece in dims or [[1, elements, 0, elements]]:
                places = [(p * segments + s) * segment + start + i for p in places for s in range(segments) for i in range(piece)]
            for place, value in zip(places[first : first + count], parts[part - 1][name]):
                whole[name][place] = value
    return whole


def last(cell):
    path, index = (os.path.join(saved, f"step-{STEPS:08d}.{end}") for end in ("safetensors", "index.json"))
    hashed = hashlib.sha256()
    if ("--save-parts" in cell or "--exact" in cell) and (os.path.exists(path) or os.path.exists(index)):
        for name, values in sorted((tensors(path) if os.path.exists(path) else joined(index)).items()):
            hashed.update(name.encode() + values.tobytes())
    elif os.path.exists(path):
        with open(path, "rb") as file:
            hashed.update(file.read())
    else:
        return "no file"
    return hashed.hexdigest()


def error():
    with open(os.path.join(work, "err")) as file:
        return file.read()[:300]


def measure(cell):
    """The last bytes of a run in whole, and its time by each engine."""
    hashes, seconds, bad = set(), {}, []
    for engine in engines:
        shutil.rmtree(saved, ignore_errors=True)
        began = time.monotonic()
        status = finish(start(cell, engine))
        seconds[engine] = time.monotonic() - began
        hashes.add(last(cell))
        if status != 0:
            bad.append(f"{engine}: status {status}: {error()!r}")
    if len(hashes) != 1:
        bad.append(f"engines end with different bytes: {sorted(hashes)}")
    return hashes.pop(), seconds, bad


def chain(whole, cell, seconds, most):
    """Up to MOST kills of one training: how many there were, and the errors."""
    shutil.rmtree(saved, ignore_errors=True)
    failures.clear()
    killed = 0
    story = []
    while killed < most:
        engine = chance.choice(engines)
        after = chance.uniform(0, 1.05 * seconds[engine])
        run = start(cell, engine)
        story.append(f"{engine} {after:.3f} s")
        if not kill(run, engine, after):
            break
        killed += 1
    engine = chance.choice(engines)
    status = finish(start(cell, engine))
    bad = [f"{' then '.join(story)}: {failure}" for failure in failures]
    if status != 0 or last(cell) != whole:
        bad.append(f"{' then '.join(story)}, goes on by {engine}: status {status}, {last(cell)}: {error()!r}")
    names = os.listdir(saved) if os.path.isdir(saved) else []
    left = [name for name in names if not name.endswith((".safetensors", ".index.json")) or
            (".part-" in name and name.split(".")[0] + ".index.json" not in names)]
    if left:
        bad.append(f"{' then '.join(story)}: left are {left}")
    return killed, bad


def drivers_of(process):
    found = []
    for one in descendants(process):
        try:
            if os.readlink(f"/proc/{one}/exe").startswith(given.drivers):
                found.append(one)
        except OSError:
            continue
    return found


def end_orphans():
    """Waits for the processes of a dead watcher to end by themselves, as they must; kills a launcher without any."""
    global hung
    until = time.monotonic() + 30
    while computes() and time.monotonic() < until:
        time.sleep(0.02)
    if computes():
        failures.append(f"orphans: {error()!r}")
    until = time.monotonic() + PATIENCE
    while members() and time.monotonic() < until and not computes():
        time.sleep(0.02)
    hung += bool(members()) and not computes()
    end_members()


def in_memory():
    found = []
    for name in os.listdir("/dev/shm"):
        try:
            with open(f"/dev/shm/{name}/save") as file:
                found += [name] if file.read() == saved else []
        except OSError:
            continue
    return found


def sealed():
    """For the latest start and each of its places: which parts are sealed."""
    starts = [start for name in in_memory() for start in os.scandir(f"/dev/shm/{name}") if start.is_dir()]
    places = {}
    latest = max(starts, key=lambda start: start.stat().st_mtime_ns, default=None)
    for name in os.listdir(latest.path) if latest else []:
        if ".part-" in name:
            with open(os.path.join(latest.path, name), "rb") as part:
                places.setdefault(name.split(".")[0], []).append(any(part.read(8)))
    return list(places.values())


def moment(run, resizing):
    """What the run does now, as far as its files tell."""
    try:
        if resizing and resizing.poll() is None:
            return "a resize"
        if os.path.isdir(saved) and not all(name.endswith((".safetensors", ".index.json")) for name in os.listdir(saved)):
            return "a save"
        places = sealed()
        if not any(map(any, places)) or not drivers_of(run.pid):
            return "a start"
        return "a step" if all(any(place) == all(place) for place in places) else "a commit"
    except OSError:  # a file has just gone
        return "a change"


def protected_chain(whole, cell, seconds, most):
    """Up to MOST kills of one watched training: how many of each kind there were, and the errors."""
    shutil.rmtree(saved, ignore_errors=True)
    failures.clear()
    engine = chance.choice(engines)
    run = start(cell, engine, True)
    kinds, story, resizing = {}, [engine], None
    while sum(kinds.values()) < most and not failures:
        time.sleep(chance.uniform(0.2, 1.05) * seconds[engine] if chance.random() < 0.7 else chance.uniform(0, 0.2))
        if run.poll() is not None:
            break
        if "--exact" in cell and chance.random() < 0.5:
            resizing = subprocess.Popen([os.path.join(given.drivers, "resize"), saved, "--mesh", chance.choice(meshes)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
            story.append("resize")
            time.sleep(chance.uniform(0, 0.3))
        elif chance.random() < 0.6:
            wanted, until = chance.choice(["a start", "a commit", "a save"]), time.monotonic() + 1
            while moment(run, None) != wanted and time.monotonic() < until:
                pass
        now = moment(run, resizing)
        ranks = drivers_of(run.pid)
        launchers = [one for one in descendants(run.pid)[:1] if one not in ranks]
        kind = chance.choice(["process"] * 3 + ["launcher"] * 2 * bool(launchers) + ["watcher"])
        victim = run.pid if kind == "watcher" else chance.choice(launchers if kind == "launcher" else ranks or [run.pid])
        kind = "watcher" if victim == run.pid else kind
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        moments[now] = moments.get(now, 0) + 1
        story.append(f"{kind} in {now}")
        if kind == "watcher":
            run.wait()
            end_orphans()
            run = start(cell, engine, True)
    status = finish(run, 120)
    bad = [f"{', '.join(story)}: {failure}" for failure in failures]
    if status != 0 or last(cell) != whole:
        bad.append(f"{', '.join(story)}: status {status}, {last(cell)}: {error()!r}")
    if members():
        bad.append(f"{', '.join(story)}: processes are left")
        end_orphans()
    if in_memory():
        bad.append(f"{', '.join(story)}: steps are left in memory: {in_memory()}")
    return kinds, bad


with open(os.path.join(work, "text"), "w") as text:
    text.write("".join(f"{i} times {i} is {i * i}. " for i in range(400)))
chosen = cells if given.kills >= 2 * len(cells) else cells[: max(1, given.kills // 2)]
total = 0
for number, cell in enumerate(chosen if given.kills else []):
    wanted = given.kills * (number + 1) // len(chosen) - given.kills * number // len(chosen)
    whole, seconds, bad = measure(cell)
    killed = tries = 0
    while killed < wanted and not bad and tries < 3 * wanted + 10 and time.monotonic() < end:
        tries += 1
        more, bad = chain(whole, cell, seconds, min(chance.choice((1, 1, 2, 3)), wanted - killed))
        killed += more
    total += killed
    if not bad and killed < wanted:
        bad = [f"only {killed} of {wanted} kills came in time"]
    named = re.sub(r"--(hidden|batch|microbatches|dropout|data|model-dimension|n-heads|latent-dim|rope-dim|sequence|layers-per-block) \S+ ", "", cell)
    point(f"{named}: {killed} kills by {' and '.join(engines)}", bad)
kinds, moments = {}, {}
protected_cells = [exact, *cells][: max(2, given.protected_kills // 6)] if given.protected_kills else []
for number, cell in enumerate(protected_cells):
    wanted = given.protected_kills * (number + 1) // len(protected_cells) - given.protected_kills * number // len(protected_cells)
    whole, seconds, bad = measure(cell)
    killed = tries = 0
    while killed < wanted and not bad and tries < 3 * wanted + 10 and time.monotonic() < end:
        tries += 1
        more, bad = protected_chain(whole, cell, seconds, min(chance.choice((1, 2, 3, 4)), wanted - killed))
        killed += sum(more.values())
        for kind, count in more.items():
            kinds[kind] = kinds.get(kind, 0) + count
    if not bad and killed < wanted:
        bad = [f"only {killed} of {wanted} kills came in time"]
    point(f"from memory: {cell.split('--mesh ')[1]} of {cell.split()[0]}: {killed} kills", bad)
if kinds:
    print("# from memory: " + ", ".join(f"{count} times a {kind}" for kind, count in sorted(kinds.items())) + "; " +
          ", ".join(f"{count} in {name}" for name, count in sorted(moments.items())))
print(f"# {total} kills in {len(chosen)} cells, seed {given.seed}" + (f"; {hung} launchers hung when all had ended" if hung else ""))
plan()
