"""suite - each benchmark: ours, the floor, and the peers.

The floor is measured in turns with ours, by the same process, and a step's ratio to it is the median of the turns'. A
peer runs in turns with ours (ours, peer, ours, peer, ...). Where the machine is not quiet, or the median is not certain,
ours runs more rounds, twice as many at most; with --quick it does not.
"""

import json
import pathlib
import statistics
import subprocess
import time

import distance
import level
import noise
import predictions
import prices
import published
import samples
import stages
import synthesis
from programs import Failure, json_lines, note
from synthesis import random_models

PEERS = pathlib.Path("benchmarks/peers")
INSTALLED = pathlib.Path("build/peers")
GRADIENT_BYTES = 4 * 4618762


def python(environment, program, *options):
    """Returns a peer: its ENVIRONMENT in build/peers, and its command."""
    return environment, INSTALLED / environment / "bin/python", "-B", PEERS / program, "--json", *options


def mpirun(processes):
    """Returns the prefix of a command that runs as PROCESSES processes, also as root and on fewer cores."""
    root = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    return "env", *root, "mpirun", "-n", str(processes), "--oversubscribe", "--bind-to", "none"


STEP_PEERS = {
    "jax_looping": python("jax", "jax_pipelines.py", "--schedule", "looping"),
    "jax_plain": python("jax", "jax_pipelines.py", "--schedule", "plain"),
    "jax_0.4.25_looping": python("jax-0.4.25", "jax_pipelines.py", "--schedule", "looping"),
    "jax_0.4.25_plain": python("jax-0.4.25", "jax_pipelines.py", "--schedule", "plain"),
    "torch_eager": python("torch", "torch_step.py", "--mode", "eager"),
    "torch_compile": python("torch", "torch_step.py", "--mode", "compile"),
    "torch_pipelining": python("torch", "torch_step.py", "--mode", "pipelining"),
}
# JAX as the article has it, on 8 simulated devices, and on one.
TRANSFORMER_PEERS = {
    "torch_eager": python("torch", "torch_transformer.py"),
    "torch_compile": python("torch", "torch_transformer.py", "--mode", "compile"),
    "jax_sharded": python("jax", "jax_transformer.py", "--layout", "sharded"),
    "jax_single": python("jax", "jax_transformer.py", "--layout", "single"),
}
GENERATE_PEERS = ["torch_eager", "jax_single"]
GROUPS = [2, 4, 8]  # of the collectives
STARTUP_PEERS = ["jax_looping", "jax_0.4.25_looping", "torch_eager"]

# The benchmarks, each with the environments of build/peers that its peers need.
BENCHMARKS = {
    "notebook_step": ["jax", "jax-0.4.25", "torch"],
    "wide_step": ["jax", "jax-0.4.25", "torch"],
    "transformer_step": ["jax", "torch"],
    "generate": ["jax", "torch"],
    "generate_bf16": [],
    "processes": [],
    "products": [],
    "attention": [],
    "collectives": ["torch", "mpi"],
    "schedule_overhead": [],
    "startup": ["jax", "jax-0.4.25", "torch"],
    "published": ["transformers", "llama"],
    "prices": [],
    "exactness": [],
    "predictions": [],
    "stages": [],
    "synthesis": [],
    "random_models": [],
}
LONG = ["published", "prices", "exactness", "predictions", "stages", "synthesis", "random_models"]  # --quick omits them unless they are named

STEPS = ["notebook_step", "wide_step", "transformer_step", "generate"]  # these can have another precision

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
        "quick": {"rounds": 1, "ours": "--steps 1 --warmup 1 --rounds 2", "peers": "--steps 2 --warmup 1"},
    },
}

# Programs' defaults are the model: 4.2 million parameters, 8 sequences of 256 tokens a step.
TRANSFORMER = {
    "full": {"rounds": 3, "ours": "--steps 24 --warmup 3 --rounds 6", "peers": "--steps 8 --warmup 2"},
    "quick": {"rounds": 1, "ours": "--steps 4 --warmup 2 --rounds 2", "peers": "--steps 3 --warmup 1"},
}
TWO, EIGHT = "--mesh data=2", "--mesh data=2,pipe=2,tensor=2"
# So small that little but communication is left: 0.4 million parameters, 8 sequences of 16 tokens a step.
SMALL = "--model-dimension 64 --vocab-size 128 --blocks 4 --layers-per-block 2 --sequence 16 --latent-dim 32 --rope-dim 8"
SMALL_STEPS = {"full": "--steps 120 --warmup 10 --rounds 4", "quick": "--steps 40 --warmup 5 --rounds 2"}


class Peers:
    """The installed peers, and the reason for each absent one."""

    def __init__(self, needed, forced=None):
        """NEEDED: the environments of build/peers that setup installs; FORCED: the CPU level."""
        self.absent = {}
        self.level = forced
        self.reasons = {}
        if not needed:
            return
        setup = subprocess.Popen([PEERS / "setup", *needed], stderr=subprocess.PIPE, text=True)
        for line in setup.stderr:
            note(line.rstrip())
            if line.startswith("absent: "):
                name, _, reason = line[len("absent: ") :].strip().partition(": ")
                self.reasons[name] = reason
        setup.wait()

    def run(self, name, needed, *command):
        """Returns the JSON objects that the peer prints; none if it is absent, which is noted once."""
        if name in self.absent:
            return []
        try:
            if not (INSTALLED / needed / "installed").exists():
                raise Failure(self.reasons.get(needed, "not installed"))
            return json_lines([*level.of_peer(self.level, needed), *command])
        except Failure as failure:
            self.absent[name] = str(failure)
            note(f"{name} is left out: {failure}")
            return []


def summary(runs):
    """Returns one result for several processes' RUNS, which have samples_ms or, if their build is older, ms_median."""
    result = {name: runs[0][name] for name in ("threads", "version", "kernels") if name in runs[0]}
    result |= samples.of_runs([run.get("samples_ms") or [run["ms_median"]] for run in runs])
    result |= samples.of_rounds(runs)
    result["peak_bytes"] = max(run["peak_bytes"] for run in runs)
    return result


def best(runs):
    """Returns the machine's best rates over all our RUNS, so all runs have the same floor."""
    result = {}
    for name in ("gflops_peak", "bandwidth_gbs", "fma_gflops", "read_gbs"):
        result |= {name: max(run[name] for run in runs)} if all(name in run for run in runs) else {}
    for name in ("products_ms", "optimizer_ms", "theory_ms"):
        result |= {name: min(run[name] for run in runs)} if all(name in run for run in runs) else {}
    if "peak_by" in runs[0]:
        result["peak_by"] = max(runs, key=lambda run: run["gflops_peak"])["peak_by"]
    return result


MORE = 2  # times as many rounds at most, if they are needed
WIDE = 0.1  # if the interval is wider than this share of the median, more rounds follow


class Suite:
    def __init__(self, build, quick=False, peers=False, only=(), forced=None, precision=None):
        """BUILD: the folder of the build; FORCED: the CPU level, None for the CPU's own; PRECISION: of the STEPS' products, None for floats."""
        self.build = pathlib.Path(build)
        self.quick = quick
        self.with_peers = peers
        self.level = forced
        self.precise = ["--precision", precision] if precision else []
        level.check_build(forced, self.build)
        self.watch = noise.Watch()
        needed = sum([BENCHMARKS[name] for name in only], []) if peers else []
        self.peers = Peers(list(dict.fromkeys(needed)), forced)

    def ours(self, program, *options):
        with self.watch:
            lines = json_lines([self.build / program, *options])
        for line in lines:
            level.check(self.level, line, self.build / program)
            self.watch.saw(line)
        return lines

    def measure(self, name):
        """Returns the result of the benchmark NAME and the noise during it; None if it cannot be measured here."""
        self.watch = noise.Watch()
        result = getattr(self, name)()
        return result and result | ({"precision": self.precise[1]} if self.precise else {}) | {"noise": self.watch.told()}

    def rounds(self, planned, runs):
        """Yields the numbers of rounds: PLANNED ones, then more while the interval of RUNS, results with samples_ms, is wide."""
        for number in range(planned if self.quick else planned * MORE):
            if number >= planned and self.watch.told()["quiet"] and samples.width(summary(runs)) <= WIDE:
                return
            yield number

    # ---- steps

    def our_step(self, job, schedule, options):
        (result,) = self.ours("benchmarks/bench_step", "--job", job, "--schedule", schedule, *options.split(), *self.precise)
        return result | {"ms_median": result["ms"]}

    def step(self, job):
        """Returns our result and, by name, those of our plain pipeline and of the peers."""
        amount = JOBS[job]["quick" if self.quick else "full"]
        looping, others = [], {"plain": []}
        for number in self.rounds(amount["rounds"], looping):
            looping.append(self.our_step(job, "looping", amount["ours"]))
            others["plain"].append(self.our_step(job, "plain", amount["ours"]))
            for name, peer in STEP_PEERS.items() if self.with_peers and number < amount["rounds"] else ():
                results = self.peers.run(name, *peer, *JOBS[job]["model"].split(), *amount["peers"].split(), *self.precise)
                others.setdefault(name, []).extend(results)
                looping.append(self.our_step(job, "looping", amount["ours"]))
        result = {"benchmark": job} | summary(looping) | best(looping + others["plain"])
        others = {name: summary(runs) for name, runs in others.items() if runs}
        result["floor_ms"] = result["products_ms"] + result["optimizer_ms"]
        result["ratio_of_best"] = result["ms"] / result["floor_ms"]
        result["plain"] = others.pop("plain")
        return result | {"peers": {name: peer["ms"] for name, peer in others.items()}, "peer_runs": others}

    def notebook_step(self):
        return self.step("notebook_step")

    def wide_step(self):
        return self.step("wide_step")

    # ---- the transformer

    def our_transformer(self, options):
        (result,) = self.ours("benchmarks/bench_transformer", *options.split(), *self.precise)
        return result | {"ms_median": result["ms"]}

    def race_transformer(self, name, ours, variants, peers, batch=None):
        """Runs OURS, its VARIANTS by name, and the PEERS with the same model. A peer's line for BATCH counts."""
        amount = TRANSFORMER["quick" if self.quick else "full"]
        runs, others, pairs = [], {variant: [] for variant in variants}, {variant: [] for variant in variants}
        for number in self.rounds(amount["rounds"], runs):
            runs.append(self.our_transformer(f"{ours} {amount['ours']}"))
            for variant, options in variants.items():
                others[variant].append(self.our_transformer(f"{options} {amount['ours']}"))
                pairs[variant].append((others[variant][-1]["ms"], runs[-1]["ms"]))
            for peer in peers if self.with_peers and number < amount["rounds"] else ():
                environment, *command = TRANSFORMER_PEERS[peer]
                command += ["--job", "generate"] if name == "generate" else []
                lines = self.peers.run(peer, environment, *command, *amount["peers"].split(), *self.precise)
                others.setdefault(peer, []).extend(line for line in lines if not batch or line["batch"] == batch)
                runs.append(self.our_transformer(f"{ours} {amount['ours']}"))
        summaries = {other: summary(found) for other, found in others.items() if found}
        for variant in variants:
            summaries[variant]["ratio_to_ours"] = samples.ratio_of_pairs(pairs[variant])[0]
        ours = sum((others[variant] for variant in variants), runs)
        result = {"benchmark": name} | summary(runs) | best(ours)
        result["floor_ms"] = min(run["floor_ms"] for run in ours)
        result["ratio_of_best"] = result["ms"] / result["floor_ms"]
        result["tokens_per_second"] = statistics.median(run["tokens_per_second"] for run in runs)
        result["ours"] = {variant: summaries.pop(variant) for variant in variants}
        return result | {"peers": {peer: run["ms"] for peer, run in summaries.items()}, "peer_runs": summaries}

    def transformer_step(self):
        """A training step. Peers take turns with ours; variants: kernels sharded over data, and the article's eight coordinates."""
        variants = {"fsdp": TWO + " --fsdp", "2x2x2, fsdp": EIGHT + " --fsdp"}
        return self.race_transformer("transformer_step", TWO, variants, TRANSFORMER_PEERS)

    def generate(self):
        """Milliseconds a decoded token of one sequence."""
        one = "--job generate --mesh data=1 --batch 1"
        variants = {"tensor=2": "--job generate --mesh tensor=2,data=1 --batch 1"}
        return self.race_transformer("generate", one, variants, GENERATE_PEERS, batch=1)

    def generate_bf16(self):
        """The same with --storage bf16, and with products of bf16, too: the floor reads half the bytes."""
        one = "--job generate --mesh data=1 --batch 1 --storage bf16"
        return self.race_transformer("generate_bf16", one, {"precision bf16": one + " --precision bf16"}, [])

    def small_step(self, *command):
        """Returns the step of a small transformer at eight coordinates: processes started by COMMAND or, without it, threads."""
        options = [*SMALL.split(), *EIGHT.split(), "--fsdp", *SMALL_STEPS["quick" if self.quick else "full"].split()]
        program = self.build / "benchmarks/bench_transformer"
        with self.watch:
            (result,) = json_lines([*command, program, *options, "--engine", "mpi" if command else "local"])
        level.check(self.level, result, program)
        self.watch.saw(result)
        return result | {"ms_median": result["ms"]}

    def processes(self):
        """Milliseconds of a step by eight processes, on any number of cores; the floor: eight threads, in turns with them."""
        runs, threads = [], []
        for _ in self.rounds(2 if self.quick else 6, runs):
            threads.append(self.small_step())
            runs.append(self.small_step(*mpirun(8)))
        result = {"benchmark": "processes"} | summary(runs)
        result["floor_ms"] = statistics.median(run["ms"] for run in threads)
        pairs = [(run["ms"], other["ms"]) for run, other in zip(runs, threads)]
        return result | {"ratio": samples.ratio_of_pairs(pairs)[0], "threads_ms": result["floor_ms"], "peers": {}}

    # ---- the rest

    def attention(self):
        """Milliseconds of attention in all measured passes, one after another; the floor: at the rate of products of the
        same sizes."""
        quick = ["--widths", "32,128", "--sequences", "128", "--seconds", "0.002"] if self.quick else []
        lines = self.ours("benchmarks/bench_attention", *quick)
        rounds = zip(*([1e3 * line["gflop"] / rate for rate in line["gflops_rounds"]] for line in lines))
        result = {"benchmark": "attention", "threads": 1} | samples.of_runs([list(map(sum, rounds))])
        result["floor_ms"] = sum(1e3 * line["gflop"] / line["products_gflops"] for line in lines)
        return result | {"ratio": result["ms"] / result["floor_ms"], "peers": {}, "attention": lines}

    def products(self):
        """Milliseconds of all measured products, one after another; the floor: at the rate of multiply-adds."""
        quick = ["--shapes", "1", "--rows", "8,64", "--seconds", "0.002"] if self.quick else []
        lines = self.ours("benchmarks/bench_products", *quick)
        products = [line for line in lines if line["benchmark"] == "products"]
        ours = [line for line in products if line["who"] == "ours"]
        work = [2e-6 * line["in"] * line["out"] * line["rows"] for line in ours]  # MFLOP
        rounds = zip(*([mflop / rate for rate in line["gflops_rounds"]] for mflop, line in zip(work, ours)))
        result = {"benchmark": "products", "threads": 1} | samples.of_runs([list(map(sum, rounds))])
        result["floor_ms"] = sum(mflop / line["fma_gflops"] for mflop, line in zip(work, ours))
        result |= {"ratio": result["ms"] / result["floor_ms"], "peers": {}}
        return result | {"fma": [line for line in lines if line["benchmark"] == "fma"], "products": products}

    def our_calls(self, sizes, seconds):
        groups = ",".join(map(str, GROUPS))
        options = ["--groups", groups, "--sizes", ",".join(sizes), "--seconds", seconds]
        return self.ours("benchmarks/bench_collectives", *options)

    def our_pair(self, seconds):
        """Messages and sums of two coordinates."""
        return self.ours("benchmarks/bench_collectives", "--groups", "2", "--sizes", "4", "--seconds", seconds)

    def gloo_calls(self, sizes, seconds):
        return self.peers.run("gloo", *python("torch", "collectives_gloo.py"), "--seconds", seconds, "--sizes", *sizes)

    def openmpi_calls(self, sizes, seconds):
        """A run for each group: processes outside of the group would use a core while they wait."""
        runs = [self.peers.run("openmpi", "mpi", *mpirun(group), INSTALLED / "mpi/collectives_mpi", seconds, *sizes) for group in GROUPS]
        return sum(runs, []) if all(runs) else []

    def collectives(self):
        """The main figure is the sum of all gradients over 2 coordinates, in place; calls and peer_calls have the others."""
        sizes = [4, 1 << 10, 1 << 14, 1 << 18, 1 << 22, GRADIENT_BYTES] + ([] if self.quick else [1 << 26])
        sizes, seconds = list(map(str, sizes)), "0.02" if self.quick else "0.2"
        peers = {"gloo": self.gloo_calls, "openmpi": self.openmpi_calls} if self.with_peers else {}
        ours, others = [], {name: [] for name in peers}
        for _ in range(1 if self.quick else 3):
            ours.append(self.our_calls(sizes, seconds))
            for peer, measure in peers.items():
                others[peer].append(measure(sizes, seconds))
                ours.append(self.our_calls(sizes, seconds))
        medians = distance.median_calls(ours)
        pairs = ours + [self.our_pair(seconds) for _ in range(6)]
        gradients = [distance.find_call(lines, "psum_gradients", 2, GRADIENT_BYTES) for lines in pairs]
        middle = {name: statistics.median(line[name] for line in gradients)
                  for name in ("floor_us", "share", "cold_share")}
        result = {"benchmark": "collectives", "threads": 2}
        result |= samples.of_runs([[1e-3 * line["us"] for line in gradients]])
        result |= {"floor_ms": middle["floor_us"] / 1e3, "ratio": 1 / middle["share"]}
        result |= {"share": middle["share"], "cold_share": middle["cold_share"], "distances": distance.summary(sum(pairs, []))}
        result |= {"peers": {}, "peer_runs": {}, "calls": medians, "peer_calls": {}}
        for peer, runs in others.items():
            if not any(runs):
                continue
            medians = result["peer_calls"][peer] = distance.median_calls(runs)
            call = distance.find_call(medians, "psum_gradients", 2, GRADIENT_BYTES) or distance.find_call(medians, "psum", 2, GRADIENT_BYTES)
            result["peer_runs"][peer] = distance.call_ms(call) | {"version": call["version"], "threads": call["threads"]}
            result["peers"][peer] = result["peer_runs"][peer]["ms"]
        return result

    def schedule_overhead(self):
        """Milliseconds per action; the floor: calls of the actions' functions alone."""
        steps = "200" if self.quick else "2000"
        runs = [self.ours("benchmarks/bench_schedule_overhead", "--steps", steps)[0] for _ in range(6)]
        result = dict(sorted(runs, key=lambda run: run["ms"])[len(runs) // 2])
        result |= samples.of_runs([[run["ms"] for run in runs]])
        result["floor_ms"] = statistics.median(run["floor_ns"] for run in runs) / 1e6
        return result | {"threads": 1, "ratio": result["ms"] / result["floor_ms"], "peers": {}}

    def timed_start(self, program, *options):
        """Returns the milliseconds from exec to the end of PROGRAM's first line of output, and the output."""
        command = [self.build / program, *options]
        with self.watch:
            began = time.perf_counter()
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                lines = [process.stdout.readline()]
                ms = 1e3 * (time.perf_counter() - began)
                lines += process.stdout
        if process.returncode:
            raise Failure(f"{program}: exit status {process.returncode}")
        return ms, list(map(json.loads, lines))

    def our_startup(self):
        """Returns the time by our clock, and the driver's own figure, in ticks of 10 ms."""
        ms, lines = self.timed_start("drivers/looping_pipeline", "--json", "--steps", "1")
        return lines[-1] | {"startup_ms": ms}

    def next_startup(self):
        """Returns the second of two runs, and the first one's time. A virtual machine returns memory to its host after it has been
        free for some seconds, and the first process that touches it again waits for the host."""
        paused = self.our_startup()["startup_ms"]
        return self.our_startup() | {"paused_ms": paused}

    def startup(self):
        """Turns of ours and, right behind it, the floor; with --quick a peer has one run, which counts. The floor: a
        process that loads our libraries and touches the memory of parameters, gradients and moments, and then measures
        a step's floor itself. The ratio is taken turn by turn."""
        runs, floors, others = [], [], {}
        options = JOBS["notebook_step"]["model"].split() + ["--steps", "1", "--warmup", "1"]
        for i in range(6 if self.quick else 12):
            runs.append(self.next_startup())
            ms, lines = self.timed_start("benchmarks/bench_startup")
            floors.append(ms + lines[1]["floor_ms"])
            for name in STARTUP_PEERS if self.with_peers and i < (1 if self.quick else 6) else ():
                others.setdefault(name, []).extend(self.peers.run(name, *STEP_PEERS[name], *options))
        times = [run["startup_ms"] for run in runs]
        result = {"benchmark": "startup", "threads": 8} | samples.of_runs([times])
        result["paused_ms"] = statistics.median(run["paused_ms"] for run in runs)
        result["first_step_ms"] = statistics.median(run["first_step_ms"] for run in runs)
        result["peak_bytes"] = max(run["peak_bytes"] for run in runs)
        result["floor_ms"] = statistics.median(floors)
        result["ratio"] = samples.ratio_of_pairs(list(zip(times, floors)))[0]
        result |= {"peers": {}, "peer_runs": {}}
        for name, peer in others.items():
            if not peer:
                continue
            run = summary(peer) | samples.of_runs([[run["startup_ms"] for run in (peer[1:] or peer)]])
            result["peers"][name], result["peer_runs"][name] = run["ms"], run
        return result

    def predictions(self):
        """The median of predicted over measured times; rows have each layout."""
        rows = predictions.measure(self.build, self.quick, self.watch)
        result = {"benchmark": "predictions", "threads": 2} | samples.of_runs([[row["ms"] for row in rows]])
        result |= {"floor_ms": 0, "peers": {}, "predictions": rows}
        return result | {"ratio": statistics.median(row["ratio"] for row in rows)}

    def stages(self):
        """Milliseconds for a thousand tokens on two cores; the floor: half of the time on one. rows have each pair."""
        rows = stages.measure(self.build, self.quick, self.watch)
        one, two = rows[-1]["first_value"], rows[-1]["second_value"]
        result = {"benchmark": "stages", "threads": 2} | samples.of_runs([[1e6 / two]])
        return result | {"floor_ms": 1e6 / one / 2, "ratio": 2 * one / two, "peers": {}, "stages": rows}

    def synthesis(self):
        """Milliseconds of a step with synthesized schedules, summed over jobs; the floor: the best named schedules."""
        rows = synthesis.measure(self.build, self.quick, self.watch)
        result = {"benchmark": "synthesis", "threads": 2} | samples.of_runs([[sum(row["median_ms"] for row in rows)]])
        result |= {"floor_ms": sum(row["named_median_ms"] for row in rows), "peers": {}, "synthesis": rows}
        return result | {"ratio": statistics.median(row["ratio"] for row in rows)}

    def random_models(self):
        """Simulated milliseconds of synthesized schedules, summed over models; the floor: the bounds."""
        rows = random_models.measure(self.build, self.quick)
        result = {"benchmark": "random_models", "threads": 1} | samples.of_runs([[sum(row["found_ms"] for row in rows)]])
        result |= {"floor_ms": sum(row["bound_ms"] for row in rows), "peers": {}, "random_models": rows}
        return result | {"ratio": statistics.median(row["found_ms"] / row["bound_ms"] for row in rows)}

    def published(self):
        """Milliseconds of a training step; the floor: its products. rows have each job."""
        def run_peer(kind, *options):
            if not self.with_peers:
                return []
            if kind in published.IN_FILE:
                return self.peers.run("llama.cpp", *python("llama", "llama_published.py"), *options)
            return self.peers.run("transformers", *python("transformers", "transformers_published.py"), "--precision", kind, *options)

        try:
            model = published.find_model()
        except Failure as failure:
            self.peers.absent["published"] = str(failure)
            note(f"published is left out: {failure}")
            return None
        rows = published.measure(self.build, model, self.quick, self.watch, self.our_transformer, run_peer)
        result = {"benchmark": "published", "threads": 2, "floor_ms": rows[0]["bound_ms"]} | rows[0]
        result |= {"ratio": rows[0]["ms"] / rows[0]["bound_ms"], "published": rows}
        return result | {"peers": {"transformers": rows[0]["peer"]["ms"]} if "peer" in rows[0] else {}}

    def prices(self):
        """FSDP's step; the floor: the step without. rows have each price."""
        return self.priced("prices", prices.PRICES)

    def exactness(self):
        """The same of --exact, the first of its layouts."""
        return self.priced("exactness", prices.EXACT)

    def priced(self, name, which):
        rows = prices.measure(self.build, self.quick, self.watch, which)
        times = {name: rows[0][name] for name in ("ms", "ms_min", "ms_max", "interval_ms", "confidence", "samples", "processes")}
        result = {"benchmark": name, "threads": 2} | times | {"floor_ms": rows[0]["without"]["ms"], "peers": {}}
        return result | {"ratio": rows[0]["ratio"], name: rows}
