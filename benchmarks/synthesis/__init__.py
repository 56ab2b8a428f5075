"""synthesis - synthesized schedules in real runs.

Each job's trace gives the costs for schedule --synthesize, which does not start from the named schedules. The result runs
in turns with the named schedules that the simulator ranks first by the same costs. All schedules divide the model into the
same parts: if a rank has one stage, the stage consists of neighbouring parts.
"""

import pathlib
import re
import statistics
import tempfile

import samples
from programs import json_lines

CLASSIFIER = ["looping_pipeline", "--rng", "global", "--batch", "512", "--microbatches", "8"]
TRANSFORMER = ["transformer", "train", "--microbatches", "8"]
LOOPS = 2  # stages of a rank
CONTENDERS = 2  # named schedules, the best in the simulator

# A job, its command and mesh, the ranks, the layers of each part, and the steps of a run, in full and quickly.
JOBS = [
    ("transformer", TRANSFORMER, "data=1,pipe=2,tensor=1", 2, [2, 2, 1, 1], 7, 3),
    ("transformer of 8 layers", [*TRANSFORMER, "--layers-per-block", "4"], "data=1,pipe=4,tensor=1", 4, [1] * 8, 7, 3),
    ("transformer, uneven", TRANSFORMER, "data=1,pipe=2,tensor=1", 2, [1, 2, 1, 2], 7, 3),
    ("transformer, vocabulary 50304", [*TRANSFORMER, "--vocab-size", "50304"], "data=1,pipe=2,tensor=1", 2, [2, 2, 1, 1], 4, 3),
    ("classifier, uneven", CLASSIFIER, "data=1,model=2", 2, [1, 3, 2, 2], 30, 6),
]


def joined(layers, stages):
    """Returns LAYERS joined to STAGES stages of neighbours."""
    parts = len(layers) // stages
    return [sum(layers[i * parts : (i + 1) * parts]) for i in range(stages)]


def command(build, job, mesh, layers, stages, *options):
    split = ",".join(map(str, joined(layers, stages)))
    return [build / "drivers" / job[0], *job[1:], "--mesh", mesh, "--wgrad-group", "1", "--stage-layers", split, "--json", *options]


def named(build, ranks, trace):
    """Returns the named schedules that fit, the fastest in the simulator first. Of equal schedules, only the first one."""
    lines = json_lines([build / "drivers/schedule", "--all", "--stages", str(ranks), "--loops", str(LOOPS), "--microbatches", "8",
                        "--wgrad-group", "1", "--costs", trace, "--json"])
    found = {}
    for line in lines:
        if line["valid"]:
            found.setdefault(line["step_ms"], line)
    return list(found.values())


def synthesized(build, ranks, trace, table):
    """Runs the search, which writes TABLE. Returns its result."""
    (found,) = json_lines([build / "drivers/schedule", "--synthesize", "--no-named", "--stages", str(ranks), "--loops", str(LOOPS), "--microbatches", "8",
                           "--costs", trace, "--seconds", "60", "--json"])
    table.write_text(found["csv"])
    ranks_stages = [re.findall(r"\b(\d+)F0\b", line) for line in found["csv"].splitlines()]
    stages = sum(map(len, ranks_stages))
    on_v = any({"0", str(stages - 1)} <= set(of_rank) for of_rank in ranks_stages)
    return found, stages, "in line" if stages == ranks else "on a V" if on_v else "on a ring"


def measure_job(build, folder, quick, watch, job):
    """Returns a row."""
    name, driver, mesh, ranks, layers, full_steps, quick_steps = job
    steps = str(quick_steps if quick else full_steps)
    trace, table = folder / "trace.json", folder / "made.csv"
    with watch:
        json_lines(command(build, driver, mesh, layers, ranks * LOOPS, "--schedule", "interleaved-1f1b", "--loops", str(LOOPS), "--no-fuse",
                           "--steps", steps, "--trace", trace))
    found, stages, place = synthesized(build, ranks, trace, table)
    best = named(build, ranks, trace)[:CONTENDERS]
    runs = {"": command(build, driver, mesh, layers, stages, "--schedule-file", table, "--steps", steps)}
    for line in best:
        runs[line["name"]] = command(build, driver, mesh, layers, ranks * line["loops"], "--schedule", line["name"], "--loops", str(line["loops"]),
                                     "--steps", steps)
    medians, every = {schedule: [] for schedule in runs}, {schedule: [] for schedule in runs}
    for _ in range(1 if quick else 3):
        for schedule, run in runs.items():
            with watch:
                ms = [line["ms"] for line in json_lines(run) if "ms" in line][1:]
            medians[schedule].append(statistics.median(ms))
            every[schedule] += ms
    rows = {schedule: statistics.median(ms) for schedule, ms in every.items()}
    fastest = min((schedule for schedule in runs if schedule), key=rows.get)
    ratio, low, high, _ = samples.ratio_of_pairs(list(zip(medians[""], medians[fastest])))
    return {"job": name, "layers": layers, "ranks": ranks, "layout": place, "simulated_ms": found["step_ms"], "bound_ms": found["bound_ms"],
            "median_ms": rows[""], "named": fastest, "named_simulated_ms": next(line["step_ms"] for line in best if line["name"] == fastest),
            "named_median_ms": rows[fastest], "ratio": ratio, "ratio_interval": [low, high], "samples": len(every[""])}


def measure(build, quick, watch, jobs=JOBS):
    with tempfile.TemporaryDirectory() as folder:
        return [measure_job(build, pathlib.Path(folder), quick, watch, job) for job in jobs]


def print_table(rows, table):
    """Prints ROWS by TABLE, a function that prints rows of words."""
    words = [["synthesis", "layers", "found", "simulated", "bound", "measured", "best named", "simulated", "measured", "found / named"]]
    for row in rows:
        low, high = row["ratio_interval"]
        words.append([row["job"], ",".join(map(str, row["layers"])), row["layout"], *(f"{row[key]:.1f}" for key in ("simulated_ms", "bound_ms", "median_ms")),
                      row["named"], f"{row['named_simulated_ms']:.1f}", f"{row['named_median_ms']:.1f}", f"{row['ratio']:.3f} ({low:.3f} - {high:.3f})"])
    print()
    table(words, 3)
