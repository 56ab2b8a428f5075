"""flip.py PID VARIABLE CHECKPOINT TENSOR FOLDER - flips a bit of a tensor in the memory of a process that trains.

The process is the first one below PID with VARIABLE in its environment. It is stopped once FOLDER has a
checkpoint, and so are processes that wait for it, while no file is being written there: a flip during a save would come
after the check of its step, and runs that resume from that file would have it. The tensor is frozen, so its bytes are in the checkpoint. They
may lie in several places, of which some are not read any more: one after another is changed, until the process has
ended; a place that is read is found before the run has saved twice more in FOLDER. Prints the name of the last save
before the last flip. Status 77: other processes' memory cannot be written here."""
import json
import os
import random
import re
import signal
import sys
import time


def tensor(path, name):
    with open(path, "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin, end = head[name]["data_offsets"]
        file.seek(begin, 1)
        return file.read(end - begin)


def places(pid, memory, wanted):
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            words = line.split()
            first, last = (int(word, 16) for word in words[0].split("-"))
            if not words[1].startswith("rw") or last - first > 1 << 30:
                continue
            try:
                memory.seek(first)
                bytes_ = memory.read(last - first)
            except (OSError, ValueError):
                continue
            at = bytes_.find(wanted)
            while at >= 0:
                yield first + at
                at = bytes_.find(wanted, at + len(wanted))


def state(process):
    """Returns the process's state, a letter of /proc; X if there is no such process."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def has_ended(pid):
    return state(pid) in "ZX"


def below(pid, variable):
    """Returns the first process below PID with VARIABLE in its environment; None if there is none."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        children = [child for thread in threads for child in open(f"/proc/{pid}/task/{thread}/children").read().split()]
    except OSError:
        return None
    for child in children:
        try:
            with open(f"/proc/{child}/environ") as environ:
                if any(entry.startswith(variable) for entry in environ.read().split("\0")):
                    return child
        except OSError:
            continue
        found = below(child, variable)
        if found:
            return found
    return None


def saves(folder):
    try:
        return {entry for entry in os.listdir(folder) if re.fullmatch(r"step-\d+\.safetensors", entry)}
    except FileNotFoundError:
        return set()


def stop(pid, folder):
    """Stops all threads of PID while nothing is being saved in FOLDER."""
    while not has_ended(pid):
        os.kill(int(pid), signal.SIGSTOP)
        while {state(f"{pid}/task/{thread}") for thread in os.listdir(f"/proc/{pid}/task")} & set("RSD"):
            time.sleep(0.0005)
        if not any(entry.endswith(".tmp") for entry in os.listdir(folder)):
            return
        os.kill(int(pid), signal.SIGCONT)
        time.sleep(random.uniform(0, 0.01))


def main():
    watcher, variable, path, name, folder = sys.argv[1:]
    wanted = tensor(path, name)
    before = set()
    while not saves(folder) and not has_ended(watcher):
        time.sleep(0.001)
    pid = below(watcher, variable)
    if not pid:
        return 1
    stop(pid, folder)
    try:
        memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        found = list(places(pid, memory, wanted))
    except PermissionError:
        os.kill(int(pid), signal.SIGCONT)
        return 77
    for at in found:
        try:
            memory.seek(at + 40)
            memory.write(bytes([wanted[40] ^ 1]))
        except (OSError, ValueError):
            break
        before = saves(folder)
        os.kill(int(pid), signal.SIGCONT)
        while len(saves(folder) - before) < 2 and not has_ended(pid):
            time.sleep(0.005)
        if has_ended(pid):
            break
        stop(pid, folder)
    if not has_ended(pid):
        os.kill(int(pid), signal.SIGCONT)
    print(max(before, default="none"))
    return 0 if before else 1


sys.exit(main())
