"""stages - the gain from a pipeline's stages: layers divided by their cost, and inference on two cores.

The first rows compare an even split with the one that the search finds fastest for the mesh and the schedule; the machine
is measured before. The others evaluate and generate with a model larger than both second-level caches: two stages, each on
a core, beside one coordinate on one core. The two runs of a row take turns.
"""

import os
import pathlib
import statistics
import tempfile

import samples
from programs import json_lines

VOCABULARY = ["--vocab-size", "50304"]
SPLITS = [(stages, ["--mesh", f"data=1,pipe={stages},tensor=1", "--schedule", "1f1b", "--microbatches", "8"]) for stages in (2, 4)]
# 15 million parameters, 62 MB.
LARGE = ["--model-dimension", "512", "--blocks", "2", "--layers-per-block", "3"]
INFERENCE = [
    ("evaluate", "sequences_per_second", [*LARGE, "--batch", "8", "--evaluate-batches", "8"]),
    ("generate", "tokens_per_second", [*LARGE, "--samples", "32", "--length", "64"]),
]
ONE, TWO = "data=1", "pipe=2"


def transformer(build, *words, within=()):
    return json_lines([*within, build / "drivers/transformer", *map(str, words), "--json"])


def balanced(build, machine, stages, options):
    """Returns the layers of each stage in the layout that the search finds fastest, "5,1"."""
    lines = transformer(build, "train", *VOCABULARY, *options, "--plan", "search", "--devices", stages, "--machine", machine)
    words = min((line for line in lines if "layout" in line), key=lambda line: line["predicted_ms"])["layout"].split()
    return words[words.index("--stage-layers") + 1] if "--stage-layers" in words else None


def in_turns(rounds, watch, runs):
    """Returns two lists: the results of each of two RUNS in each round."""
    said = [], []
    for number in range(rounds):
        for i in (0, 1) if number % 2 else (1, 0):
            with watch:
                said[i].append(runs[i]())
    return said


def row(job, unit, names, said):
    """Returns a row that compares the second run with the first. SAID: the lists of numbers from in_turns."""
    medians = [list(map(statistics.median, each)) for each in said]
    ratio, low, high, _ = samples.ratio_of_pairs(list(zip(medians[1], medians[0])))
    values = [statistics.median(sum(each, [])) for each in said]
    return {"job": job, "unit": unit, "first": names[0], "first_value": values[0], "second": names[1], "second_value": values[1],
            "ratio": ratio, "ratio_interval": [low, high], "rounds": len(medians[0])}


def split_row(build, machine, quick, watch, stages, options):
    """Returns a row with the milliseconds of a step with both splits; None if the search finds the even one best."""
    split = balanced(build, machine, stages, options)
    if not split:
        return None
    train = ["train", *VOCABULARY, *options, "--steps", 3 if quick else 8]

    def run(*more):
        return [line["ms"] for line in transformer(build, *train, *more) if "ms" in line][1:]

    said = in_turns(1 if quick else 3, watch, (run, lambda: run("--stage-layers", split)))
    return row(f"vocabulary 50304, {stages} stages", "ms a step", ("even", split), said)


def inference_row(build, quick, watch, command, rate, options):
    """Returns a row with the rates on one core and on two."""

    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]  # otherwise a coordinate's threads would share its work

    def run(mesh, within=()):
        return [transformer(build, command, *options, "--mesh", mesh, within=within)[-1][rate]]

    said = in_turns(1 if quick else 7, watch, (lambda: run(ONE, one_core), lambda: run(TWO)))
    return row(command, rate.replace("_per_second", "/s"), (ONE, TWO), said)


def measure(build, quick, watch):
    with tempfile.TemporaryDirectory() as folder:
        machine = pathlib.Path(folder) / "machine.json"
        with watch:
            json_lines([build / "drivers/plan", "measure", "--save", machine, *(["--brief"] if quick else [])])
        rows = [split_row(build, machine, quick, watch, *split) for split in SPLITS]
    return [*filter(None, rows), *(inference_row(build, quick, watch, *job) for job in INFERENCE)]


def print_table(rows, table):
    """Prints ROWS by TABLE, a function that prints rows of words."""
    words = [["stages", "unit", "", "", "", "", "second / first"]]
    for each in rows:
        low, high = each["ratio_interval"]
        words.append([each["job"], each["unit"], each["first"], f"{each['first_value']:.1f}", each["second"], f"{each['second_value']:.1f}",
                      f"{each['ratio']:.3f} ({low:.3f} - {high:.3f})"])
    print()
    table(words, 3)
