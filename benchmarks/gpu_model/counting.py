"""counting [--check] [JOB...] - makes the table of counts again (counts.csv), by small runs of jobs whose device code is executed.

    --check    compares the small run of each JOB with the table in place of that; prints TAP. Of all jobs, but where
               SL_TEST_LONG is not set of the first alone

Requires build/cuda, which stores the PTX of its programs, and build/ptx, which executes it. jobs.py defines the two runs of a
job. A kernel is reported if its counts do not grow between the two runs as its work does. Products are not computed, so values
are zeros; work that depends on values, such as rescaling a row of attention, is counted for zeros.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests/spmd/device")]

import kernels as images
from gpu_model import counts
from gpu_model.jobs import COUNTED, JOBS, counted_run
from programs import Failure, note

CUDA, LIBRARIES = ROOT / "build/cuda", ROOT / "build/ptx/tests/ptx/libraries"
TO = "SL_PTX_COUNTS"  # names the file to which the executor appends a line for each launch
LEAST, OFF = 100000, 0.02  # counts from LEAST on are reported if they differ by more than the share OFF
DRAWN = 0.01  # the largest share of a count that depends on the drawn order of lanes


def code_of(program):
    """Returns the machine code of each kernel of PROGRAM by name."""
    return {name.removeprefix(".text."): image.data[fields[4]:fields[4] + fields[5]] for image in images.images(program)
            for name, fields in image.sections if name.startswith(".text.")}


def lengths_of(program, kept):
    """Returns the numbers of PTX and machine instructions by kernel of PROGRAM. KEPT: a folder of folders with PTX; the newest one
    is read."""
    ptx = {}
    for path in sorted(kept.glob("*/*.ptx"), key=os.path.getmtime):
        ptx |= counts.statements(path.read_text())
    return {name: (ptx[name], counts.instructions(code)) for name, code in code_of(program).items() if name in ptx}


def launches_of(job, cuda, libraries):
    """Returns a line for each launch of JOB, a step."""
    with tempfile.TemporaryDirectory() as work:
        text, to = pathlib.Path(work, "text"), pathlib.Path(work, "counts")
        text.write_text("".join(f"{number} bottles of beer on the wall\n" for number in range(2000)))
        options = [str(text) if word == "text" else word for word in job.options.split()]
        environment = os.environ | {"LD_LIBRARY_PATH": str(libraries), TO: str(to), "SL_PTX_CHECK": "0", "FAKE_CUDA_IDLE": "1",
                                    "XDG_CACHE_HOME": work}
        done = subprocess.run([cuda / "drivers" / job.program, *options, "--steps", "1"], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{job.program} exits with {done.returncode}: {done.stderr.strip()}")
        if not to.exists():
            raise Failure(f"{libraries} executes no device code that is counted", 2)
        return to.read_text().splitlines()


def rows_of(name, run, cuda=CUDA, libraries=LIBRARIES):
    """Returns the rows of all kernels in RUN of the job NAME."""
    job = counted_run(JOBS[name], run)
    program = cuda / "drivers" / job.program
    if not program.exists() or not libraries.is_dir():
        raise Failure(f"there is no {libraries if program.exists() else program}: build the presets cuda and ptx", 2)
    return list(counts.rows_of(name, run, launches_of(job, cuda, libraries), lengths_of(program, cuda / "ptx")))


def remade(names, cuda=CUDA, libraries=LIBRARIES, path=counts.TABLE):
    """Writes the rows of the jobs NAMES and keeps those of other jobs. Returns lines about kernels whose counts do not grow as
    their work does."""
    others = [row for job, kernels in counts.read(path).items() if job not in names for runs in kernels.values() for row in runs.values()]
    made = [row for name in names for run in counts.RUNS for row in rows_of(name, run, cuda, libraries)]
    counts.write(others + made, path)
    for name in names:
        for kernel, runs in counts.read(path)[name].items():
            off = counts.differences(runs, LEAST) if len(runs) == 2 else {"launches": float("nan")}
            told = [f"{count} {100 * share:+.0f} %" for count, share in off.items() if not abs(share) <= OFF]
            if told:
                yield f"{name}: {kernel}: the larger run by the smaller one: {', '.join(told)}"


def alike(made, row):
    """Returns whether two rows agree. If lanes have diverged, the drawn order decides which instructions are issued together, so
    these counts may differ a little."""
    if not made or not row:
        return False
    pairs = [(getattr(made, count), getattr(row, count)) for count in (*counts.KINDS, *counts.COUNTS)]
    same = {count: 0 for count in (*counts.KINDS, *counts.COUNTS)}
    return made._replace(**same) == row._replace(**same) and all(abs(one - other) <= DRAWN * other for one, other in pairs)


def compared(name, cuda=CUDA, libraries=LIBRARIES, path=counts.TABLE):
    """Returns lines about kernels whose counts in the small run of the job NAME differ from the table's."""
    table = {kernel: runs["small"] for kernel, runs in counts.read(path)[name].items() if "small" in runs}
    made = {row.kernel: row for row in rows_of(name, "small", cuda, libraries)}
    for kernel in sorted(table.keys() | made.keys()):
        if not alike(made.get(kernel), table.get(kernel)):
            yield f"{name}: {kernel}: {made.get(kernel)}, and in the table {table.get(kernel)}"


def check(names):
    for number, name in enumerate(names, 1):
        lines = list(compared(name))
        print(f"{'not ' if lines else ''}ok {number} - the kernels of {name} do what the table of counts says", *(f"# {line}" for line in lines), sep="\n")
    print(f"1..{len(names)}")


def main():
    parser = argparse.ArgumentParser(prog="counting.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(COUNTED))
    options = parser.parse_args()
    unknown = [name for name in options.jobs if name not in COUNTED]
    try:
        if unknown:
            raise Failure(f'"{unknown[0]}" is none of {"; ".join(COUNTED)}', 2)
        if options.check:
            check(options.jobs or (COUNTED if os.environ.get("SL_TEST_LONG") else COUNTED[:1]))
        else:
            print(*remade(options.jobs or COUNTED), sep="\n")
    except Failure as failure:
        note(f"counting.py: {failure}")
        return 2 if failure.status == 2 else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
