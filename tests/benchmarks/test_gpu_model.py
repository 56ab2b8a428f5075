#!/usr/bin/env python3
"""test_gpu_model.py [BUILD] - predicted steps of a GPU: the arithmetic on fixed accounts, or with BUILD, one of the preset
cuda, that all of two real steps is known; prints TAP."""

import collections
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True

from points import plan, point

import gpu_model
from gpu_model import jobs
from programs import Failure


def close(left, right):
    return abs(left - right) <= 1e-9 * abs(right)


# Round numbers: a TFLOP/s, a GB/s, ten processors.
GPU = dict.fromkeys(gpu_model.H100, 1.0) | {"bf16": 4.0, "tf32": 2.0, "processors": 10.0, "kernel_us": 3.0, "wait_us": 7.0}


def total(*lines):
    return gpu_model.totals([line.split() for line in lines], GPU, ("cudaStreamSynchronize",))


def launch(function, blocks, *parameters):
    return f"1 launch __omp_offloading_2b_1f_{function}_l30 {blocks} 128 0xffffffffffffffff {' '.join(parameters)}"


def products():
    sums = total("1 product 1000 1000 1000 bf16 8000", "1 product 1000 1000 1000 tf32 16000", "1 product 1000 1 1 f32 8000")
    result = gpu_model.predict(sums, GPU)
    # 2 GFLOP at 4 and at 2 TFLOP/s; 8 KB at 1 GB/s.
    point(close(result["products_ms"], 0.5 + 1.0 + 8e-3), "a product takes its arithmetic, by type, or its bytes")
    point(close(result["gflop"], 4.000002) and result["launches"] == 3, "their arithmetic is counted")


def kernels():
    result = gpu_model.predict(total(launch("add", 10, "0xf4240", "1+0", "2+0")), GPU)
    point(close(result["kernels_ms"], 12.0) and close(result["kernel_gb"], 0.012), "a sum of a million moves 12 MB")
    result = gpu_model.predict(total(launch("add", 5, "0xf4240", "1+0", "2+0")), GPU)
    point(close(result["kernels_ms"], 24.0), "on half of the processors it takes twice as long")
    result = gpu_model.predict(total(launch("add", 20, "0x1", "1+0", "2+0")), GPU)
    point(close(result["kernels_ms"], 3e-3), "none is shorter than the shortest")
    sums = launch("column_sums_of", 10, "0x1", "0x1", "0x2", "0x64", "1+0", "0x8", "0", "2+0", "0x1")
    point(gpu_model.predict(total(sums), GPU)["kernel_gb"] == 2 * 8 * (100 * 2 + 4) / 1e9, "column sums of bf16")
    norm = [launch("backward_input_of", 10, "0x3e8", "0x64", *["1+0"] * 3, "0x64", "1+0", half, "1+0", "1+0", *more)
            for half, *more in (("0", "0", "0", "0", "0"), ("0x1", "0x1", "2+0", "0x1", "3+0"))]
    moved = [gpu_model.predict(total(line), GPU)["kernel_gb"] for line in norm]
    point(moved == [12e-4, 16e-4], "a norm's gradient, and one of bf16 with summands, whose sum is stored")
    norm = ("0x2", "0x64", "1+0", "0x64", "0x0", "2+0", "3+0", "4+0", "5+0")
    for y, each in (("0", 6), ("6+0", 10)):
        moved = gpu_model.predict(total(launch("rms_norm_forward_bf16", 10, *norm, y, "7+0")), GPU)["kernel_gb"]
        point(close(moved, 200 * each / 1e9), f"an RMS norm that writes bf16 moves {each} bytes an element")
    for name, y, stored, each in (("", "5+0", "0", 8), ("_half", "0", "6+0", 4)):
        rows = ("0x18", "0x64", "1+0", "2+0", "3+0", "0", "4+0", y, "0x1", stored)
        moved = gpu_model.predict(total(launch(f"whole_norm_forward{name}", 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 2400 * each / 1e9), f"an RMS norm of whole rows moves {each} bytes an element")
    for name, *more, each in (("", "0", "0", "0", "7+0", "0", 12), ("_kept", "5+0", "0", "0x1", "7+0", "8+0", 16),
                              ("_half", "0", "6+0", "0x1", "0", "8+0", 8)):
        rows = ("0x3", "0x2", "0x18", "0x64", "1+0", "2+0", "3+0", "4+0", *more, "0x1", "9+0")
        moved = gpu_model.predict(total(launch(f"whole_norm_backward{name}", 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 2 * 100 * (24 * each + 3 * 8) / 1e9), f"an RMS norm's backward moves {each} bytes an element, and 8 of each team")
    for name, more, each in (("floats", ("5+0", "0x64", "0", "0", "0"), 8), ("floats", ("5+0", "0x64", "0x1", "0x1", "6+0"), 8),
                                   ("stored", ("5+0", "0x64", "0x1"), 4)):
        rows = ("0x3e8", "1+0", "0", "0x100", "0x64", "2+0", *more)
        moved = gpu_model.predict(total(launch(f"lookup_{name}", 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 1e5 * each / 1e9), f"a lookup moves {each} bytes an element")
    for name, rows, each in (("row_sums", ("0x18", "0x64", "1+0", "2+0"), 4), ("center_rows", ("0x18", "1+0", "0x64", "2+0", "0x64", "3+0"), 8),
                             ("scale_rows", ("0x18", "1+0", "0x64", "2+0"), 8)):
        moved = gpu_model.predict(total(launch(name, 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 2400 * each / 1e9), f"{name} moves {each} bytes an element")
    for stored, more in (("0", 0), ("9+0", 2)):
        rows = ("0x2", "0x18", "0x4", "0x5", "0", "0", "0x400", *["1+0"] * 3, "0xa", "0xa", stored, "0x1", "0x1", "0x3f800000")
        moved = gpu_model.predict(total(launch("rotate_heads", 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 2400 * (8 + more) / 1e9), f"heads that are rotated move {8 + more} bytes an element")
        flag = "0x1" if more else "0"
        line = launch("gate_forward", 10, "0x960", flag, "1+0", stored, flag, "2+0", stored, "3+0", stored, "0x1")
        moved = gpu_model.predict(total(line), GPU)["kernel_gb"]
        point(close(moved, 2400 * (12 + 7 * more) / 1e9), f"gates that leave {3 * more} bytes beside floats")
        for floats, each in (("4+0", 12), ("0", 4)):
            line = launch("gate_backward", 10, "0x960", floats, flag, *["1+0"] * 3, stored, stored, floats, "0x1", "0x1")
            moved = gpu_model.predict(total(line), GPU)["kernel_gb"]
            point(close(moved, 2400 * ((4 if more else 8) + each + 2 * more) / 1e9), "and their gradients, with floats or without")
        for floats, each in (("2+0", 8 + more), ("0", 4 + more)):
            chunk = ("0x18", "1+0", "0x64", "3+0", "0", "0x1", "4+0", floats, stored, *["5+0"] * 4)
            moved = gpu_model.predict(total(launch("softmax_chunk", 10, *chunk)), GPU)["kernel_gb"]
            point(close(moved, 2400 * each / 1e9), f"a chunk's softmax moves {each} bytes an element")
            line = launch("softmax_dlogits", 10, "0x18", "1+0", "0x64", floats, stored, "2+0", "0x39000000", "3+0", "4+0", "0")
            moved = gpu_model.predict(total(line), GPU)["kernel_gb"]
            point(close(moved, 2400 * each / 1e9), "and so do its gradients")
    layer = launch("layer_norm_rounded", 10, "0x3e8", "0x64", *["1+0"] * 3, "0x1", *["1+0"] * 3)
    point(gpu_model.predict(total(layer), GPU)["kernel_gb"] == 10e-4, "a layer norm that writes an operand")
    for half, floats, stored, read in (("0", "0x1", "0", 4), ("0x1", "0", "0x1", 2)):
        flags, left = (floats, "0x1", stored), 4 * int(floats, 16) + 2 * int(stored, 16)
        for kernel in ("silu_kept_of", "multiply_kept_of"):
            moved = gpu_model.predict(total(launch(kernel, 10, "0x3e8", half, *["1+0"] * 4, *flags)), GPU)["kernel_gb"]
            point(close(moved, 1000 * (read + 2 + left) / 1e9), f"{kernel} moves {read + 2 + left} bytes an element")
        rows = ("0x18", "0x64", "1+0", "2+0", "3+0", "0", *flags, *["4+0"] * 4)
        name = "whole_layer_norm_forward" + ("_half" if half == "0x1" else "")
        moved = gpu_model.predict(total(launch(name, 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 2400 * (read + 2 + left) / 1e9), f"a layer norm that keeps bf16 moves {read + 2 + left} bytes an element")
        y, slope = ("1+0" if floats == "0x1" else "0"), ("0" if half == "0x1" else "1+0")
        drop = (half, y, "0x1", "2+0" if stored == "0x1" else "0", slope, "3+0" if slope == "0" else "0")
        for kernel, first in (("drop_parts", ("0x2", *["0"] * 6, "0xc")), ("drop_rows", ("0x2", "0", "0", "0xc", *["0"] * 4))):
            moved = gpu_model.predict(total(launch(kernel, 10, *first, "0x1", "0", "0", "1+0", *drop)), GPU)["kernel_gb"]
            point(close(moved, 24 * (read + left + (2 if slope == "0" else 4)) / 1e9), f"{kernel}: {read}, {left} and the slope's bytes")
    for name, more, each in (("", ("0", "0", "7+0", "0", "8+0"), 14), ("_kept", ("5+0", "0", "7+0", "0x1", "0"), 14),
                             ("_half", ("0", "6+0", "0", "0x1", "8+0"), 8)):
        rows = ("0x18", "0x64", "1+0", "2+0", "3+0", "4+0", *more)
        moved = gpu_model.predict(total(launch(f"whole_layer_norm_backward{name}", 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 2400 * each / 1e9), f"a layer norm's backward moves {each} bytes an element")
    for half, each in (("0", 8), ("0x1", 4)):
        rows = ("0x1", "0x8", "0x2", "0x18", "0x64", "1+0", "2+0", "3+0", half, half, "4+0")
        moved = gpu_model.predict(total(launch("layer_norm_backward_weight", 10, *rows)), GPU)["kernel_gb"]
        point(close(moved, 4800 * each / 1e9), f"what its parameters get reads {each} bytes an element")

    def adamw(adds, rounds):
        return launch("adamw_of", 10, "0", "0x3e8", *["0x1"] * 10, "1+0", adds, "1+0", *["1+0"] * 4, rounds, "2+0")

    result = gpu_model.predict(total(adamw("0", "0")), GPU)
    point(close(result["optimizer_ms"], 0.028) and result["kernels_ms"] == 0, "AdamW reads four arrays and writes three")
    point(close(gpu_model.predict(total(adamw("0", "0x1")), GPU)["optimizer_ms"], 0.030), "and the values as bf16, too")
    point(close(gpu_model.predict(total(adamw("0x1", "0")), GPU)["optimizer_ms"], 0.032), "or another summand of the gradient")
    heads = ["0x2", "0x1", "0x1", "0x64", "0", "0x64", "0x8", *["0"] * 16]
    result = gpu_model.predict(total(launch("forward", 10, *heads)), GPU)
    point(close(result["attention_ms"], 1e3 * 16 * 100 * 2 * 8 / 1e9), "attention forward: q, k, v and o")
    fast = GPU | {"bandwidth": 1e6}
    lines = [launch("forward", 10, *heads).split()]
    result = gpu_model.predict(gpu_model.totals(lines, fast | {"kernel_us": 1e-9}, ()), fast)
    point(close(result["attention_ms"], 1e3 * 4 * 8 * 2 * 5050 / 1e12), "or the products of pairs that are seen")
    heads = ["0x2", "0x1", "0x1", "0x80", "0", "0x80", "0x1", "0x8", *["0"] * 20]
    for kernel, arrays, products, floats in (("forward", 4, 2, (21,)), ("queries", 6, 3, (22,)), ("keys", 6, 4, (16, 19))):
        line = launch(f"attention_{kernel}_64", 10, *("1+0" if i in floats else word for i, word in enumerate(heads)))
        result = gpu_model.predict(total(line), GPU)
        point(close(result["attention_ms"], 1e3 * 4 * arrays * 128 * 8 / 1e9), f"attention {kernel} on tensor cores: {arrays} arrays")
        result = gpu_model.predict(gpu_model.totals([line.split()], fast | {"kernel_us": 1e-9}, ()), fast)
        point(close(result["attention_ms"], 1e3 * 2 * products * 8 * 3 * 64 * 64 / (4.0 * 1e12)),
              f"or {products} products of whole tiles")
        needed = 2 if kernel == "keys" else products
        share = result["share_of_bound"] * result["ms"]
        point(close(share, 1e3 * 2 * needed * 8 * gpu_model.pairs(128) / (4.0 * 1e12)), f"of which {needed} are needed, of pairs that are seen")
    result = gpu_model.predict(total(launch("forward", 10, "0x1"), launch("other", 10, "0x1")), GPU)
    point(result["unknown"] == ["forward", "other"] and close(result["kernels_ms"], 6e-3), "what is not known is told")


def steps():
    lines = ["1 product 1000 1000 1000 bf16 8000", launch("adamw_of", 10, "0", "0x3e8", *["0x1"] * 10, "1+0", "0", *["1+0"] * 5, "0", "0"),
             "1 call cudaStreamSynchronize", "1 call cuLaunchKernel", "1 call ncclAllReduce 1000",
             "1 copy device>device 1000", "1 copy pinned>device 1000", "1 take device 1 1000"]
    result = gpu_model.predict(total(*lines), GPU)
    point(close(result["communication_ms"], 4e-3), "a copy reads and writes; what is sent or comes from the host passes once")
    point(close(result["device_ms"], 0.5 + 0.028 + 4e-3) and close(result["ms"], 0.532 + 7e-3), "a step: the device's, and its waits")
    point(close(result["share_of_floor"], 0.528 / 0.539), "its floor has products and optimizer")
    slow = gpu_model.predict(total(*lines), GPU | {"launch_us": 1000.0})
    point(close(slow["ms"], 2.0 + 7e-3), "or the host's, where that takes longer")
    halves = gpu_model.predict(total(*lines), GPU, 2)
    point(close(halves["ms"], result["ms"] / 2), "two devices share it")


def quoted():
    """Jobs that others have published."""
    told = {"tokens_per_second": 2e5, "median_ms": 5.12, "mfu": 0.25, "products_flops_per_second": 8e14}
    point(gpu_model.needs_of(told) == (1024, 10**9), "a run tells a step's tokens, and what each of them needs")
    speed = gpu_model.speed_of(1000, 10**6, 500.0, GPU)
    point(close(speed["tokens_per_second"], 2000) and close(speed["share_of_peak"], 2000 * 1e6 / 4e12), "a step of 1000 in half a second")
    job = gpu_model.JOBS["GPT-2 124M, bf16"]
    point("--batch 512 --accumulate 64" in job.options and job.passes == 64, "GPT-2 has 64 passes of 8 sequences")
    few = gpu_model.of_passes(job, 3)
    point("--batch 24 --accumulate 3" in few.options and few.passes == 3, "three of them are 24 sequences")
    small = gpu_model.smaller(job).options
    point("--batch 16 --accumulate 2" in small and "--vocab-size 512 " in small and "--sequence 64 " in small, "a small model has two")
    results = {"GPT-2 124M, bf16": {"tokens_per_second": 1e5, "share_of_peak": 0.1}, "article, bf16": {}}
    _, _, *rows = gpu_model.speeds(results)
    point(rows == ["| GPT-2 124M, bf16 | 100,000 | 10 % | llm.c 471,482, 47 %; modded-nanogpt 574,783 by another model |"],
          f"what others say stands beside it: {rows}")


def lists():
    lines = ["1 product 1000 1000 1000 bf16 8000", launch("add", 10, "0xf4240", "1+0", "2+0"), launch("add", 5, "0xf4240", "1+0", "2+0"),
             launch("other", 10, "0x1"), "1 call cudaStreamSynchronize"]
    sums = gpu_model.by_kernel([line.split() for line in lines], GPU)
    add = ("kernels", "add", "bytes")
    point(sums[add, "count"] == 2 and close(sums[add, "bytes"], 24e6) and close(sums[add, "s"], 36e-3), "a kernel's launches are added up")
    point({key for key, _ in sums} == {add, ("products", "1000 x 1000 x 1000 bf16", "products"), ("unknown", "other", "launch")}, "products are told by their sizes")


def figures():
    point(gpu_model.read_gpu("H100") == gpu_model.H100, "H100 has its own figures")
    told = gpu_model.read_gpu("bandwidth=4800,launch_us=2")
    point(told == gpu_model.H100 | {"bandwidth": 4800.0, "launch_us": 2.0}, "others in place of them")
    point(gpu_model.read_gpu("A100,pcie=64") == gpu_model.GPUS["A100"] | {"pcie": 64.0}, "and an A100")
    for name, text, wanted in (("NVIDIA H100 80GB HBM3", "", "H100"), ("NVIDIA H200", "", "H200"), ("NVIDIA A100-SXM4-80GB", "", "A100"),
                               ("NVIDIA H200", "A100", "A100")):
        point(gpu_model.figures_of(name, text) == (gpu_model.GPUS[wanted], wanted), f"{name} {text} is predicted by {wanted}")
    figures, said = gpu_model.figures_of("NVIDIA L40S", "")
    point(figures == gpu_model.H100 and "H100, as there are no figures for NVIDIA L40S" in said, "a GPU without figures is told")
    figures, said = gpu_model.figures_of("NVIDIA L40S", "bandwidth=864,processors=142")
    point(figures["processors"] == 142 and said == "bandwidth=864,processors=142", "or has those that are given")
    for text in ("H300", "", "speed=1", "bf16=0", "bf16=x", "bf16=nan", "bf16=inf", "kernels_reach=1.5", "bf16=1,H100"):
        try:
            gpu_model.read_gpu(text)
            point(False, f'"{text}" is refused')
        except Failure as failure:
            point(failure.status == 2 and str(failure).startswith("--predict: "), f'"{text}" is refused: {failure}')


def real(build):
    """Two steps on the GPU that computes nothing."""
    article = gpu_model.step(build, gpu_model.H100, gpu_model.JOBS["article, bf16"])
    point(article["unknown"] == [], "the bytes of all kernels of the article's step are known")
    # Two layers of 2048 x 8192 a block: three products of each, but for the first layer's input; first and last layer.
    gflop = 2 * 512 * (3 * 16 * 2 * 2048 * 8192 + 2 * 784 * 2048 + 3 * 2048 * 10) / 1e9
    point(close(article["gflop"], gflop), f"its products have {gflop:.1f} GFLOP")
    adamw = 30 * (16 * 2 * 2048 * 8192 + 784 * 2048 + 2048 * 10)
    bound = 1e3 * adamw / (0.9 * 3350e9)
    point(bound < article["optimizer_ms"] < 1.001 * bound, "its optimizer moves 30 bytes a parameter, two of them as bf16, and biases'")
    for name in ("article, bf16 stored", "transformer, bf16", "transformer, bf16 stored", *quoted_names()):
        unknown = gpu_model.step(build, gpu_model.H100, gpu_model.JOBS[name])["unknown"]
        point(unknown == [], f"and all of {name}: {unknown}")
    for name in ("transformer, bf16", "article, tf32"):
        whole, rows = (call(build, gpu_model.H100, gpu_model.JOBS[name]) for call in (gpu_model.step, gpu_model.kernels))
        point(close(sum(row["ms"] for row in rows if row["part"] == "kernels"), whole["kernels_ms"]) and
              close(sum(row["launches"] for row in rows), whole["launches"]), f"the list of {name} is all that it launches")
    passes(build)
    counted(build)
    one_sequence(build)
    many_elements(build)
    decoding(build)


def quoted_names():
    return [name for name, job in gpu_model.JOBS.items() if job.published]


def passes(build):
    """Many passes follow from two and three, and a token from its sizes."""
    job = gpu_model.of_passes(gpu_model.JOBS["GPT-2 124M, bf16"], 5)
    told, counted = (gpu_model.step(build, gpu_model.H100, each) for each in (job, job._replace(passes=1)))
    point(all(close(told[name], counted[name]) for name in ("launches", "gflop", "kernel_gb", "product_gb", "device_ms")),
          f"five passes of GPT-2 are what two and three of them say: {told['launches']:.0f} launches, {told['device_ms']:.2f} ms")
    for name, kernels in (("GPT-2 124M, bf16", {"softmax_chunk": 6 * 3144, "softmax_dlogits": 6 * 3144, "center_rows": 8 * 768}),
                          ("Qwen2.5-0.5B, bf16", {"gate_forward": 10 * 4864, "gate_backward": 16 * 4864})):
        rows = {row["kernel"]: row for row in gpu_model.kernels(build, gpu_model.H100, gpu_model.of_passes(gpu_model.JOBS[name], 1))}
        moved = {kernel: round(1e9 * rows[kernel]["gb"] / rows[kernel]["launches"] / 8192) for kernel in kernels}
        point(moved == kernels, f"kernels of {name} move so many bytes a row: {moved}")
    layers, head, attention = 12 * 12 * 768 * 768, 50304 * 768, 12 * 1025 * 768
    point(abs(told["flops_a_token"] / (6 * (layers + head + attention)) - 1) < 1e-6, f"a token needs {told['flops_a_token'] / 1e6:.1f} MFLOP")


def counted(build):
    """The runs by which kernels are counted have all kernels of their jobs."""
    def names(job):
        lists = gpu_model.kernels(build, gpu_model.H100, job)
        return {row["kernel"] for row in lists if row["part"] != "products"}

    for name in ("article, bf16", "article, tf32", "transformer, bf16 stored", "GPT-2 124M, bf16", "Qwen2.5-0.5B, bf16 stored"):
        whole = names(gpu_model.JOBS[name])
        for run in ("small", "large"):
            absent = whole - names(jobs.counted_run(gpu_model.JOBS[name], run))
            point(whole and not absent, f"the {run} run of {name} has its {len(whole)} kernels {absent or ''}")


# Launches that have fewer than two blocks for each processor though they move the bytes of a million floats, and why.
FEWER = {"add_blocks": "sums of columns that teams have left, a sixteenth of what these read"}


def many_elements(build):
    """Two blocks for each processor of the largest GPUs, if there is work for them."""
    counter = gpu_model.null_cuda()

    def large(lines):
        found = collections.Counter()
        for _, kind, name, *rest in lines:
            if kind != "launch":
                continue
            _, moved, *_ = gpu_model.price_launch(name, int(rest[0]), [gpu_model.number(word) for word in rest[3:]], gpu_model.H100)
            if moved >= 4e6:
                found[gpu_model.function_of(name), int(rest[0])] += 1
        return found

    halves = [(0, "transformer", *(a.replace("tensor=1", "tensor=2") for a in counter.BLOCKS), "--engine", "local")]
    for _, program, *options in [*counter.LAUNCHES, *halves]:
        with tempfile.TemporaryDirectory() as work:
            launches = counter.step(str(build), f"{work}/record", f"{build}/drivers/{program}", *options, account=large)
        few = {function: blocks for function, blocks in launches if blocks < 264 and function not in FEWER}
        title = " ".join(a for a in (program, *options) if a not in (*counter.ARTICLE, *counter.BLOCKS[3:-1]))
        point(launches and not few, f"{len(launches)} kinds of launches that move 4 MB and more have 264 blocks and more: {title} {few or ''}")


def one_sequence(build):
    """Attention has a block for each processor also if there is but one sequence."""
    for precision, kernels in (("f32", ("forward", "backward")),
                               ("bf16", ("attention_forward_64", "attention_queries_64", "attention_keys_64"))):
        launches = launches_of_one(build, precision)
        for kernel in kernels:
            least = min((count for function, count in launches if function == kernel), default=0)
            point(least >= 132, f"{kernel} of 12 heads and 1024 tokens in {precision} has {least} blocks")


def decoding(build):
    """Of one sequence attention over a cache has a block for each processor, too."""
    program = gpu_model.JOBS["transformer, bf16"].program
    sizes = "--model-dimension 768 --n-heads 12 --blocks 1 --layers-per-block 1 --sequence 1040 --length 1030"
    counter = gpu_model.null_cuda()
    for cache, kernel in (("expanded", "sl_attention_decode_device"), ("latent", "forward_divided")):
        with tempfile.TemporaryDirectory() as work:
            result, lines = counter.run(str(build), f"{work}/record", f"{build}/drivers/{program}", "generate",
                                        *gpu_model.ONE.split(), *sizes.split(), "--prompt", 1024 * "x", "--cache", cache)
        blocks = [int(rest[0]) for _, kind, name, *rest in lines if kind == "launch" and gpu_model.function_of(name) == kernel]
        point(result.returncode == 0 and blocks and min(blocks) >= 132,
              f"{kernel} of 12 heads and 1024 keys has {min(blocks, default=0)} blocks, exit status {result.returncode}")


def launches_of_one(build, precision):
    """(kernel, its blocks), of a step of one sequence."""
    program, options, *_ = gpu_model.JOBS["transformer, bf16"]
    for old, new in (("--batch 8", "--batch 1"), ("--blocks 12", "--blocks 1"), ("--precision bf16", f"--precision {precision}")):
        options = options.replace(old, new)

    def blocks(lines):
        return collections.Counter((gpu_model.function_of(name), int(rest[0])) for _, kind, name, *rest in lines if kind == "launch")

    with tempfile.TemporaryDirectory() as work:
        launches = gpu_model.null_cuda().step(str(build), f"{work}/record", f"{build}/drivers/{program}", *options.split(),
                                              account=blocks)
    return launches


if len(sys.argv) > 1:
    real(sys.argv[1])
else:
    products()
    kernels()
    steps()
    quoted()
    lists()
    figures()
plan()
