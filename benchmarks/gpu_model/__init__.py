"""gpu_model - predicts a step's time on a GPU of given figures, from the calls that a run makes to a fake GPU.

The account of a run (tests/fake_cuda/fake.h) has each product with its sizes, type and bytes, and each kernel with its
blocks and its parameters. From the parameters come the bytes that a kernel reads and writes at least: each array once.
A product or a kernel takes as long as its arithmetic or its bytes, whichever is longer, and never less than the shortest
kernel. Kernels with fewer blocks than the GPU has processors get that share of its bandwidth and arithmetic. The host
enqueues while the device computes, so a step takes the longer of both, and then its waits.

Not modelled: latency within a kernel (dependent rows, reductions, barriers), caches, work that overlaps on the device,
waits of pipelines. If these matter, a step takes longer than predicted.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from programs import Failure

from gpu_model.figures import GPUS, H100, figures_of, read_gpu
from gpu_model.formulas import pairs
from gpu_model.jobs import ALONE, JOBS, ONE, Job, of_passes, smaller
from gpu_model.pricing import NONE, PARTS, by_kernel, function_of, number, predict, price_launch, totals

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/spmd/device"))


def null_cuda():
    """Returns the module that counts calls."""
    try:
        import null_cuda as module
    except ImportError as error:  # a build that was packed without the tests' sources
        raise Failure("tests/spmd/device/null_cuda.py is not here") from error
    return module


def on_null_cuda(build, job, ask):
    """Returns ASK(counter, build, record, driver, *options) for JOB on a GPU that computes nothing."""
    build = pathlib.Path(build)
    driver = build / "drivers" / job.program
    if not (build / "tests/null_cuda").is_dir() or not driver.exists():
        raise Failure(f"{build} has no {job.program} and tests/null_cuda: cmake --build {build} --target {job.program} sl_null_cuda", 2)
    with tempfile.TemporaryDirectory() as work:
        try:
            return ask(null_cuda(), str(build), f"{work}/record", str(driver), *job.options.split())
        except (RuntimeError, subprocess.SubprocessError) as error:
            raise Failure(str(error)) from error


def count_step(build, job, account):
    """Returns ACCOUNT's result for a step of JOB on all its devices. All passes after the first do the same work, so if there are
    more than three, only the second and the third are run."""
    if job.passes > 3:
        two, three = (count_step(build, of_passes(job, passes), account) for passes in (2, 3))
        return {name: two.get(name, 0) + (job.passes - 2) * (three.get(name, 0) - two.get(name, 0)) for name in two.keys() | three.keys()}
    return on_null_cuda(build, job, lambda counter, *run: counter.step(*run, account=account))


def needs_of(told):
    """Returns (tokens of a step, operations for a token) from the last line of TOLD, the output of the driver transformer."""
    speed = told["tokens_per_second"]
    return round(speed * told["median_ms"] / 1e3), round(told["mfu"] * told["products_flops_per_second"] / speed)


def speed_of(tokens, flops, ms, gpu, devices=1):
    """Returns the speed of a step that takes MS for TOKENS tokens of FLOPS operations each."""
    speed = 1e3 * tokens / ms / devices
    return {"tokens_per_second": speed, "share_of_peak": speed * flops / (gpu["bf16"] * 1e12), "flops_a_token": flops}


def find_needs(build, job):
    """Returns needs_of for a run of JOB."""
    def ask(counter, *run):
        result, _ = counter.run(*run, "--steps", "1", "--json")
        if result.returncode:
            raise RuntimeError(f"{job.program} exits with {result.returncode}: {result.stderr.strip()}")
        return needs_of(json.loads(result.stdout.splitlines()[-1]))

    tokens, flops = on_null_cuda(build, of_passes(job, 1), ask)
    return tokens * job.passes, flops


def step(build, gpu, job, counted=NONE):
    """Returns the predicted step of JOB. COUNTED: its kernels in the table of counts."""
    sums = count_step(build, job, lambda lines: totals(lines, gpu, null_cuda().WAITS, counted))
    result = predict(sums, gpu, job.devices)
    return result | (speed_of(*find_needs(build, job), result["ms"], gpu, job.devices) if job.published else {})


def kernels(build, gpu, job, counted=NONE):
    """Returns a row for each kernel and product of such a step, the longest first."""
    sums = count_step(build, job, lambda lines: by_kernel(lines, gpu, counted))
    rows = [{"part": key[0], "kernel": key[1], "longest": key[2], "launches": count / job.devices, "gb": sums.get((key, "bytes"), 0) / job.devices / 1e9,
             "ms": 1e3 * sums[key, "s"] / job.devices} for (key, field), count in sums.items() if field == "count"]
    return sorted(rows, key=lambda row: -row["ms"])


def article(build, gpu, model, precision):
    """Returns the predicted step of the article's MODEL."""
    sizes = " ".join(f"--{name} {value}" for name, value in model.items())
    return step(build, gpu, Job("looping_pipeline", f"{ALONE} {sizes} --precision {precision}"))


def table(results):
    """Returns a Markdown table with a row for each job, by name."""
    yield "| job | launches | products ms | attention | optimizer | other kernels | copies, NCCL | device | host | waits | step | floor / step | with attention's |"
    yield "| --- |" + " ---: |" * 12
    for name, result in results.items():
        times = [result[f"{part}_ms"] for part in (*PARTS, "device", "host", "waits")]
        cells = [f"{result['launches']:.0f}", *(f"{ms:.2f}" for ms in times), f"{result['ms']:.2f}"]
        yield f"| {name} | {' | '.join(cells)} | {100 * result['share_of_floor']:.0f} % | {100 * result['share_of_bound']:.0f} % |"


def speeds(results):
    """Returns the same table for published jobs, beside the published figures."""
    yield "| job | tokens a second | of the peak | others: tokens a second, of the peak |"
    yield "| --- | ---: | ---: | --- |"
    for name, result in results.items():
        if "tokens_per_second" not in result:
            continue
        each = result["share_of_peak"] / result["tokens_per_second"]
        others = [f"{other.who} {other.speed:,.0f}" + (f", {100 * each * other.speed:.0f} %" if other.same else " by another model")
                  for other in JOBS[name].published]
        yield f"| {name} | {result['tokens_per_second']:,.0f} | {100 * result['share_of_peak']:.0f} % | {'; '.join(others)} |"


def print_kernels(job, rows):
    print(f"{job}\n\n| part | kernel | what takes longest | launches | GB | ms |\n| --- | --- | --- | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {row['part']} | `{row['kernel']}` | {row['longest']} | {row['launches']:.0f} | {row['gb']:.3f} | {row['ms']:.3f} |")


def print_all(results, gpu):
    print("A GPU of " + ", ".join(f"{name} {value:g}" for name, value in gpu.items()) + "\n")
    print("\n".join(table(results)) + "\n")
    print("\n".join(speeds(results)))
    unknown = sorted({name for result in results.values() for name in result["unknown"]})
    if unknown:
        print(f"\nkernels whose bytes are not known, at {gpu['kernel_us']:g} us each: {', '.join(unknown)}")
