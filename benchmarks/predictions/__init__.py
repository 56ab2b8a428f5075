"""predictions - compares the steps of real runs with their predictions.

The machine is measured (plan measure), then the layouts of a job run with that file. A prediction holds if it is within
LIMIT of the measured median, or between the tenth and the ninetieth percentile of the run's steps. The order of two
layouts holds if their times differ by more than 10 % and the one predicted to be faster is faster.
"""

import pathlib
import statistics
import tempfile

from programs import Failure, json_lines

TWO, EIGHT = 0.10, 0.15  # largest relative error: with a core for each coordinate; with eight coordinates on fewer cores
ROUNDS = 4  # short rounds, so that noise of some seconds affects all layouts alike
APART = 1.10  # layouts whose times differ by this factor must be predicted in the right order

CLASSIFIER = ["looping_pipeline"]
TRANSFORMER = ["transformer", "train"]
LONG = [*TRANSFORMER, "--sequence", "1024", "--batch", "2"]
LAYOUTS = [
    ("classifier, 2", CLASSIFIER, [
        "--mesh data=2,model=1 --schedule 1f1b",
        "--mesh data=1,model=2 --schedule gpipe",
        "--mesh data=1,model=2 --schedule 1f1b",
        "--mesh data=1,model=2 --schedule looping",
        "--mesh data=1,model=2 --schedule interleaved-1f1b --loops 4",
        "--mesh data=1,model=2 --schedule zbv",
        "--mesh data=1,model=2 --schedule sequential",
        "--mesh data=1,model=2 --schedule sequential --microbatches 64",
    ]),
    ("transformer, 2", TRANSFORMER, [
        "--mesh data=2",
        "--mesh data=2 --fsdp",
        "--mesh tensor=2",
        "--mesh pipe=2 --schedule gpipe --microbatches 4",
        "--mesh pipe=2 --schedule 1f1b --microbatches 8",
        "--mesh pipe=2 --schedule interleaved-1f1b --loops 2 --microbatches 8",
        "--mesh pipe=2 --schedule zbv --microbatches 8",
    ]),
    ("long sequences, 2", LONG, [
        "--mesh context=2",
        "--mesh context=2 --context-by heads",
        "--mesh context=2 --context-by ring",
        "--mesh context=2 --attention gqa --kv-heads 2",
        "--mesh context=2 --fsdp --recompute full",
    ]),
    ("long sequences, 8", LONG, [
        "--mesh context=2,pipe=2 --schedule 1f1b --microbatches 2",
        "--mesh data=2,context=2",
        "--mesh context=2,tensor=2",
        "--mesh context=4 --context-by heads",
    ]),
    ("classifier, 8", CLASSIFIER, [
        "--mesh data=8,model=1 --schedule 1f1b",
        "--mesh data=4,model=2 --schedule 1f1b",
        "--mesh data=2,model=4 --schedule looping",
        "--mesh data=1,model=8 --schedule 1f1b",
        "--mesh data=1,model=8 --schedule gpipe",
    ]),
    ("transformer, 8", TRANSFORMER, [
        "--mesh data=8",
        "--mesh data=2,pipe=4 --schedule gpipe --microbatches 4",
        "--mesh data=4,tensor=2",
        "--mesh data=2,pipe=2,tensor=2 --schedule 1f1b --microbatches 4",
        "--mesh pipe=2,tensor=4 --schedule 1f1b --microbatches 4",
    ]),
    ("classifier, searched, 8", CLASSIFIER, None),
    ("transformer, searched, 8", TRANSFORMER, None),
]
BEST = 3  # the first layouts of a search, and the last; None stands for them


def percentile(values, share):
    values = sorted(values)
    return values[round(share * (len(values) - 1))]


def searched(build, driver, devices, machine):
    """Returns the best layouts of a search on DEVICES devices, and the worst one."""
    lines = json_lines([build / "drivers" / driver[0], *driver[1:], "--plan", "search", "--devices", devices, "--machine", machine, "--json"])
    layouts = [line["layout"] for line in lines if "layout" in line]
    return [*layouts[:BEST], layouts[-1]]


def run(build, driver, layout, steps, machine):
    """Returns the lines of a run's steps, and its last line."""
    command = [build / "drivers" / driver[0], *driver[1:], *layout.split(), "--json", "--steps", str(steps)]
    *lines, last = json_lines([*command, "--machine", machine])
    if "predicted" not in last:
        raise Failure(f"{driver[0]} {layout}: predicts nothing")
    return [line["ms"] for line in lines if "ms" in line][1:], last


def row(job, limit, layout, predicted, held, samples):
    ms = statistics.median(samples)
    low, high = percentile(samples, 0.1), percentile(samples, 0.9)
    ratio = predicted["ms"] / ms
    within = abs(ratio - 1) <= limit
    return {"job": job, "layout": layout, "predicted_ms": predicted["ms"], "ms": ms, "p10_ms": low, "p90_ms": high,
            "ratio": ratio, "planned_bytes": predicted["bytes"], "held_bytes": held, "within": within,
            "holds": within or low <= predicted["ms"] <= high, "samples": len(samples)}


def disorder(rows):
    """Returns the pairs of a job's layouts in wrong order: the one predicted to be faster took more than APART times as long."""
    return [(fast["layout"], slow["layout"]) for fast in rows for slow in rows
            if fast["job"] == slow["job"] and fast["predicted_ms"] < slow["predicted_ms"]
            and fast["ms"] > APART * slow["ms"]]


def measure(build, quick, watch):
    """Returns all rows. The machine is measured before each round of a job; layouts take turns."""
    rows, rounds = [], 1 if quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        machine = pathlib.Path(folder) / "machine.json"
        for job, driver, layouts in LAYOUTS:
            steps = {CLASSIFIER[0]: 12 if quick else 20, TRANSFORMER[0]: 4 if quick else 5}[driver[0]]
            limit = TWO if job.endswith("2") else EIGHT
            samples, last = {}, {}
            for _ in range(rounds):
                with watch:
                    json_lines([build / "drivers/plan", "measure", "--save", machine, *(["--brief"] if quick else [])])
                layouts = layouts or searched(build, driver, job.split()[-1], machine)
                for layout in layouts:
                    with watch:
                        more, end = run(build, driver, layout, steps, machine)
                    samples.setdefault(layout, []).extend(more)
                    last.setdefault(layout, []).append(end)
            for layout, ends in last.items():
                held = max(each["total"] for each in ends[0]["memory"])
                predicted = {"ms": statistics.median(end["predicted"]["ms"] for end in ends),
                             "bytes": ends[0]["predicted"]["bytes"]}
                rows.append(row(job, limit, layout, predicted, held, samples[layout]))
    return rows


def print_table(rows, table):
    """Prints ROWS by TABLE, a function that prints rows of words."""
    words = [["predictions", "layout", "predicted", "measured", "p10", "p90", "ratio", "MB planned", "held", ""]]
    for each in rows:
        words.append([each["job"], each["layout"], *(f"{each[name]:.1f}" for name in ("predicted_ms", "ms", "p10_ms", "p90_ms")),
                      f"{each['ratio']:.2f}", *(f"{each[name] / 1e6:.1f}" for name in ("planned_bytes", "held_bytes")),
                      "within the limit" if each["within"] else "in the spread" if each["holds"] else "off"])
    print()
    table(words, 2)
    holds, apart = sum(each["holds"] for each in rows), disorder(rows)
    exact = sum(each["planned_bytes"] == each["held_bytes"] for each in rows)
    print(f"{holds} of {len(rows)} predictions hold, {exact} are exact in bytes; {len(apart)} pairs are not in order")
    for fast, slow in apart:
        print(f"  predicted to be faster, and slower: {fast}; {slow}")
