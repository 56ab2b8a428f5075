"""random_models - schedules that are made to measure, beside the named ones, for models that are drawn; nothing is run.

Every other model has parts of 0.5 to 2 times the costs of the others. A rank has room for any number of microbatches,
for as many as there are ranks, or for a number that is drawn. A named schedule counts where it fits into that room.
"""

import json
import math
import pathlib
import random
import re
import statistics
import tempfile

from programs import json_lines, output

LOOPS = 2  # parts of a rank
MODELS, FEW_MODELS = 50, 6


def draw(number):
    """Returns ranks, microbatches, the cost of each part in ms, and the most parts of microbatches that a rank may keep, or None."""
    draws = random.Random(number)
    ranks, microbatches = draws.randint(2, 8), draws.choice([4, 8, 12, 16, 24, 32])
    forward, input_gradient, weight_gradient = 1.0, draws.uniform(0.7, 1.5), draws.uniform(0.4, 1.3)
    uneven = number % 2 == 1
    sizes = [draws.uniform(0.5, 2) if uneven else 1.0 for _ in range(LOOPS * ranks)]
    costs = {name: [round(cost * size, 3) for size in sizes]
             for name, cost in [("forward", forward), ("input_gradient", input_gradient), ("weight_gradient", weight_gradient)]}
    costs["communication"] = round(draws.uniform(0, 0.3), 3)
    room = [None, LOOPS * ranks, LOOPS * draws.randint(2, max(2, microbatches))][number // 2 % 3]
    return ranks, microbatches, costs, room, uneven


def kept(table, parts):
    """Returns the most parts of microbatches that a rank keeps in the CSV TABLE; a stage has PARTS."""
    most = 0
    for line in table.splitlines():
        holds = 0
        for action in re.findall(r"\d+([FIWB])\d+", line):
            holds += parts if action == "F" else -parts if action in "WB" else 0
            most = max(most, holds)
    return most


def best_named(schedule, costs, room):
    """Returns the simulated milliseconds of the fastest named schedule that fits; None if none fits."""
    times = []
    for line in json_lines([*schedule, *costs, "--all", "--json"]):
        if not line["valid"]:
            continue
        if room is not None:
            table = output([*schedule, "--loops", str(line["loops"]), "--name", line["name"], "--format", "csv"])
            if kept(table, LOOPS // line["loops"]) > room:
                continue
        times.append(line["step_ms"])
    return min(times, default=None)


def measure_model(build, folder, seconds, number):
    """Returns a row."""
    ranks, microbatches, costs, room, uneven = draw(number)
    file = folder / "costs.json"
    file.write_text(json.dumps(costs))
    schedule, costed = [build / "drivers/schedule", "--stages", str(ranks), "--microbatches", str(microbatches)], ["--loops", str(LOOPS), "--costs", file]
    limit = [] if room is None else ["--memory", str(room)]
    search = [*schedule, *costed, *limit, "--synthesize", "--seconds", str(seconds), "--json"]
    (found,), (unaided,) = json_lines(search), json_lines([*search, "--no-named"])
    return {"model": number, "ranks": ranks, "microbatches": microbatches, "room": room, "uneven": uneven, "found_ms": found["step_ms"],
            "unaided_ms": unaided["step_ms"], "bound_ms": found["bound_ms"], "named_ms": best_named(schedule, costed, room)}


def measure(build, quick):
    with tempfile.TemporaryDirectory() as folder:
        return [measure_model(build, pathlib.Path(folder), 2 if quick else 10, number) for number in range(FEW_MODELS if quick else MODELS)]


def share(rows, key):
    """Returns the median and maximum of KEY's times relative to the best named schedule's."""
    shares = [row[key] / row["named_ms"] for row in rows]
    return (statistics.median(shares), max(shares)) if shares else (math.nan, math.nan)


def print_table(rows, table):
    """Prints ROWS by TABLE, a function that prints rows of words."""
    words = [["random models", "models where a named one fits", "found / named", "most", "with --no-named", "most", "lower bound / named"]]
    for name, uneven in [("even parts", False), ("uneven parts", True)]:
        of_kind = [row for row in rows if row["uneven"] == uneven]
        fit = [row for row in of_kind if row["named_ms"]]
        words.append([name, f"{len(fit)} of {len(of_kind)}", *(f"{value:.3f}" for key in ("found_ms", "unaided_ms") for value in share(fit, key)),
                      f"{share(fit, 'bound_ms')[0]:.3f}"])
    print()
    table(words, 1)
