"""suite - builds the benchmarks, runs them, and puts the floor and the peers beside them.

ours, floor, peers: milliseconds, the median. The floor is measured in the same process, in turns with the steps. A peer
runs in turns with ours (ours, peer, ours, peer, ...). Results are also written to build/benchmarks.json.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import report

PEERS = pathlib.Path("benchmarks/peers")
GRADIENT_BYTES = 4 * 4618762

# A peer's name: its Python environment in build/peers, its program there and that program's options.
STEP_PEERS = {
    "jax_looping": ("jax", "jax_pipelines.py", "--schedule", "looping"),
    "jax_plain": ("jax", "jax_pipelines.py", "--schedule", "plain"),
    "jax_0.4.25_looping": ("jax-0.4.25", "jax_pipelines.py", "--schedule", "looping"),
    "jax_0.4.25_plain": ("jax-0.4.25", "jax_pipelines.py", "--schedule", "plain"),
    "torch_eager": ("torch", "torch_step.py", "--mode", "eager"),
    "torch_compile": ("torch", "torch_step.py", "--mode", "compile"),
    "torch_pipelining": ("torch", "torch_step.py", "--mode", "pipelining"),
}
STARTUP_PEERS = ["jax_looping", "jax_0.4.25_looping", "torch_eager"]

# The model as the peers' programs take it; bench_step knows it by name. Then how much of it is measured: rounds of ours
# and each peer in turns, our steps and floors a round, the peers' steps.
JOBS = {
    "notebook_step": {
        "model": "--layers 8 --hidden 512 --expansion 1 --batch 128 --microbatches 8 --mesh data=2,model=4",
        "full": {"rounds": 3, "ours": "--steps 60 --warmup 5 --rounds 6", "peers": "--steps 20 --warmup 3"},
        "quick": {"rounds": 1, "ours": "--steps 20 --warmup 3 --rounds 2", "peers": "--steps 5 --warmup 2"},
    },
    "wide_step": {
        "model": "--layers 16 --hidden 1024 --expansion 4 --batch 512 --microbatches 8 --mesh data=1,model=2",
        "full": {"rounds": 3, "ours": "--steps 6 --warmup 1 --rounds 3", "peers": "--steps 4 --warmup 1"},
        "quick": {"rounds": 1, "ours": "--steps 2 --warmup 1 --rounds 1", "peers": "--steps 2 --warmup 1"},
    },
}


class Failure(Exception):
    """Why something cannot be measured, in one line."""


def json_lines(command):
    """The JSON objects that COMMAND prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise Failure(said[-1] if said else f"{command[0]}: exit status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def note(text):
    print(text, file=sys.stderr, flush=True)


class Peers:
    """Those that are installed; why the others are absent, by name."""

    def __init__(self, wanted):
        self.absent = {}
        self.reasons = {}
        if not wanted:
            return
        setup = subprocess.Popen([PEERS / "setup"], stderr=subprocess.PIPE, text=True)
        for line in setup.stderr:
            note(line.rstrip())
            if line.startswith("absent: "):
                names, _, reason = line[len("absent: ") :].strip().partition(": ")
                self.reasons.update(dict.fromkeys(names.split(), reason))
        setup.wait()

    def run(self, name, environment, program, *options):
        """The JSON objects that the peer prints; none where it is absent, which is then noted once."""
        if name in self.absent:
            return []
        directory = pathlib.Path("build/peers") / environment
        try:
            if not (directory / "installed").exists():
                raise Failure(self.reasons.get(environment, "not installed"))
            return json_lines([directory / "bin/python", "-B", PEERS / program, *options, "--json"])
        except Failure as failure:
            self.absent[name] = str(failure)
            note(f"{name} is left out: {failure}")
            return []


def spread(ms):
    return {"ms": statistics.median(ms), "ms_min": min(ms), "ms_max": max(ms)}


def summary(runs):
    """One result of several processes' results that have ms_min, ms_median and ms_max."""
    result = {name: runs[0][name] for name in ("threads", "version") if name in runs[0]}
    result["ms"] = statistics.median(run["ms_median"] for run in runs)
    result["ms_min"] = min(run["ms_min"] for run in runs)
    result["ms_max"] = max(run["ms_max"] for run in runs)
    result["peak_bytes"] = max(run["peak_bytes"] for run in runs)
    return result


def median_calls(runs):
    """Of several processes' lines, which are about the same calls in the same order, those with the median time."""
    return [sorted(lines, key=lambda line: line["us"])[len(lines) // 2] for lines in zip(*runs)]


class Suite:
    def __init__(self, options):
        self.build = pathlib.Path(options.build or "build/host")
        self.quick = options.quick
        self.with_peers = options.peers
        self.peers = Peers(options.peers)

    def ours(self, program, *options):
        return json_lines([self.build / program, *options])

    # ---- steps

    def our_step(self, job, schedule, options):
        (result,) = self.ours("benchmarks/bench_step", "--job", job, "--schedule", schedule, *options.split())
        return result | {"ms_median": result["ms"]}

    def step(self, job):
        """Ours, and by name ours as a plain pipeline and the peers."""
        amount = JOBS[job]["quick" if self.quick else "full"]
        looping, others = [], {"plain": []}
        for _ in range(amount["rounds"]):
            looping.append(self.our_step(job, "looping", amount["ours"]))
            others["plain"].append(self.our_step(job, "plain", amount["ours"]))
            for name, peer in STEP_PEERS.items() if self.with_peers else ():
                results = self.peers.run(name, *peer, *JOBS[job]["model"].split(), *amount["peers"].split())
                others.setdefault(name, []).extend(results)
                looping.append(self.our_step(job, "looping", amount["ours"]))
        others = {name: summary(runs) for name, runs in others.items() if runs}
        result = {"benchmark": job} | summary(looping)
        # Of all runs: the machine could do it.
        result["gflops_peak"] = max(run["gflops_peak"] for run in looping)
        result["bandwidth_gbs"] = max(run["bandwidth_gbs"] for run in looping)
        result["products_ms"] = min(run["products_ms"] for run in looping)
        result["optimizer_ms"] = min(run["optimizer_ms"] for run in looping)
        result["floor_ms"] = result["products_ms"] + result["optimizer_ms"]
        result["ratio"] = result["ms"] / result["floor_ms"]
        result["plain"] = others.pop("plain")
        return result | {"peers": {name: peer["ms"] for name, peer in others.items()}, "peer_runs": others}

    def notebook_step(self):
        return self.step("notebook_step")

    def wide_step(self):
        return self.step("wide_step")

    # ---- the rest

    def collectives(self):
        """The figure to compare is the sum of all gradients over 2; calls has the others."""
        sizes = [4, 1 << 10, 1 << 14, 1 << 18, 1 << 22, GRADIENT_BYTES] + ([] if self.quick else [1 << 26])
        seconds = ["--seconds", "0.02" if self.quick else "0.2"]
        ours, gloo = [], []
        for _ in range(1 if self.quick else 3):
            ours.append(self.ours("benchmarks/bench_collectives", "--sizes", ",".join(map(str, sizes)), *seconds))
            if self.with_peers:
                options = ["--sizes", *map(str, sizes), *seconds]
                gloo.append(self.peers.run("gloo", "torch", "collectives_gloo.py", *options))
        result = {"benchmark": "collectives", "threads": 2}
        result |= {"calls": median_calls(ours), "gloo_calls": median_calls(gloo)}
        gradients = next(call for call in result["calls"] if call["operation"] == "psum_gradients")
        for name in "us", "us_min", "us_max", "floor_us":
            result[name.replace("us", "ms")] = gradients[name] / 1e3
        result |= {"ratio": 1 / gradients["share"], "share": gradients["share"], "peers": {}, "peer_runs": {}}
        for call in result["gloo_calls"]:
            if (call["operation"], call["group"], call["bytes"]) == ("psum", 2, GRADIENT_BYTES):
                result["peers"]["gloo"] = call["us"] / 1e3
                result["peer_runs"]["gloo"] = {"ms": call["us"] / 1e3, "version": call["version"], "threads": 2}
        return result

    def schedule_overhead(self):
        (result,) = self.ours("benchmarks/bench_schedule_overhead", "--steps", "200" if self.quick else "2000")
        result |= {"ms_min": result["ns_min"] / 1e6, "ms_max": result["ns_max"] / 1e6, "threads": 1}
        return result | {"floor_ms": None, "peers": {}}

    def our_startup(self):
        """Milliseconds from exec to the first step's end: by our clock, and as the driver says in ticks of 10 ms."""
        command = [self.build / "drivers/looping_pipeline", "--json", "--steps", "1"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
            driver.stdout.readline()
            ms = 1e3 * (time.perf_counter() - began)
            end = driver.stdout.readline()
        if driver.returncode:
            raise Failure(f"looping_pipeline: exit status {driver.returncode}")
        return json.loads(end) | {"startup_ms": ms}

    def startup(self):
        """Five runs each, after one that is not counted; with --quick a peer has one, which counts."""
        runs, others = [], {}
        options = JOBS["notebook_step"]["model"].split() + ["--steps", "1", "--warmup", "1"]
        for i in range(6):
            runs.append(self.our_startup())
            for name in STARTUP_PEERS if self.with_peers and not (self.quick and i) else ():
                others.setdefault(name, []).extend(self.peers.run(name, *STEP_PEERS[name], *options))
        result = {"benchmark": "startup", "threads": 8} | spread([run["startup_ms"] for run in runs[1:]])
        result["first_step_ms"] = statistics.median(run["first_step_ms"] for run in runs[1:])
        result["peak_bytes"] = max(run["peak_bytes"] for run in runs)
        result |= {"floor_ms": None, "peers": {}, "peer_runs": {}}
        for name, peer in others.items():
            if not peer:
                continue
            run = summary(peer) | spread([run["startup_ms"] for run in (peer[1:] or peer)])
            result["peers"][name], result["peer_runs"][name] = run["ms"], run
        return result


BENCHMARKS = ["notebook_step", "wide_step", "collectives", "schedule_overhead", "startup"]


# ---- main


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """Bad input gets one line."""
        self.exit(2, f"{self.prog}: {message}\n")


def read_options():
    parser = Parser(
        prog="./benchmarks/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=BENCHMARKS, action="append", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="a JSON object a line instead of tables")
    parser.add_argument("--peers", action="store_true", help="install JAX and PyTorch into build/peers and race them")
    parser.add_argument("--quick", action="store_true", help="few steps: does it run, and about how fast")
    parser.add_argument("--build", metavar="DIR", help="a build folder to use as it is; otherwise build/host is built")
    return parser.parse_args()


def main():
    options = read_options()
    os.chdir(pathlib.Path(__file__).parent.parent)
    if not options.build:
        built = subprocess.run(["sh", "-euc", ". drivers/setup; build host"])
        if built.returncode:
            sys.exit(built.returncode)
    suite = Suite(options)
    about = report.rounded(report.machine(suite.build))
    if about["busy"] > 0.1:
        note("something else keeps {busy:.1f} of {cores} cores busy: times will be too long".format(**about))
    results = []
    try:
        for name in BENCHMARKS:
            if options.only and name not in options.only:
                continue
            note(f"measuring {name}")
            results.append(report.rounded(getattr(suite, name)()))
            if options.json:
                print(json.dumps(results[-1]), flush=True)
    except Failure as failure:
        note(f"benchmarks: {failure}")
        sys.exit(3)
    if not options.json:
        report.print_all(results, suite.peers.absent, about)
    whole = {"machine": about, "command": ["./benchmarks/run", *sys.argv[1:]], "benchmarks": results}
    whole["absent"] = suite.peers.absent
    os.makedirs("build", exist_ok=True)
    with open("build/benchmarks.json", "w") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")


main()
