"""compare - finds benchmarks that became faster or slower: against an earlier run's file, or in turns with another build.

A change is certain if the ratio's interval lies wholly beyond the margin.
"""

import json

import distance
import noise
import samples
from programs import Failure, note
from suite import EIGHT, GRADIENT_BYTES, JOBS, TWO, Suite

# ---- two files


def read(path):
    """Returns the results in PATH, a file written by an earlier run."""
    try:
        with open(path) as file:
            whole = json.load(file)
        machine, command, results = whole["machine"], whole["command"], whole["benchmarks"]
        where = machine["cpu"], machine["cores"], machine.get("level", "native"), "--quick" in command
        names = [result["benchmark"] for result in results]
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", 2) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path}: this is not what ./benchmarks/run writes to build/benchmarks.json", 2) from error
    return where, dict(zip(names, results))


def usable(result):
    """Returns whether RESULT has a median and its interval."""
    numbers = [result.get("ms"), result.get("confidence"), *(result.get("interval_ms") or [None])]
    return len(numbers) == 4 and all(isinstance(number, (int, float)) and number >= 0 for number in numbers) and min(numbers[2:]) > 0


def parts(results, path):
    """Returns the medians of RESULTS and of their variants by name, in the form of samples.of_runs."""
    found = {}
    for name, result in results.items():
        found[name] = result
        variants = {"plain": result["plain"]} if "plain" in result else result.get("ours", {})
        found |= {f"{name}, {variant}": run for variant, run in variants.items()}
    for name, result in found.items():
        if not usable(result):
            raise Failure(f"{path}: {name} has no interval of its median: an older ./benchmarks/run wrote it", 2)
    return found


def compare_files(old_path, new_path):
    """Returns a line of comparison for each benchmark in both files."""
    (old_where, old), (new_where, new) = read(old_path), read(new_path)
    for what, before, now in zip(("CPU", "number of cores", "level", "--quick"), old_where, new_where):
        if before != now:
            raise Failure(f"{old_path}: its {what} is {before}, and that of {new_path} {now}: nothing to compare", 2)
    old, new = parts(old, old_path), parts(new, new_path)
    if not set(old) & set(new):
        raise Failure(f"{old_path} and {new_path} have no benchmark in common", 2)
    return [line_of(name, new[name]["ms"], old[name]["ms"], samples.ratio_of_medians(new[name], old[name]))
            for name in new if name in old]


def line_of(name, new, old, ratio, margin=samples.MARGIN):
    return {"comparison": name, "ms": new, "old_ms": old, "ratio": ratio[0], "interval": [ratio[1], ratio[2]],
            "confidence": ratio[3], "verdict": samples.verdict(ratio, margin)}


# ---- two builds, in turns


def one_step(job, schedule, full, quick):
    def take(suite):
        return suite.our_step(job, schedule, f"{quick if suite.quick else full} --rounds 1 --floor-seconds 0.001")["ms"]

    return take


def one_transformer(options):
    def take(suite):
        steps = "--steps 5 --warmup 2" if suite.quick else "--steps 16 --warmup 3"
        return suite.our_transformer(f"{options} {steps} --rounds 1 --floor-seconds 0.001")["ms"]

    return take


def one_start(suite):
    return suite.next_startup()["startup_ms"]


def one_sum(suite):
    lines = suite.our_pair("0.02" if suite.quick else "0.1")
    return distance.find_call(lines, "psum_gradients", 2, GRADIENT_BYTES)["us"] / 1e3


def one_schedule(suite):
    return suite.ours("benchmarks/bench_schedule_overhead", "--steps", "200" if suite.quick else "1000")[0]["ms"]


def one_products(suite):
    return suite.products()["ms"]


def one_attention(suite):
    return suite.attention()["ms"]


# The cases of each benchmark. A case is a function of a build's suite; it runs one process and returns milliseconds.
NOTEBOOK, WIDE = ("--steps 60 --warmup 5", "--steps 20 --warmup 3"), ("--steps 4 --warmup 1", "--steps 1 --warmup 1")
CASES = {
    "notebook_step": {
        "notebook_step": one_step("notebook_step", "looping", *NOTEBOOK),
        "notebook_step, plain": one_step("notebook_step", "plain", *NOTEBOOK),
    },
    "wide_step": {"wide_step": one_step("wide_step", "looping", *WIDE)},
    "transformer_step": {
        "transformer_step": one_transformer(TWO),
        "transformer_step, fsdp": one_transformer(TWO + " --fsdp"),
        "transformer_step, 2x2x2, fsdp": one_transformer(EIGHT + " --fsdp"),
    },
    "generate": {
        "generate": one_transformer("--job generate --mesh data=1 --batch 1"),
        "generate, tensor=2": one_transformer("--job generate --mesh tensor=2,data=1 --batch 1"),
    },
    "generate_bf16": {
        "generate_bf16": one_transformer("--job generate --mesh data=1 --batch 1 --storage bf16"),
        "generate_bf16, precision bf16": one_transformer(
            "--job generate --mesh data=1 --batch 1 --storage bf16 --precision bf16"),
    },
    "products": {"products": one_products},
    "attention": {"attention": one_attention},
    "collectives": {"collectives": one_sum},
    "schedule_overhead": {"schedule_overhead": one_schedule},
    "startup": {"startup": one_start},
}
# Cases that --quick omits: all that they compute and send is in other cases of the same benchmark.
OMITTED = ["notebook_step, plain", "transformer_step, fsdp"]
PAIRS = {"full": 12, "quick": 6}  # fewer than 6 are never certain
MORE = 2  # times as many pairs at most, if the machine is not quiet and the result uncertain


def race(name, take, ours, other, margin=samples.MARGIN):
    """Returns the line of a comparison of two suites that run TAKE in turns."""
    watch = ours.watch = other.watch = noise.Watch()
    planned, pairs = PAIRS["quick" if ours.quick else "full"], []
    while len(pairs) < planned * MORE:
        first, second = (ours, other) if len(pairs) % 2 else (other, ours)
        times = {suite: take(suite) for suite in (first, second)}
        pairs.append((times[ours], times[other]))
        if len(pairs) < planned:
            continue
        ratio = samples.ratio_of_pairs(pairs)
        if watch.told()["quiet"] or samples.verdict(ratio, margin) != "?":
            break
    new, old = (samples.of_runs([list(times)])["ms"] for times in zip(*pairs))
    return line_of(name, new, old, ratio, margin) | {"pairs": len(pairs), "noise": watch.told()}


def judge(name, take, ours, other, margin=samples.MARGIN):
    """Returns race's line; a slowdown counts only if a second race confirms it. Returns nothing if the other build cannot run TAKE."""
    take(ours)  # an error of our own build ends the comparison
    try:
        take(other)
    except Failure as failure:
        note(f"{name} is left out: {failure}")
        return None
    line = race(name, take, ours, other, margin)
    if line["verdict"] != "slower":
        return line
    note(f"{name} is slower by {100 * line['ratio'] - 100:.0f} %: once more")
    return race(name, take, ours, other, margin) | {"before": line["ratio"]}


def against(options):
    """Yields a line for each case, run in turns by this build and by that of options.against."""
    ours, other = (Suite(build, options.quick, forced=options.level) for build in (options.build, options.against))
    for suite in (ours, other):
        suite.our_startup()  # reads the programs from disk into memory
    for benchmark in options.only:
        note(f"measuring {benchmark}")
        for name, take in CASES.get(benchmark, {}).items():
            line = None if options.quick and name in OMITTED else judge(name, take, ours, other, options.limit - 1)
            if line:
                yield line
