"""main - builds and runs the benchmarks, and prints the floor and the peers beside them; or compares two runs or builds.

Times are milliseconds: the median, and the interval in which it lies with 95 % certainty. Results are also written to
build/benchmarks.json, those of --gpu to build/benchmarks_gpu.json, those of --against to build/benchmarks_against.json.

--compare and --against end with status 1 if something is certainly slower: the interval of new over old lies wholly above
1.05, or above --limit; with --against in two races, one after the other. Paths are relative to the repository's root.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import compare
import gpu
import gpu_model
import level
import parent
import report
from gpu_model import counts
from programs import Failure, note
from suite import BENCHMARKS, LONG, STEPS, Suite

WRITTEN = "build/benchmarks.json"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """Prints one line for bad input."""
        self.exit(2, f"{self.prog}: {message}\n")


def read_options():
    parser = Parser(
        prog="./benchmarks/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=BENCHMARKS, action="append", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="a JSON object a line instead of tables")
    parser.add_argument("--peers", action="store_true", help="install JAX, PyTorch, transformers, llama.cpp and Open MPI and race them")
    parser.add_argument("--quick", action="store_true", help="few steps, for a first look; benchmarks that take minutes run only if they are named")
    parser.add_argument("--gpu", nargs="?", const="", metavar="FIGURES", help=gpu.HELP)
    parser.add_argument("--alone", action="store_true", help="with --gpu: without JAX and PyTorch")
    parser.add_argument("--predict", nargs="?", const="H100", metavar="FIGURES", help="without a GPU: steps on one of these FIGURES, from what "
                        "build/cuda asks of it; " + ", ".join(gpu_model.GPUS) + ", or with others, as in H100,bandwidth=4800: " + ", ".join(gpu_model.H100))
    parser.add_argument("--kernels", choices=gpu_model.JOBS, metavar="JOB", help="with --predict: the kernels and products of one of its jobs, "
                        "what they move and how long they take: " + "; ".join(gpu_model.JOBS))
    parser.add_argument("--build", metavar="DIR", help="a build to use as it is; else build/host or build/cuda")
    parser.add_argument("--level", choices=level.LEVELS, help="instructions of older CPUs: " + ", ".join(level.LEVELS))
    parser.add_argument("--precision", choices=["f32", "bf16"], help="of the products' operands, for us and for the peers, with --only of " + ", ".join(STEPS))
    parser.add_argument("--compare", metavar="OLD.json", help="then compare with the file of an earlier run")
    parser.add_argument("--measured", metavar="NEW.json", help="with --compare: the file to compare, instead of measuring")
    parser.add_argument("--against", metavar="DIR", help="instead: in turns with the build of another commit there; parent: with that "
                        "of the newest commit with other code, which is built")
    parser.add_argument("--limit", type=float, default=1.05, metavar="RATIO", help="with --against: from which ratio on it is slower, from 1.01 to 2")
    options = parser.parse_args()
    options.figures, options.gpu = options.gpu, options.gpu is not None
    if options.gpu and (options.only or options.peers or options.level or options.compare or options.against):
        parser.error("--gpu has benchmarks and peers of its own: it goes with --json, --quick, --alone and --build alone")
    if options.alone and not options.gpu:
        parser.error("--alone goes with --gpu")
    if options.predict is not None and (options.gpu or options.only or options.peers or options.level or options.compare or options.against):
        parser.error("--predict goes with --json, --kernels and --build alone")
    if options.kernels and options.predict is None:
        parser.error("--kernels goes with --predict")
    if options.precision and (not options.only or set(options.only) - set(STEPS)):
        parser.error("--precision goes with --only of " + ", ".join(STEPS))
    if options.precision and (options.gpu or options.predict is not None or options.compare or options.against):
        parser.error("--precision goes without --gpu, --predict, --compare and --against")
    if options.measured and not options.compare:
        parser.error("--measured goes with --compare")
    if options.against and (options.compare or options.peers):
        parser.error("--against goes without --compare and --peers")
    if not 1.01 <= options.limit <= 2:
        parser.error(f"--limit {options.limit:g}: a ratio from 1.01 to 2")
    if options.limit != parser.get_default("limit") and not options.against:
        parser.error("--limit goes with --against")
    left_out = LONG if options.quick else []
    options.only = [name for name in BENCHMARKS if name in (options.only or BENCHMARKS.keys() - left_out)]
    return options


def make_build(options):
    """Returns the folder of the build; builds it if no folder is named."""
    if options.build:
        return
    if options.gpu and not gpu.names():
        note("benchmarks: there is no NVIDIA GPU here (nvidia-smi finds none)")
        sys.exit(2)
    preset = "cuda" if options.gpu else "host"
    built = subprocess.run(["sh", "-euc", f". drivers/setup; configure {preset}; build {preset}"])
    if built.returncode:
        sys.exit(built.returncode)
    options.build = f"build/{preset}"


def write(path, whole):
    os.makedirs("build", exist_ok=True)
    with open(path, "w") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")


def describe(options):
    """Returns the machine's description. Prints a note if other programs keep it busy."""
    about = report.rounded(report.machine(pathlib.Path(options.build), options.level or "native"))
    if about["busy"] > 0.1:
        note("something else keeps {busy:.1f} of {cores} cores busy: times will be too long".format(**about))
    return about


def measure(options, about):
    """Runs the benchmarks and writes their results."""
    suite = gpu.Suite(options) if options.gpu else Suite(options.build, options.quick, options.peers, options.only,
                                                         options.level, options.precision)
    results = []
    for name in suite.benchmarks(options.quick) if options.gpu else options.only:
        note(f"measuring {name}")
        result = suite.measure(name)
        if not result:
            continue
        results.append(report.rounded(result))
        if options.json:
            print(json.dumps(results[-1] | {"machine": about}), flush=True)
    whole = {"machine": about, "command": ["./benchmarks/run", *sys.argv[1:]], "benchmarks": results}
    write("build/benchmarks_gpu.json" if options.gpu else WRITTEN, whole | {"absent": suite.peers.absent})
    if options.gpu and not options.json:
        report.print_gpu(results, suite.peers.absent, about | suite.about())
    elif not options.json:
        report.print_all(results, suite.peers.absent, about)


def predict(options):
    """Prints predictions. Measures nothing."""
    figures, build, table = gpu_model.read_gpu(options.predict), options.build or "build/cuda", counts.read()
    if options.kernels:
        rows = gpu_model.kernels(build, figures, gpu_model.JOBS[options.kernels], table[options.kernels])
        if options.json:
            for row in rows:
                print(json.dumps({"job": options.kernels} | report.rounded(row)), flush=True)
        else:
            gpu_model.print_kernels(options.kernels, rows)
        return
    results = {name: report.rounded(gpu_model.step(build, figures, job, table[name])) for name, job in gpu_model.JOBS.items()}
    if options.json:
        for name, result in results.items():
            print(json.dumps({"job": name, "gpu": figures} | result), flush=True)
    else:
        gpu_model.print_all(results, figures)


def print_comparison(lines, options):
    """Prints LINES. Returns the exit status: 1 if something became slower."""
    if options.json:
        for line in lines:
            print(json.dumps(line), flush=True)
    else:
        report.print_comparison(lines)
    return any(line["verdict"] == "slower" for line in lines)


def race(options, about):
    """Runs --against and returns its exit status. Results of --against parent are counted as tests."""
    lines = report.rounded(list(compare.against(options)))
    write("build/benchmarks_against.json", {"machine": about, "against": options.against, "comparisons": lines})
    if options.parent:
        parent.tell(lines)
    return print_comparison(lines, options)


def main():
    options = read_options()
    os.chdir(pathlib.Path(__file__).parent.parent)
    try:
        level.force(options.level)
        if options.figures:
            gpu_model.read_gpu(options.figures, "--gpu")  # bad input is reported before anything is built
        if options.predict is not None:
            predict(options)
            return 0
        if options.compare:
            compare.read(options.compare)  # bad input is reported before anything is measured
        if options.measured:
            return print_comparison(report.rounded(compare.compare_files(options.compare, options.measured)), options)
        make_build(options)
        options.parent = options.against == "parent"
        absent = options.parent and parent.open_build(options)
        if absent:
            note(f"benchmarks: skipped, beside the parent commit: {absent}")
            parent.tell([], absent)
            return 0
        for option in ("build", "against"):
            folder = getattr(options, option)
            if folder and not os.path.isdir(f"{folder}/benchmarks"):
                raise Failure(f"--{option} {folder}: name the folder of a build, as in build/host", 2)
        about = describe(options)
        if options.against:
            return race(options, about)
        measure(options, about)
        if options.compare:
            return print_comparison(report.rounded(compare.compare_files(options.compare, WRITTEN)), options)
    except Failure as failure:
        note(f"benchmarks: {failure}")
        return 2 if failure.status == 2 else 3
    return 0


sys.exit(main())
