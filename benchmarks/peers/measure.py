"""measure - the shared part of the peers' programs: their options, the clock, and the line that they print."""

import argparse
import json
import os
import resource
import statistics
import time


def mesh(text):
    """Returns data=2,model=4 as a dictionary. An axis that is left out has the size 1."""
    sizes = {"data": 1, "model": 1}
    for word in text.split(","):
        name, _, size = word.partition("=")
        if name not in sizes or not size.isdigit() or int(size) < 1:
            raise argparse.ArgumentTypeError(f'mesh "{text}": write data=N,model=N')
        sizes[name] = int(size)
    return sizes


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a positive whole number')
    return int(text)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """Prints one line for bad input."""
        self.exit(2, f"{self.prog}: {message}\n")


def model_options(description):
    """Returns a parser with the options of a training step; the defaults are the article's model."""
    parser = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=positive, default=8, help="residual MLP blocks")
    parser.add_argument("--hidden", type=positive, default=512, help="columns between blocks")
    parser.add_argument("--expansion", type=positive, default=1, help="columns inside a block, as a multiple of hidden")
    parser.add_argument("--microbatches", type=positive, default=8, help="parts of a coordinate's rows")
    parser.add_argument("--batch", type=positive, default=128, help="rows of the whole batch")
    parser.add_argument("--mesh", type=mesh, default="data=2,model=4", help="sizes of the axes (default %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.1, help="rate inside blocks")
    parser.add_argument("--steps", type=positive, default=20, help="measured steps")
    parser.add_argument("--warmup", type=positive, default=3, help="steps before them, of which the first compiles")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="where it computes")
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], default="f32", help="of products' operands")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def cores():
    return len(os.sched_getaffinity(0))


def since_start_ms():
    """Returns the milliseconds since this process began; they include the interpreter's start and the imports."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = float(stat.read().rpartition(")")[2].split()[19])  # field 22, after the name in parentheses
        now = float(uptime.read().split()[0])
    return 1e3 * (now - ticks / os.sysconf("SC_CLK_TCK"))


def thread_ticks():
    """Returns the CPU time of each thread of this process, in clock ticks by thread number."""
    ticks = {}
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks[thread] = int(fields[11]) + int(fields[12])  # user and system
    return ticks


def threads_since(before):
    """Returns the number of threads that did more than a hundredth of this process's work since its thread_ticks were BEFORE."""
    used = [ticks - before.get(thread, 0) for thread, ticks in thread_ticks().items()]
    return max(1, sum(100 * ticks > sum(used) for ticks in used))


def peak_bytes():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(step, steps, warmup):
    """Calls STEP, which returns the loss after all of its work is done. Returns the measurements."""
    losses = [step()]
    startup = since_start_ms()
    losses += [step() for _ in range(warmup - 1)]
    before, times = thread_ticks(), []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(step())
        times.append(1e3 * (time.perf_counter() - begin))
    return summary(times, losses, threads_since(before), startup)


def summary(times, losses, threads, startup):
    """Returns the measurements of steps that took TIMES, in milliseconds."""
    return {
        "threads": threads,
        "ms_min": min(times),
        "ms_median": statistics.median(times),
        "ms_max": max(times),
        "samples_ms": sorted(times),
        "steps": len(times),
        "startup_ms": startup,
        "peak_bytes": peak_bytes(),
        "loss": losses[:3],
    }


def rounded(value):
    """Returns VALUE with 9 significant digits."""
    if isinstance(value, list):
        return [rounded(element) for element in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def report(result, as_json):
    if as_json:
        print(json.dumps({name: rounded(value) for name, value in result.items()}), flush=True)
        return
    print("{peer} {version}: {threads} threads on {cores} cores".format(cores=cores(), **result))
    print("{steps} steps: min {ms_min:.3f}, median {ms_median:.3f}, max {ms_max:.3f} ms".format(**result))
    print("first step after {startup_ms:.0f} ms, peak memory {:.0f} MB".format(result["peak_bytes"] / 1e6, **result))
    print("loss", *(f"{loss:.9g}" for loss in result["loss"]), flush=True)
