#!/usr/bin/env python3
"""random_options.py DRIVERS [--runs N] [--seed N] - runs drivers with drawn options and values, plausible and absurd ones, within
little memory and time. A run ends with status 0, 2 or 3, or with 1 and an empty stderr. With 2 or 3 it prints one line that begins
with the driver's name; with 2 it prints nothing on stdout and leaves no file. No temporary file is left, nothing crashes, and no
run waits without computing. The options and their values are read from --help. A run that computes for too long is ended by
SIGTERM, and counted apart. Lines about the terms of going on (NOTES) are no errors. Prints TAP. With SL_TEST_LONG set, 3,000 runs
in place of 200."""

import argparse
import concurrent.futures
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("drivers", type=os.path.abspath)
parser.add_argument("--runs", type=int, default=3000 if os.environ.get("SL_TEST_LONG") else 200)
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
NOTES = re.compile(r"^transformer: (saved in |no tokenizer is written).*\n", re.MULTILINE)
SECONDS, MEMORY, FILE = 3, 3 << 30, 64 << 20
small = "--layers 2 --hidden 8 --batch 8 --microbatches 2"
model = "--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2"
jobs = [  # options after these take their place
    f"looping_pipeline --mesh data=1,model=2 {small} --steps 2",
    f"loss_equality --mesh data=1,model=2 {small} --steps 1",
    f"transformer train --mesh data=1 {model} --batch 2 --steps 2 --data {{text}}",
    f"transformer evaluate --mesh data=1 {model} --batch 2 --data {{text}}",
    f"transformer generate --mesh data=1 {model} --length 4",
    "transformer export",
    "schedule",
    "plan",
    "report {metrics}",
    "diff {metrics} {metrics}",
    "sharding",
    "gpipe",
    "tokens encode",
    "tokens decode",
    "tokens shards",
    "tokens text",
]
work = tempfile.mkdtemp()
text, metrics, junk = (os.path.join(work, name) for name in ("text", "metrics", "junk"))
with open(text, "w") as file:
    file.write("".join(f"{i} times {i} is {i * i}. " for i in range(400)))
with open(metrics, "w") as file:
    file.write("".join(f'{{"step":{i},"loss":{1 / (i + 1)}}}\n' for i in range(8)))
with open(junk, "wb") as file:
    file.write(random.Random(1).randbytes(3000))


def options_of(job):
    """Returns for each option its name, its value in --help, and the numbers in its text."""
    words = [word for word in job.split(" --")[0].split() if not word.startswith("{")]
    told = subprocess.run([os.path.join(given.drivers, words[0]), *words[1:], "--help", "all"], capture_output=True, text=True).stdout
    found = []
    for part in re.split(r"\n  (?=--|-)", told):
        head = re.match(r"--(\[no-\])?([a-z0-9-]+)(?: ([^ \n]+))?", part)
        if head and head[2] not in ("help", "version", "delay-ms"):  # whose value is how long to wait
            found.append((head[2], head[3] if not head[1] else None, bool(head[1]), re.findall(r"(?<![\w.])-?\d[\d.e+]*\d|(?<![\w.])-?\d", part)))
    assert found, job
    return found


def number(chance, told):
    near = [str(int(float(one)) + chance.choice((-1, 0, 0, 1))) for one in told if abs(float(one)) < 1e18] or ["1"]
    return chance.choice((*"0123468", str(chance.randrange(40)), chance.choice(near), chance.choice(told or ["1"]),
                          chance.choice(("", " ", "-1", "-0", "1.5", "1e3", "1e308", "1e-320", "nan", "inf", "0x10", "9" * 40, "2147483648",
                                         "18446744073709551616", " 3", "3 ", "3,4", "\u0663", "+", "-", "--", "99999", "1048576"))))


def mesh(chance):
    plausible = ("data=2", "data=1,model=2", "data=2,model=2", "pipe=2", "tensor=2", "data=2,pipe=2,tensor=2", "pipe=2,tensor=1", "context=2")
    absurd = ("", "=", "data", "data=", "data=0", "data=-1", "data=2,data=2", "x=99999999999", "data=64,model=64", "a=1," * 40, "data=2;model=2",
              "z" * 300 + "=2", "data=1.5")
    return chance.choice(plausible if chance.random() < 0.7 else absurd)


def path(chance):
    return chance.choice((text, metrics, junk, work, "new", "new", "folder/new", "/dev/null", "/dev/full", "", ".", "..", "/", "x" * 5000, "/proc/self/mem",
                          "/nowhere/new", "a b", "-", "--", "new\n", "\u00e9"))


def value(chance, kind, told):
    if "=" in kind and "," in kind:
        return mesh(chance)
    if kind == "COMMAND":
        return chance.choice(("true", "false", "/nowhere/launch", "", "env", "sh -c 'exit 7'"))
    if "|" in kind and chance.random() < 0.8:
        return chance.choice(kind.strip("|").split("|"))
    if re.fullmatch(r"(\w+,)+(\w+|\.\.\.)", kind):
        return ",".join(number(chance, told) for _ in range(chance.choice((0, 1, 1, 2, 3, 4, 4, 50))))
    if kind in ("N", "X"):
        return number(chance, told)
    if kind in ("FILE", "PATH", "DIR", "FOLDER", "DATA", "TRACE"):
        return path(chance)
    words = ("gpipe", "1f1b", "looped-bfs", "zbv", "local", "mpi", "nccl", "all", "auto", "500MB", "1GiB", "0B", "2@B1", "data=2", "kernel", "*", "%s%n", "\u00fc" * 9,
             "{", "[[", "a" * 70000, "\x01\x02", "loss", "text")
    return chance.choice((chance.choice(words), number(chance, told)))


def draw(chance):
    job = chance.choice(jobs)
    command = job.format(text=text, metrics=metrics).split()
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 8))):
        name, kind, negated, told = chance.choice(options[job])
        if negated and chance.random() < 0.5:
            command.append(f"--no-{name}")
        elif kind is None:
            command.append(f"--{name}")
        else:
            drawn = value(chance, kind, told)
            command += [f"--{name}={drawn}"] if chance.random() < 0.3 or drawn.startswith("-") else [f"--{name}", drawn]
    return command


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def seconds_of(process):
    """Returns the CPU seconds of a process and of the children that it has waited for."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return sum(int(ticks) for ticks in file.read().rsplit(")", 1)[1].split()[11:15]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return SECONDS


def run(command):
    """Returns status, stdout, stderr, and the files that are left. The status of a run that took too long is "late" if it
    computed, "waits" if it did not."""
    here = tempfile.mkdtemp(dir=work)
    out, err = (os.path.join(here + ending) for ending in (".out", ".err"))
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen([os.path.join(given.drivers, command[0]), *command[1:]], cwd=here, stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, preexec_fn=limit, start_new_session=True)
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = "late" if seconds_of(process.pid) > 0.1 else "waits"
            process.terminate()
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with open(out, "rb") as stdout, open(err, errors="replace") as stderr:
        result = status, stdout.read(), stderr.read()
    left = [os.path.relpath(os.path.join(folder, name), here) for folder, _, names in os.walk(here) for name in names]
    for one in (out, err):
        os.remove(one)
    shutil.rmtree(here)
    return *result, left


def judge(command):
    """Returns the status, and the fault or None."""
    try:
        status, out, err, left = run(command)
        err = NOTES.sub("", err)
    except (ValueError, OSError) as refused:  # by the kernel: arguments that are too long
        return "none", None if "too long" in str(refused) or "null byte" in str(refused) else str(refused)
    what = None
    if status == "late":
        return status, None
    if status not in (0, 1, 2, 3) or (status == 1 and err):
        what = f"status {status}: {err[-300:]!r}"
    elif status in (2, 3) and (err.count("\n") != 1 or not err.startswith(command[0])):
        what = f"status {status}, {err.count(chr(10))} lines: {err[:400]!r}"
    elif status == 2 and (out or left):
        what = f"status 2, but there are {left or out[:100]!r}"
    elif any(re.search(r"\.[A-Za-z0-9]{6}$|\.(tmp|part|draft)", name) and "/dev" not in name for name in left):
        what = f"status {status}: left are {left}"
    return status, what


options = {job: options_of(job) for job in jobs}
chance = random.Random(given.seed)
commands = [draw(chance) for _ in range(given.runs)]
counts, bad, lock = {}, [], threading.Lock()


def one(command):
    status, what = judge(command)
    with lock:
        counts[status] = counts.get(status, 0) + 1
        if what:
            bad.append(f"{' '.join(word if len(word) < 60 else word[:20] + '...' for word in command)!r}: {what}")


began = time.monotonic()
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    list(pool.map(one, commands))
told = ", ".join(f"{counts[status]} {status}" for status in sorted(counts, key=str))
print(f"# seed {given.seed}, {time.monotonic() - began:.0f} s; statuses: {told}")
print(f"{'not ' if bad else ''}ok 1 - {given.runs} runs with random options of {len(jobs)} commands")
for line in bad[:40]:
    print(f"# {line}")
some = all(counts.get(status, 0) * 50 >= given.runs for status in (0, 2))
print(f"{'' if some else 'not '}ok 2 - some are done, and some are refused")
print("1..2")
shutil.rmtree(work)
