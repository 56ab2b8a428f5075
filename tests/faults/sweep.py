#!/usr/bin/env python3
"""sweep.py DRIVERS DATA [FAIL_NTH|linked] [FAIL_IO] - runs small jobs of drivers again and again. In each run one allocation fails,
or all from one on (FAIL_NTH is fail_nth.c, built; linked: the drivers contain fail_linked.c), or one call on files (FAIL_IO is
fail_io.c). A run ends with status 0, 2 or 3. With 0 it has the output and the files of a run without faults and an empty stderr,
otherwise one line on stderr that begins with the driver's name. No file is half written and no temporary one left, except
a trace, which is written as it comes; no crash, no hang. Lines about the terms of going on (NOTES) are no errors. Prints TAP. With SL_TEST_LONG set, more
numbers, more jobs, and the allocations of some jobs' libraries, too."""

import collections
import json
import os
import re
import shutil
import subprocess
import sys

from points import folder, plan, point

drivers, data = (os.path.abspath(path) for path in sys.argv[1:3])
shims = [path if path == "linked" else os.path.abspath(path) for path in sys.argv[3:]]
long = bool(os.environ.get("SL_TEST_LONG"))
tries = 50 if long else 3  # of each kind of fault, of each job
every = {"report": 25, "tokens encode": 25, "schedule": 100, "schedule --file": 100}  # up to so many numbers of these, which take no time
seconds = 20
tiny = ("--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2 "
        "--batch 8 --data ../text")
few = "--hidden 16 --layers 4 --microbatches 2 --batch 16 --mesh data=1,model=2"
train = f"transformer train --mesh data=1,tensor=2 {tiny} --steps 3 --save-every 1 --save saved"
jobs = {  # if stdout has times, only the files are compared
    "train": train,
    "train --save-async": f"{train} --save-async",
    "train --keep best": f"{train} --evaluate-every 1 --keep best",
    "export hf": f"transformer export --model {data}/published/llama --format hf --to written",
    "export gguf": f"transformer export --model {data}/published/llama --format gguf --to written.gguf",
    "generate": f"transformer generate --mesh data=1 {tiny} --params ../before/step-00000003.safetensors --prompt a".replace(
        " --batch 8 --data ../text", ""),
    "looping_pipeline": f"looping_pipeline {few} --steps 2 --gradients gradients",
    "loss_equality": f"loss_equality {few} --steps 1",
    "gpipe": "gpipe",
    "schedule": "schedule --stages 3 --microbatches 4 --simulate --check",
    "schedule --file": f"schedule --file {data}/schedules/DualPipeV_pp3_v2_m6.csv --format svg",
    "sharding": "sharding",
    "export tokenizer": f"transformer export --model {data}/published/gpt2 --tokenizer {data}/tokenizers/smollm.gguf --format hf --to written",
    "report": "report ../metrics --output page",
    "diff": "diff ../before/step-00000002.safetensors ../before/step-00000003.safetensors",
    "tokens encode": f"tokens encode --tokenizer {data}/tokenizers/smollm.gguf",
    "tokens shards": f"tokens shards --tokenizer {data}/tokenizers/smollm.gguf --data ../text --save shards --threads 2",
    "plan memory": f"plan memory --driver transformer --mesh data=1,tensor=2 {tiny}",
    "plan search": f"plan search --driver looping_pipeline --devices 2 --machine {data}/machines/laptop.json {few}".replace(
        " --mesh data=1,model=2", ""),
    "replay": "replay --journal ../journal --coordinate 1",
}
examples = {
    "convolution": "convolution",
    "custom_module": "custom_module --trace trace.json",
    "custom_optimizer": "custom_optimizer saved.safetensors 3",
    "heads": "heads",
    "looping_step": "looping_step",
    "regression": "regression --trace trace.json",
}
if long:
    jobs.update(examples)
becomes = {"plan memory": "transformer", "plan search": "looping_pipeline", "replay": "transformer"}  # whose errors then are its own
timed = ("train", "train --save-async", "train --keep best", "looping_pipeline", "loss_equality", "gpipe", "tokens shards", "plan search", *examples)
allocating = [name for name in jobs if long or name not in ("looping_pipeline", "loss_equality", "gpipe")]  # little_memory.sh has these
# Jobs whose libraries report a lack of memory. OpenMP's runtime and glibc's fts_open end the process themselves.
sound = ("schedule", "schedule --file", "sharding", "report", "plan memory")
files = {  # jobs by their calls on files: checkpoints are written through memory
    "train": ("open", "fallocate", "fsync", "rename", "unlink", "close"),
    "train --save-async": ("write", "fsync", "rename"),
    "train --keep best": ("open", "write", "fsync", "rename"),
    "export gguf": ("open", "write", "fsync", "rename", "close"),
    "tokens shards": ("open", "write", "fsync", "rename", "close"),
}
if long:
    files["export hf"] = ("open", "fallocate", "write", "fsync", "rename", "close")
    files["custom_module"] = ("open",)  # the rest is the C library's
    files["custom_optimizer"] = ("open", "fallocate", "fsync", "rename", "unlink", "close")
    files["regression"] = ("open",)
# Lines that may stand beside errors. A build that counts branches also reports that it cannot write the counts.
notes = re.compile(r"transformer: (saved in |the least evaluation loss, |no tokenizer is written|\S*peaks\.json[.\w]*: )|LLVM Profile Error: ")
times = re.compile(r"\d+(\.\d+)?")  # tokens a second
work = folder()
here = os.path.join(work, "here")
runs = collections.Counter()


def written(path):
    """Returns the content of a file. A trace has times, so only whether it is whole; best.json is replaced by each better step,
    so only its keys."""
    with open(path, "rb") as file:
        content = file.read()
    name = os.path.basename(path)
    if name not in ("trace.json", "best.json"):
        return content
    try:
        return sorted(json.loads(content))
    except ValueError:
        return None if name == "trace.json" else content


def tree():
    found = {}
    for folder, _, names in os.walk(here):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, here)] = written(path)
    return found


def run(name, faults):
    """Returns status, stdout, stderr and files."""
    shutil.rmtree(here, ignore_errors=True)
    os.mkdir(here)
    driver, *arguments = jobs[name].split()
    try:
        done = subprocess.run([os.path.join(drivers, driver), *arguments], cwd=here, env={**os.environ, **faults},
                              input=b"a text", capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "hangs", b"", b"", {}
    said = done.stderr.decode(errors="replace").splitlines(keepends=True)
    told = [line for line in said if not notes.match(line)]
    return done.returncode, done.stdout, "".join(told), tree()


def judge(name, whole, result, may_leave):
    """Returns a line about the run if its end is wrong, judged by a run without an injected fault."""
    status, out, err, left = result
    if status == whole[0]:
        if times.sub("0", err) != times.sub("0", whole[2]):
            return f"status {status} and on stderr: {err[:200]!r}"
        if name not in timed and out != whole[1]:
            return f"status {status} with another output"
        if any(left.get(path) != content for path, content in whole[3].items()):
            return f"status {status} without a file, or with another one: {sorted(left)}"
    elif status not in (2, 3):
        return f"status {status}: {err[:200]!r}"
    elif err.count("\n") != 1 or not err.startswith((jobs[name].split()[0], becomes.get(name, jobs[name].split()[0]))):
        return f"status {status}, {err.count(chr(10))} lines: {err[:300]!r}"
    for path, content in left.items():
        if path in whole[3] and content not in (whole[3][path], None):
            return f"status {status}: {path} is half written"
        if path not in whole[3] and not may_leave and not re.fullmatch(r"saved/step-0000000\d.safetensors", path):
            return f"status {status}: {path} is left"
    return None


def errors(call):
    if call == "fallocate":
        return "EIO", "ENOSPC", "EINTR"
    return ("EIO", "ENOSPC", "EINTR", "short") if call == "write" else ("EIO", "ENOSPC", "EINTR") if long else ("EIO", "EINTR")


def count(name, faults):
    path = os.path.join(work, "count")
    if os.path.exists(path):
        os.remove(path)
    whole = run(name, {**faults, "FAIL_COUNT": path, "IO_COUNT": path})
    with open(path) as file:
        return whole, int(file.read())


def sweep(name, faults, variable, kind, may_leave=False):
    """Makes one run for each number, or for some of the numbers."""
    whole, number = count(name, faults)
    bad = []
    ended = collections.Counter()
    if whole[0] not in (0, 1):
        bad.append(f"without faults: status {whole[0]}: {whole[2][:300]!r}")
    if not number:
        bad.append("there is none")
    most = max(tries, every.get(name, 0))
    chosen = [1 + number * i // most for i in range(most)] if number > most else range(1, number + 1)
    for nth in chosen if not bad else []:
        result = run(name, {**faults, variable: str(nth)})
        ended[result[0]] += 1
        wrong = judge(name, whole, result, may_leave)
        if wrong:
            bad.append(f"number {nth}: {wrong}")
    runs[kind] += sum(ended.values())
    return bad, number, dict(ended)


os.mkdir(os.path.join(work, "before"))
with open(os.path.join(work, "text"), "w") as text:
    text.write("".join(f"{i} times {i} is {i * i}. " for i in range(100)))
jobs["before"] = train.replace("--save saved", "--save ../before --metrics ../metrics --journal ../journal --journal-messages 3")
begun = run("before", {})
point("a run without faults", [] if begun[0] == 0 else [begun[2]])

for shim in shims:
    if shim == "linked" or "fail_nth" in shim:
        preload = {} if shim == "linked" else {"LD_PRELOAD": shim}
        for name in allocating:
            bad, told = [], []
            for whose in ({}, {"FAIL_LIBRARIES": "1"}) if preload and name in sound and (long or "schedule" in name) else ({},):
                for after in ({}, {"FAIL_AFTER": "1"}):
                    found, number, ended = sweep(name, {**preload, **whose, **after}, "FAIL_NTH", "allocations")
                    bad += [f"{' '.join([*whose, *after])} {line}" for line in found]
                    told.append(f"{number}: {ended}")
            point(f"{name}: allocations fail ({'; '.join(told)})", bad)
    else:
        for name in files:
            for call in files[name]:
                bad, told = [], []
                for error in errors(call):
                    for after in ({}, {"IO_AFTER": "1"}) if error != "EINTR" else ({},):  # no signal comes for ever
                        faults = {"LD_PRELOAD": shim, "IO_CALL": call, "IO_ERROR": error, **after}
                        found, number, ended = sweep(name, faults, "IO_NTH", "calls on files", call == "unlink")
                        bad += [f"{error}{' after' if after else ''} {line}" for line in found]
                        told.append(f"{error} {ended}")
                point(f"{name}: {call} fails (of {number}: {'; '.join(told)})", bad)
print("# " + ", ".join(f"{number} runs with faults in {kind}" for kind, number in runs.items()))
plan()
