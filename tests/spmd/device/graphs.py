"""graphs.py BUILD [MPIRUN] - compares the calls of steps with and without graphs, on a GPU that computes nothing; prints TAP.
MPIRUN: if each coordinate is a process, most steps are graphs, too.

    graphs.py --changes BUILD PROGRAM ARGUMENT...    the calls of a step that are others than in the step before
"""
import collections
import os
import re
import sys
import tempfile

from null_cuda import ALONE, CUT, EIGHT, HERE, JOURNAL, NARROW, TEXT, Points, run

WORK = ("launch", "product", "copy", "fill", "mark", "await")
STEPS = 8
LEARNED = 12  # steps of a job of several coordinates, of which the last ones are graphs
TURNS = 22  # steps of a job whose rooms are used in turn, so that a step may differ from the one before
# Jobs of one coordinate: learning rates rise and fall, dropout draws in each step.
RATES = ("--warmup", "3", "--lr-schedule", "cosine", "--dropout", "0.1")
JOBS = (
    ("looping_pipeline", *ALONE, *RATES),
    ("looping_pipeline", *ALONE, *RATES, "--precision", "bf16", "--storage", "bf16", "--clip", "1"),
    ("looping_pipeline", *ALONE, "--optimizer", "sgd", "--accumulate", "2", "--recompute", "full"),
    ("looping_pipeline", "--mesh", "data=1,model=1", "--schedule", "looping", "--loops", "4", "--rng", "global", *RATES),
    ("looping_pipeline", *ALONE, *RATES, "--offload", "optimizer,activations"),
    ("loss_equality", "--mesh", "data=1,model=1"),
    ("transformer", *TEXT, *RATES),
    ("transformer", *TEXT, *RATES, "--precision", "bf16", "--clip", "1", "--microbatches", "4", "--schedule", "gpipe"),
    ("looping_pipeline", *ALONE, *RATES, "--journal", JOURNAL),
    ("transformer", *TEXT, *RATES, "--precision", "bf16", "--journal", JOURNAL),
)
# Jobs of several coordinates, whose queues wait for each other, and whether a step has a fixed order: overlapped sums end in
# any order.
TOGETHER = (
    (False, "looping_pipeline", *HERE, *RATES),
    (True, "looping_pipeline", *HERE, *RATES, "--no-overlap"),
    (False, "looping_pipeline", *EIGHT, *RATES),
    (True, "transformer", *CUT, *RATES),
    (False, "transformer", *NARROW, "--mesh", "data=2,pipe=2,tensor=2", "--engine", "nccl", *RATES),
    (False, "transformer", *NARROW, "--mesh", "data=4", "--engine", "local", "--fsdp", *RATES),
    (True, "transformer", *NARROW, "--mesh", "tensor=8", "--n-heads", "8", *RATES),
)
# Jobs of engine nccl, and the most graphs of a step. If NCCL's calls divided steps, there would be 121, 49, 49 and 190; if
# only messages did, 23 in the last job.
COMMUNICATION = (
    (8, "transformer", *NARROW, "--mesh", "data=2,pipe=1,tensor=2", "--engine", "nccl", *RATES),
    (8, "transformer", *NARROW, "--mesh", "data=8", "--engine", "nccl", *RATES),
    (8, "transformer", *NARROW, "--mesh", "data=8", "--engine", "nccl", "--fsdp", *RATES),
    (8, "transformer", *NARROW, "--mesh", "data=2,pipe=2,tensor=2", "--engine", "nccl", *RATES),
    (8, "transformer", *NARROW, "--mesh", "pipe=4", "--blocks", "4", "--engine", "nccl", "--schedule", "1f1b",
     "--microbatches", "4", "--accumulate", "2", *RATES),
    (8, "transformer", *NARROW, "--mesh", "data=2,pipe=2", "--engine", "nccl", "--schedule", "looped-bfs", "--loops", "2",
     "--fsdp", "--clip", "1", *RATES),
)

# Jobs with a process for each coordinate.
APART = (("2", "data=2,pipe=1,tensor=1"), ("4", "data=4,pipe=1,tensor=1"), ("4", "data=2,pipe=2,tensor=1"))
MANY = 60  # steps of these jobs; after the first few each is one graph, also if processes share cores


def work(lines):
    """Returns the works of LINES that go into streams, in their order."""
    return [(kind, name, *rest) for _, kind, name, *rest in lines if kind in WORK]


def calls(lines):
    """Returns the number of calls of each function, and of the other works of each kind."""
    return collections.Counter(name if kind == "call" else kind for _, kind, name, *_ in lines)


def first_difference(one, other):
    at = next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
    return f"number {at}: {one[at:at + 1]}", f"but {other[at:at + 1]}"


def function_of(call):
    """Returns the job's name in the output."""
    found = re.fullmatch(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_(.*)_l[0-9]+", call[1])
    return found.group(1) if call[0] == "launch" and found else call[0]


def without_options(arguments):
    return " ".join(a for a in arguments if a not in TEXT + ALONE + EIGHT[4:] + CUT[5:])


def changes(build, program, *arguments):
    """Returns (calls of the last step, pairs in which they differ from the step before). The run has one coordinate."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record")
        run(build, record, program, *arguments, "--steps", "1")
        few = work(run(build, record, program, *arguments, "--steps", "4")[1])
        more = work(run(build, record, program, *arguments, "--steps", "6")[1])
    length = (len(more) - len(few)) // 2
    before, last = more[-2 * length:-length], more[-length:]
    return last, [pair for pair in zip(before, last) if pair[0] != pair[1]]


def print_changes(build, program, *arguments):
    last, pairs = changes(build, program, *arguments)
    counts = collections.Counter()
    for one, other in pairs:
        where = [str(i) for i, (a, b) in enumerate(zip(one, other)) if a != b]
        counts[function_of(other), ",".join(where), "" if one[:2] == other[:2] else "another call"] += 1
    print(f"{len(last)} calls in a step, {len(pairs)} of which are others than in the step before")
    for (name, where, note), count in sorted(counts.items()):
        print(f"{count:6}  {name}: word {where} of its line {note}".rstrip())


def same_work(points, build, record, driver, *arguments):
    """One coordinate: the same calls with the same arguments in the same order."""
    program = os.path.join(build, "drivers", driver)
    run(build, record, program, *arguments, "--steps", "1")
    steps = str(TURNS if "looping" in arguments else STEPS)
    plain, one = run(build, record, program, *arguments, "--steps", steps)
    graphs, other = run(build, record, program, *arguments, "--steps", steps, "--graph", "on")
    one, launched, other = work(one), calls(other)["cuGraphLaunch"], work(other)
    points.point(plain.returncode == graphs.returncode == 0 and one == other and launched > 0,
                 f"{len(one)} calls are the same in {launched} graphs: {driver} {without_options(arguments)}",
                 f"exit status {plain.returncode} and {graphs.returncode}, {len(one)} and {len(other)} calls",
                 *first_difference(one, other), graphs.stderr[-300:])


def whole_step(points, build, record, copies, *arguments):
    """Only copies and waits of the host, listed in COPIES, go to the stream outside of graphs."""
    program = os.path.join(build, "drivers/looping_pipeline")
    few, more = (calls(run(build, record, program, *ALONE, *RATES, "--graph", "auto", *arguments, "--steps", steps)[1])
                 for steps in "68")
    counts = {name: (more[name] - few[name]) / 2 for name in more}
    alone = {name: counts[name] for name in ("cuLaunchKernel", "cublasLtMatmul", "cudaMemsetAsync") if counts.get(name)}
    points.point(counts["cuGraphLaunch"] <= 4 and not alone and counts["cudaMemcpyAsync"] == copies,
                 f"a step is {counts['cuGraphLaunch']:g} graphs and {copies} {'copy' if copies == 1 else 'copies'} to the host: {' '.join(arguments)}".rstrip(": "), counts)


def count_together(points, build, record, alike, driver, *arguments):
    """Several coordinates, in any order among each other: the same number of calls of each kind, with the same sizes."""
    program = os.path.join(build, "drivers", driver)
    run(build, record, program, *arguments, "--steps", "1")
    plain, one = run(build, record, program, *arguments, "--steps", str(STEPS))
    graphs, other = run(build, record, program, *arguments, "--steps", str(STEPS), "--graph", "on")
    launched = calls(other)["cuGraphLaunch"]
    # Calls of the host are measurements for a forecast; a run by graphs makes none.
    one, other = (collections.Counter((kind, name) for kind, name, *_ in work(lines)
                                      if kind in ("launch", "product", "copy") and name != "host>host")
                  for lines in (one, other))
    points.point(plain.returncode == graphs.returncode == 0 and one == other and (launched > 0 or not alike),
                 f"{sum(one.values())} calls are as many of each kind with {launched} graphs: {driver} {without_options(arguments)}",
                 f"exit status {plain.returncode} and {graphs.returncode}", f"{one - other}", f"{other - one}",
                 graphs.stderr[-300:])


def by_thread(lines):
    """Returns the works that each thread puts into streams, in its order: kernels by their grids, products by their shapes, copies
    and NCCL's calls by their bytes. Addresses are left out because threads allocate in any order; single numbers, too, because
    the ranks of a run longer than 2 s ask each other for some."""
    threads = collections.defaultdict(list)
    for who, kind, name, *rest in lines:
        thread = who.split(".")[0]
        if kind == "launch":
            threads[thread].append((name, *rest[:2]))
        elif kind == "product":
            threads[thread].append((kind, name, *rest[:3]))
        elif (kind == "copy" and name == "device>device" or name.startswith("nccl")) and rest[0] != "4":
            threads[thread].append((name, rest[0]))
    computing = {who.split(".")[0] for who, kind, *_ in lines if kind == "launch"}  # the others watch
    return sorted(threads[thread] for thread in computing)


def in_graphs(lines):
    """Returns the numbers of NCCL's calls in graphs and outside of them."""
    counts, last = collections.Counter(), {}
    for who, _, name, *_ in lines:
        thread = who.split(".")[0]
        if "." not in who:
            last[thread] = name
        elif name.startswith("nccl"):
            counts[last.get(thread) == "cuGraphLaunch"] += 1
    return counts


def communication(points, build, record, most, program, *arguments):
    """Engine nccl's sums, gathers and exchanges in graphs: each coordinate makes the same calls in the same order. A step has at
    most MOST graphs."""
    path = os.path.join(build, "drivers", program)
    run(build, record, path, *arguments, "--steps", "1")
    steps = ("--steps", str(LEARNED), "--no-overlap")
    plain, one = run(build, record, path, *arguments, *steps)
    graphs, other = run(build, record, path, *arguments, *steps, "--graph", "on", "--profile")
    told = re.search(r"^graphs: ([0-9]+) of .* ([0-9]+) of ([0-9]+) calls were in ([0-9]+) graphs", graphs.stdout, re.M)
    replayed, kept, whole, launched = map(int, told.groups()) if told else (0, 0, 1, 0)
    counts, one, other = in_graphs(other), by_thread(one), by_thread(other)
    if "pipe" in " ".join(arguments):  # when messages come is chance, with and without graphs
        one, other = (sorted(sorted(map(repr, calls)) for calls in threads) for threads in (one, other))
    different = next((first_difference(a, b) for a, b in zip(one, other) if a != b), "")
    points.point(plain.returncode == graphs.returncode == 0 and one and one == other and replayed and kept == whole and
                 launched <= most and counts[True] > 0,
                 f"{counts[True]} calls of NCCL's in graphs, {counts[False]} by themselves; a step is {launched} graphs: "
                 f"{program} {without_options(arguments)}",
                 f"exit status {plain.returncode} and {graphs.returncode}, {len(one)} and {len(other)} threads", told,
                 different, graphs.stderr[-300:])


def apart(points, build, record, mpirun, count, mesh):
    """Within a step, no host waits for another one."""
    result, _ = run(build, record, mpirun, count, os.path.join(build, "drivers/transformer"), *NARROW, "--mesh", mesh,
                    "--engine", "nccl", "--no-overlap", "--graph", "auto", "--profile", "--steps", str(MANY))
    told = re.search(rf"^graphs: ([0-9]+) of {MANY} steps(?:, ([0-9]+) of them in part)?;", result.stdout, re.M)
    replayed, parted = (int(number or 0) for number in told.groups()) if told else (0, 0)
    points.point(result.returncode == 0 and replayed >= MANY * 3 // 4 and not parted,
                 f"{count} processes: {replayed - parted} of {MANY} steps are graphs as a whole: {mesh}",
                 f"exit status {result.returncode}", told, result.stderr[-300:])


def main():
    if sys.argv[1] == "--changes":
        print_changes(*sys.argv[2:])
        return
    build = sys.argv[1]
    points = Points()
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record")
        for job in JOBS:
            same_work(points, build, record, *job)
        whole_step(points, build, record, 1)
        whole_step(points, build, record, 2, "--journal", JOURNAL)
        for job in TOGETHER:
            count_together(points, build, record, *job)
        for job in COMMUNICATION:
            communication(points, build, record, *job)
        for mpirun in filter(None, sys.argv[2:]):
            for job in APART:
                apart(points, build, record, mpirun, *job)
    print(f"1..{points.count}")


if __name__ == "__main__":
    main()
