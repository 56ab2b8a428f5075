"""gpu - the benchmarks on NVIDIA's GPUs: the cost of a launch, and a step of the model that the article profiles.

Beside ours, in TF32 and in bf16, are the bound that cuBLAS sets alone (all of the step's products one after another,
each at its own best rate), the GPU's peak, and JAX and PyTorch where a python has them. On two GPUs and more, JAX runs
the same pipelines on the same mesh; on one it runs plain with one stage, in microbatches (jax_plain) and with the whole
batch at once (jax_single). PyTorch runs the whole batch on one GPU.

Then published jobs, run by the driver transformer, beside the published figures and the predicted ones; --quick omits
these.

If a build does not compute on a GPU (build/offload, build/fake-cuda), all of this runs with a small model instead: this
tests the programs, and the times mean nothing.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys

import gpu_model
from gpu_model import counts
from programs import Failure, json_lines, note

HELP = (
    "on NVIDIA's GPUs: launches, and the article's step in TF32 and bf16, beside cuBLAS alone, the GPU's peak, and JAX "
    "and PyTorch where they are installed, and steps of GPT-2 and Qwen2.5 beside what others have published; beside what a GPU of these FIGURES is predicted to take (see --predict), else of its own"
)
BENCHMARKS = ["launch", "article_step_tf32", "article_step_bf16"]
QUOTED = [name for name, job in gpu_model.JOBS.items() if job.published]
PEERS = pathlib.Path("benchmarks/peers")

# Dense products of tensor cores by the GPU's name, in TFLOP/s: NVIDIA's data sheets.
PEAKS = {
    r"(H100 80GB HBM3|H100 SXM.*|H200)$": {"tf32": 494.7, "bf16": 989.4},
    r"A100\b": {"tf32": 156.0, "bf16": 312.0},
}

MODEL = {"layers": 16, "hidden": 2048, "expansion": 4, "batch": 2048, "microbatches": 8}
SMALL = {"layers": 4, "hidden": 64, "expansion": 4, "batch": 64, "microbatches": 8}
AMOUNT = {
    "full": {
        "rounds": 3,
        "ours": "--steps 30 --warmup 5 --rounds 3 --floor-seconds 0.2",
        "peers": "--steps 20 --warmup 5",
        "quoted": 7,
    },
    "quick": {"rounds": 1, "ours": "--steps 4 --warmup 2 --rounds 2", "peers": "--steps 4 --warmup 2", "quoted": 3},
}


def names():
    """Returns the names of the GPUs that the driver finds."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return []
    return [] if done.returncode else [line.strip() for line in done.stdout.splitlines() if line.strip()]


def peak(name, precision):
    """Returns the GPU's peak in TFLOP/s; None for a GPU that is not in the table."""
    found = (rates[precision] for pattern, rates in PEAKS.items() if re.search(pattern, name) and precision in rates)
    return next(found, None)


def words(model):
    return [word for name, value in model.items() for word in (f"--{name}", str(value))]


# Statements that fail if a python lacks the peer: on a GPU, or at all.
PROBES = {
    "jax": {"gpu": "import jax; jax.devices('cuda')", "cpu": "import jax"},
    "torch": {"gpu": "import torch; torch.zeros(1, device='cuda')", "cpu": "import torch"},
}


class Peers:
    """The installed peers, in this python or in build/peers, and the reason for each absent one."""

    def __init__(self, device, alone=False):
        self.device = device
        self.alone = alone
        self.absent = {}
        self.python = {}

    def find_python(self, package):
        if package in self.python:
            return self.python[package]
        reasons = []
        for python in (sys.executable, f"build/peers/{package}/bin/python"):
            if not os.path.exists(python):
                reasons.append(f"there is no {python}")
                continue
            done = subprocess.run([python, "-c", PROBES[package][self.device]], capture_output=True, text=True)
            if done.returncode == 0:
                self.python[package] = python
                return python
            reasons.append(f"{python}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        raise Failure("; ".join(reasons))

    def run(self, name, package, program, *options):
        """Returns the JSON objects that the peer prints; none if it is not wanted, or absent, which is noted once."""
        if self.alone or name in self.absent:
            return []
        try:
            python = self.find_python(package)
            return json_lines([python, "-B", PEERS / program, "--json", "--device", self.device, *options])
        except Failure as failure:
            self.absent[name] = str(failure)
            note(f"{name} is left out: {failure}")
            return []


def summary(runs):
    return {name: runs[0][name] for name in ("version", "threads", "devices") if name in runs[0]} | {
        "ms": statistics.median(run["ms_median"] for run in runs),
        "ms_min": min(run["ms_min"] for run in runs),
        "ms_max": max(run["ms_max"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
    }


class Suite:
    @staticmethod
    def benchmarks(quick):
        return BENCHMARKS + ([] if quick else QUOTED)

    def __init__(self, options):
        self.build = pathlib.Path(options.build or "build/cuda")
        self.amount = AMOUNT["quick" if options.quick else "full"]
        self.names = names()
        (self.launches,) = json_lines([self.build / "benchmarks/bench_launch"])
        cache = self.build / "CMakeCache.txt"
        fake = cache.exists() and "SL_FAKE_CUDA:BOOL=ON" in cache.read_text()
        self.on_gpu = self.launches["device"] == "cuda" and not fake
        self.model = MODEL if self.on_gpu else SMALL
        if not self.on_gpu:
            note(f"{self.build} does not compute on a GPU: a small model tries the programs, and times mean nothing")
            self.amount = AMOUNT["quick"]
        several = len(self.names) > 1 or os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
        self.engine = "nccl" if self.on_gpu and several else "local"
        self.peers = Peers("gpu" if self.on_gpu else "cpu", options.alone)
        self.figures, self.predicted_for = gpu_model.figures_of(self.names[0] if self.names else "", options.figures)

    def about(self):
        return {"gpus": self.names if self.on_gpu else [], "model": self.model, "engine": self.engine}

    def launch(self):
        """Measures the cost of a target region, and of a small product."""
        return self.launches | {"ms": self.launches["region_us"] / 1e3, "floor_ms": None, "peers": {}}

    def our_step(self, schedule, precision):
        command = [self.build / "benchmarks/bench_step", "--job", "article_step", "--schedule", schedule]
        command += [*words(self.model), "--precision", precision, *self.amount["ours"].split()]
        try:
            (result,) = json_lines([*command, "--engine", self.engine])
        except Failure as failure:
            if self.engine == "local" or "is not in this build" not in str(failure):
                raise
            note(f"without NCCL: {failure}")
            self.engine = "local"
            (result,) = json_lines(command)
        return result | {"ms_median": result["ms"]}

    def their_steps(self, precision):
        """Returns the peers' programs and options by name."""
        model = [*words(self.model), "--precision", precision, *self.amount["peers"].split()]
        whole = words(self.model | {"microbatches": 1})
        one, mesh = ["--mesh", "data=1,model=1"], ["--mesh", "data=1,model=2"]
        jax, torch = ("jax", "jax_pipelines.py", *model), ("torch", "torch_step.py", *model)
        steps = {"jax_single": (*jax, "--schedule", "plain", *whole, *one)}
        if len(self.names) > 1:
            steps |= {f"jax_{name}": (*jax, "--schedule", name, *mesh) for name in ("looping", "plain")}
        else:
            steps["jax_plain"] = (*jax, "--schedule", "plain", *one)
        return steps | {f"torch_{mode}": (*torch, "--mode", mode) for mode in ("eager", "compile")}

    def step(self, precision):
        if not self.on_gpu and precision == "tf32":
            precision = "f32"
        runs = {"looping": [], "plain": []}
        for _ in range(self.amount["rounds"]):
            for schedule in ("looping", "plain"):
                runs[schedule].append(self.our_step(schedule, precision))
            for name, peer in self.their_steps(precision).items():
                runs.setdefault(name, []).extend(self.peers.run(name, *peer))
        ours = runs["looping"] + runs["plain"]
        looping, plain = summary(runs.pop("looping")), summary(runs.pop("plain"))
        others = {name: summary(results) for name, results in runs.items() if results}
        result = {"benchmark": f"article_step_{precision}", "precision": precision, "engine": ours[0]["engine"]}
        result |= looping
        # The best rate of all runs: the machine has reached it once.
        for name in ("floor_ms", "library_ms", "products_ms", "optimizer_ms"):
            result[name] = min(run[name] for run in ours)
        result |= {"gflop": ours[0]["gflop"], "first_loss": ours[0].get("first_loss"), "ratio_of_best": result["ms"] / result["floor_ms"], "plain": plain}
        self.add_shares(result, precision)
        self.add_prediction(result, lambda: gpu_model.article(self.build, self.figures, self.model, precision))
        return result | {"peers": {name: peer["ms"] for name, peer in others.items()}, "peer_runs": others}

    def add_shares(self, result, precision):
        """Adds the shares that the products alone, and the step, reach of cuBLAS's rate and of the peak."""
        for run in (result, result["plain"]):
            run["share_of_library"] = result["library_ms"] / run["ms"]
        rate = peak(self.names[0], precision) if self.on_gpu and self.names else None
        if rate is None:
            return
        result["peak_tflops"] = rate * max(1, result["devices"])
        for share, ms in (("products_share_of_peak", result["library_ms"]), ("step_share_of_peak", result["ms"])):
            result[share] = result["gflop"] / ms / result["peak_tflops"]  # GFLOP/ms are TFLOP/s

    def add_prediction(self, result, predict):
        """Adds the predicted time with all coordinates on one GPU, unless the build lacks the counter."""
        if self.on_gpu:
            try:
                result["predicted"] = predict()
                result["predicted_for"] = self.predicted_for
            except Failure as failure:
                note(f"no prediction: {failure}")

    def quoted(self, name):
        """Measures a step of a published job on one GPU. The first step is left out."""
        job = gpu_model.JOBS[name]
        options = (job if self.on_gpu else gpu_model.smaller(job)).options.replace("--data text", "--data docs")
        command = [self.build / "drivers" / job.program, *options.split(), "--steps", str(self.amount["quoted"]), "--json"]
        *lines, told = json_lines(command)
        times = [line["ms"] for line in lines if "ms" in line][1:]
        result = {"benchmark": name, "ms": statistics.median(times), "ms_min": min(times), "ms_max": max(times), "loss": told["final_loss"]}
        result |= gpu_model.speed_of(*gpu_model.needs_of(told), result["ms"], self.figures)
        self.add_prediction(result, lambda: gpu_model.step(self.build, self.figures, job, counts.read()[name]))
        return result

    def measure(self, name):
        return self.quoted(name) if name in QUOTED else getattr(self, name)()

    def article_step_tf32(self):
        return self.step("tf32")

    def article_step_bf16(self):
        return self.step("bf16")
