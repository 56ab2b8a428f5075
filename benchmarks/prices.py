"""prices - the cost in a step's time of saving memory, by FSDP and offloading, and of sums that are the same on every
mesh (--exact): each beside a step without, in turns.

Each price has its bound: the time to move the coordinate's bytes alone. For FSDP this is a copy in memory of the gathered
bytes; for offloading, a file is written and read through the system's page cache.
"""

import pathlib
import tempfile
import time

import samples
from programs import json_lines

ONE = "--mesh data=1 --batch 4 --recompute full"
LOOPS = "--mesh data=1 --batch 4 --blocks 4 --recompute full --schedule looped-bfs --loops 4"
# The option that is paid for, the run without it, and the change that makes the run with it.
PRICES = [
    ("FSDP", "--mesh data=2 --no-fsdp", "--fsdp"),
    ("FSDP, bf16", "--mesh data=2 --no-fsdp --storage bf16 --precision bf16", "--fsdp"),
    ("offload, optimizer", ONE, "--offload optimizer"),
    ("offload, all", LOOPS, "--offload optimizer,activations,weights"),
]
# Products of at least 128 terms and leaves of at least 64 rows.
MODEL = "--no-fsdp --attention gqa --kv-heads 4 --model-dimension 512 --n-heads 8 --blocks 2 --layers-per-block 1 --batch 8 --microbatches 2"
EXACT = [
    *[(f"data=4 on {mesh}", f"--mesh {mesh} {MODEL}", "--exact data=4") for mesh in ("data=1", "data=2", "data=4", "data=2,pipe=2")],
    *[(f"tensor=4 on {mesh}", f"--mesh {mesh} {MODEL}", "--exact tensor=4")
      for mesh in ("tensor=1", "tensor=2", "tensor=4", "tensor=2,pipe=2")],
    *[(f"data=2,tensor=4 on {mesh}", f"--mesh {mesh} {MODEL}", "--exact data=2,tensor=4")
      for mesh in ("data=1,tensor=1", "data=2,tensor=2", "data=2,tensor=4")],
    *[(f"data=4, tensor=4 in bf16 on {mesh}", f"--mesh {mesh} {MODEL} --precision bf16 --storage bf16", "--exact data=4,tensor=4")
      for mesh in ("data=1,tensor=1", "data=2,tensor=2")],
    *[(f"data=4, four experts on {mesh}", f"--mesh {mesh} {MODEL} --experts 4 --top-k 2", "--exact data=4")
      for mesh in ("data=1", "data=2")],
]
PIECE = 1 << 23  # bytes moved at a time


def train(build, options, steps, folder):
    """Returns (the steps' times, the memory of coordinate 0)."""
    command = [build / "drivers/transformer", "train", *options.split(), "--offload-dir", folder]
    *lines, last = json_lines([*map(str, command), "--json", "--steps", str(steps)])
    return [line["ms"] for line in lines if "ms" in line][1:], last["memory"][0]


def seconds(work, least=0.2):
    """Returns the seconds of the fastest call of WORK. Calls are repeated for LEAST seconds; the first one does not count."""
    work()
    times = []
    while sum(times) < least:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def copy_rate():
    """Returns the bytes a second that a core copies in memory."""
    source, target = memoryview(bytearray(PIECE)), memoryview(bytearray(PIECE))

    def copy():
        target[:] = source

    return PIECE / seconds(copy)


def file_rates(folder):
    """Returns the rates of a file in FOLDER: (bytes a second of reading, of writing)."""
    piece = bytearray(PIECE)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:

        def moves(move):
            def all_pieces():
                file.seek(0)
                for _ in range(8):
                    move(piece)

            return all_pieces

        written = 8 * PIECE / seconds(moves(file.write))
        return 8 * PIECE / seconds(moves(file.readinto)), written


def moved(name, before, after):
    """Returns the least bytes that a coordinate moves in a step: (copied in memory, read from files, written to files)."""
    if name.startswith("FSDP"):
        return after["parameters"] - before["parameters"], 0, 0
    if not name.startswith("offload"):
        return 0, 0, 0
    if name == "offload, optimizer":
        return 0, after["offloaded"], after["offloaded"]
    # Values come twice and leave once, gradients leave once, the others come and leave once.
    values, gradients = before["parameters"], before["gradients"]
    others = after["offloaded"] - values - gradients
    return 0, 2 * values + others, values + gradients + others


def measure(build, quick, watch, which=PRICES):
    """Returns a row for each of WHICH; "ms" is the time of the step with the option."""
    rows = []
    pairs, steps = (6, 4) if quick or which is EXACT else (12, 12)
    with tempfile.TemporaryDirectory(dir="build") as folder:
        copied, (read, written) = copy_rate(), file_rates(folder)
        for name, without, more in which:
            times, memory = {without: [], f"{without} {more}": []}, {}
            for number in range(pairs):
                for options in list(times) if number % 2 else reversed(times):
                    with watch:
                        taken, memory[options] = train(pathlib.Path(build), options, steps, folder)
                    times[options].append(taken)
            old, new = times.values()
            told = [samples.of_runs([run])["ms"] for run in new], [samples.of_runs([run])["ms"] for run in old]
            ratio, low, high, confidence = samples.ratio_of_pairs(list(zip(*told)))
            parts = moved(name, *map(memory.get, times))
            rows.append({"price": name, "without": samples.of_runs(old), "ratio": ratio, "ratio_interval": [low, high],
                         "confidence_of_ratio": confidence, "copied_bytes": parts[0], "read_bytes": parts[1],
                         "written_bytes": parts[2], "copy_gbs": copied / 1e9, "read_gbs": read / 1e9,
                         "write_gbs": written / 1e9,
                         "bound_ms": 1e3 * sum(part / rate for part, rate in zip(parts, (copied, read, written)))}
                        | samples.of_runs(new))
    return rows


def print_exact(rows, table):
    """TABLE prints rows of words."""
    words = [["exactness", "step without", "with --exact", "ratio", "95 % of it"]]
    for row in rows:
        low, high = row["ratio_interval"]
        words.append([row["price"], *(f"{ms:.1f}" for ms in (row["without"]["ms"], row["ms"])), f"{row['ratio']:.3f}",
                      f"{low:.3f} - {high:.3f}{'' if row['confidence_of_ratio'] >= samples.CONFIDENCE else ' ?'}"])
    print()
    table(words, 1)


def print_table(rows, table):
    """TABLE prints rows of words."""
    words = [["prices", "step without", "with", "ratio", "95 % of it", "MB copied", "read", "written", "bound: ms", "% of the step"]]
    for row in rows:
        low, high = row["ratio_interval"]
        certain = "" if row["confidence_of_ratio"] >= samples.CONFIDENCE else " ?"
        words.append([row["price"], *(f"{ms:.1f}" for ms in (row["without"]["ms"], row["ms"])), f"{row['ratio']:.3f}",
                      f"{low:.3f} - {high:.3f}{certain}",
                      *(f"{row[name] / 1e6:.1f}" for name in ("copied_bytes", "read_bytes", "written_bytes")),
                      f"{row['bound_ms']:.1f}", f"{100 * row['bound_ms'] / row['without']['ms']:.1f}"])
    print()
    table(words, 1)
    print("by themselves: copies {copy_gbs:.1f} GB/s, files {read_gbs:.1f} and {write_gbs:.1f}".format(**rows[0]))
