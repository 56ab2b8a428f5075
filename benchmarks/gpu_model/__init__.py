"""gpu_model - a step on a GPU that is named by figures, from what a GPU that computes nothing was asked for.

The account of a run (tests/fake_cuda/fake.h) has each product with its sizes, type and bytes, and each kernel with its
blocks and its parameters. From the parameters come the bytes that a kernel reads and writes at least: each array once.
A product or a kernel takes as long as its arithmetic or its bytes, whichever is longer, and never less than the shortest
kernel. Kernels with fewer blocks than the GPU has processors get that share of its bandwidth and arithmetic. The host
enqueues while the device computes, so a step takes the longer of both, and then its waits.

What is left out: latency within a kernel (rows that follow each other, reductions, barriers), caches, work that overlaps
on the device, waiting of pipelines. Where these count, a step takes longer than predicted.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

from programs import Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/spmd/device"))

# An H100 SXM. Of NVIDIA's data sheet: dense products in TFLOP/s, float32 outside of tensor cores, memory, PCIe and NVLink
# in one direction, all in GB/s. The others are assumed: shares of these that products, attention's products in registers
# and kernels reach, and what a launch takes the host, the shortest kernel the device, and a wait.
H100 = {
    "bf16": 989.4, "tf32": 494.7, "f32": 66.9, "bandwidth": 3350.0, "pcie": 64.0, "link": 450.0, "processors": 132.0,
    "products_reach": 0.75, "attention_reach": 0.2, "kernels_reach": 0.9, "launch_us": 2.5, "kernel_us": 2.0, "wait_us": 10.0,
}
SHARES = ("products_reach", "attention_reach", "kernels_reach")
# Others, of their data sheets; what is assumed stays.
H200 = H100 | {"bandwidth": 4800.0}
A100 = H100 | {"bf16": 312.0, "tf32": 156.0, "f32": 19.5, "bandwidth": 2039.0, "pcie": 32.0, "link": 300.0, "processors": 108.0}
GPUS = {"H100": H100, "H200": H200, "A100": A100}
NAMES = {r"H100 (80GB HBM3|SXM)": "H100", r"H200$": "H200", r"A100-SXM4-80GB": "A100"}  # as the driver calls them


def figures_of(name, text):
    """What to predict the GPU NAME by, and what that is called: figures that TEXT gives, its own, or else an H100's."""
    if text:
        return read_gpu(text, "--gpu"), text
    own = next((figures for pattern, figures in NAMES.items() if re.search(pattern, name)), None)
    return GPUS[own or "H100"], own or f"H100, as there are no figures for {name or 'this GPU'}: --gpu FIGURES gives some"


def read_gpu(text, option="--predict"):
    """H100, with other figures where TEXT says so: "H100,bandwidth=4800"."""
    gpu = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if not equals and name in GPUS and not gpu:
            gpu = dict(GPUS[name])
            continue
        gpu = gpu or dict(H100)
        if name not in H100:
            raise Failure(f'{option}: "{word}" is none of {", ".join(GPUS)} and NAME=NUMBER with {", ".join(H100)}', 2)
        try:
            gpu[name] = float(value)
        except ValueError:
            gpu[name] = -1.0
        if not 0 < gpu[name] < 1e9 or (name in SHARES and gpu[name] > 1):
            limit = "at most 1" if name in SHARES else "below 1e9"
            raise Failure(f'{option}: {name}: "{value}" is not a number above 0, {limit}', 2)
    return gpu


# ---- what a kernel reads and writes

HALF = {0: 4, 1: 2}  # bytes of an element by the parameter that says whether it is bf16


def pairs(queries):
    """Of a query and a key that it sees."""
    return queries * (queries + 1) // 2


def tiled_pairs(queries):
    """The same, in whole tiles of 64 by 64."""
    return 64 * 64 * pairs(-(-queries // 64))


def rows_of_heads(p):
    """Of attention on tensor cores: a row of each head."""
    return p[2] * p[3] * p[6]


def written(floats, stored):
    """Bytes of an element that is written as a float, as bf16, or both: to pointers, None, where they are not 0."""
    return 4 * (floats is None) + 2 * (stored is None)


def left(floats, stored):
    """The same by numbers that say whether it is."""
    return 4 * floats + 2 * stored


def dropped(p):
    """Of an element of dropout: x, and what it leaves of y and of the slope."""
    return HALF[p[12]] + written(p[13], p[15]) + written(p[16], p[17])


def norm_forward(p, read):
    """Of a norm that reads so many bytes of an element: what it leaves as floats, and as bf16."""
    return p[0] * p[1] * (read + written(p[7], p[9]))


def norm_backward(p, read):
    """The same of backward, where a summand is floats or bf16, and each block of rows may leave two sums of a column."""
    element = read + written(p[8], p[9]) + written(p[11], p[12])
    return p[1] * p[3] * (p[2] * element + 8 * p[0] * p[13])


def layer_norm_backward(p, read):
    """The same of a layer norm, whose sums of columns have a kernel of their own."""
    return p[0] * p[1] * (read + written(p[6], p[7]) + written(p[9], p[10]))


HEADS = "64", "deep_64", "128", "any_64", "any_128"  # which have kernels of their own on tensor cores

# By kernel, from its parameters in the order in which the compiler hands them over: all numbers, None for a pointer.
BYTES = {
    "fill": lambda p: 4 * p[0],
    "add": lambda p: 12 * p[0],
    "multiply_elements": lambda p: 12 * p[0],
    "multiply_rounded": lambda p: 10 * p[0],
    "round_bf16": lambda p: 6 * p[0],
    "add_settled": lambda p: p[0] * (12 + 2 * (len(p) > 3)),
    "settle_bf16": lambda p: 8 * p[0] if len(p) == 2 else 10 * (p[1] - p[0]),
    "widen_bf16": lambda p: 6 * p[0],
    "column_sums_of": lambda p: p[2] * p[5] * (p[3] * HALF[p[8]] + p[0] * (4 + 4 * p[6])),
    "add_stripes": lambda p: 4 * p[0] * p[1] * (p[3] + 1 + p[4]),
    "words_of_keys": lambda p: 4 * p[0] * p[8],
    "layer_norm_forward": lambda p: 12 * p[0] * p[2],
    "layer_norm_rounded": lambda p: 10 * p[0] * p[2],
    "layer_norm_backward_input": lambda p: p[0] * p[2] * (12 + 4 * p[7]),
    "layer_norm_backward_weight": lambda p: p[2] * p[3] * p[4] * (HALF[p[8]] + HALF[p[9]]),
    "silu": lambda p: 12 * p[0],
    "silu_rounded": lambda p: 10 * p[0],
    "silu_kept_of": lambda p: p[0] * (HALF[p[1]] + left(p[6], p[8]) + 2),
    "multiply_kept_of": lambda p: p[0] * (HALF[p[1]] + 2 + left(p[6], p[8])),
    "drop_parts": lambda p: p[0] * p[7] * dropped(p),
    "drop_rows": lambda p: p[0] * p[3] * dropped(p),
    "softmax_cross_entropy": lambda p: 8 * p[0] * p[2],
    "add_losses": lambda p: 12 * p[0],
    "adamw_of": lambda p: (p[1] - p[0]) * (28 + 4 * p[13] + 2 * p[19]),
    "copy_settled": lambda p: p[0] * p[6] * (8 + 2 * (p[7] is None)),
    "round_block": lambda p: 6 * p[0] * p[5],
    "square_sums": lambda p: 4 * p[0] * p[2],
    "rms_norm_forward": lambda p: 8 * p[0] * p[2],
    "rms_norm_forward_bf16": lambda p: p[0] * p[1] * (4 + 2 * (p[6] is None) + 4 * (p[7] is None)),
    "whole_norm_forward": lambda p: norm_forward(p, 4),
    "whole_norm_forward_half": lambda p: norm_forward(p, 2),
    "whole_layer_norm_forward": lambda p: p[0] * p[1] * (6 + left(p[6], p[8])),
    "whole_layer_norm_forward_half": lambda p: p[0] * p[1] * (4 + left(p[6], p[8])),
    "whole_layer_norm_backward": lambda p: layer_norm_backward(p, 8),
    "whole_layer_norm_backward_kept": lambda p: layer_norm_backward(p, 6),
    "whole_layer_norm_backward_half": lambda p: layer_norm_backward(p, 4),
    "whole_norm_backward": lambda p: norm_backward(p, 8),
    "whole_norm_backward_kept": lambda p: norm_backward(p, 6),
    "whole_norm_backward_half": lambda p: norm_backward(p, 4),
    "add_blocks": lambda p: 8 * p[1] * p[4] * p[5],
    "dots_of": lambda p: p[0] * p[1] * p[2] * (4 + HALF[p[5]]),
    "backward_input_of": lambda p: p[0] * p[1] * (8 + HALF[p[7]] + 4 * p[10] + 2 * (p[13] is None)),
    "backward_weight_of": lambda p: p[2] * p[3] * p[4] * (4 + HALF[p[9]]),
    "sl_gelu_forward_device": lambda p: 8 * (p[1] - p[0]),
    "sl_gelu_backward_device": lambda p: 12 * (p[1] - p[0]),
    "sl_gelu_forward_rounded_device": lambda p: 6 * p[0],
    "sl_gelu_backward_rounded_device": lambda p: 10 * p[0],
    "sl_gelu_forward_stored_device": lambda p: 4 * p[0],
    "sl_gelu_backward_stored_device": lambda p: 6 * p[0],
    "forward_bf16": lambda p: (p[1] - p[0]) * (8 + 4 * p[5]),
    "backward_bf16": lambda p: (p[1] - p[0]) * (8 + 4 * p[4]),
    "lookup_floats": lambda p: p[0] * p[4] * (4 + HALF[p[8]] + 2 * (p[10] is None)),
    "lookup_stored": lambda p: p[0] * p[4] * (2 + HALF[p[8]]),
    "scatter_add": lambda p: 12 * p[2] * p[3],
    "softmax_chunk": lambda p: 8 * p[0] * p[2],
    "softmax_gradient": lambda p: p[0] * p[4] * (8 + HALF[p[10]] + 2 * (p[12] is None)),
    "softmax_dlogits": lambda p: 8 * p[0] * p[2],
    "softmax_losses": lambda p: 20 * p[0],
    "forward": lambda p: 16 * p[2] * p[3] * p[0] * p[6],
    "backward": lambda p: p[2] * p[3] * p[4] * p[5] * (28 + 4 * p[1]),
    **{f"attention_forward_{n}": lambda p: rows_of_heads(p) * p[7] * (HALF[p[15]] + 2 * HALF[p[13]] + written(p[21], p[23])) for n in HEADS},
    **{f"attention_queries_{n}": lambda p: rows_of_heads(p) * p[7] * (3 * HALF[p[13]] + HALF[p[24]] + HALF[p[25]] + written(p[22], p[27])) for n in HEADS},
    **{f"attention_keys_{n}": lambda p: rows_of_heads(p) * p[7] * (3 * HALF[p[13]] + HALF[p[15]] + written(p[16], p[20]) + written(p[17], p[22])) for n in HEADS},
    "add_teams": lambda p: p[0] * p[5] * (4 * p[4] + 4 + 2 * (p[9] is None)),
}
HASH = 300  # of a pair of random words: 75 operations of integers, of which a GPU does a quarter of float32's arithmetic

# Arithmetic that counts beside the bytes: hashes, and attention's. In float32 without tensor cores two products forward, five
# backward; with them two, three for the queries' gradients, and four for those of keys and values, over whole tiles.
FLOPS = {
    "drop_parts": lambda p: HASH * p[0] * p[1],
    "drop_rows": lambda p: HASH * p[0] * p[1],
    "forward": lambda p: 4 * p[6] * p[2] * p[0] * pairs(p[3]),
    "backward": lambda p: 10 * p[5] * p[2] * p[4] * pairs(p[3]),
}
TENSOR_FLOPS = {
    **{f"attention_forward_{n}": lambda p: 4 * p[7] * p[2] * p[6] * tiled_pairs(p[3]) for n in HEADS},
    **{f"attention_queries_{n}": lambda p: 6 * p[7] * p[2] * p[6] * tiled_pairs(p[3]) for n in HEADS},
    **{f"attention_keys_{n}": lambda p: 8 * p[7] * p[2] * p[6] * tiled_pairs(p[3]) for n in HEADS},
}
# Of that, what no kernel can do without: with tensor cores two products forward and five backward, of the pairs that are
# seen. The queries' kernel has three of these, the keys' two.
NEEDED = {
    **{f"attention_{kernel}_{n}": lambda p, products=products: 2 * products * p[7] * p[2] * p[6] * pairs(p[3])
       for n in HEADS for kernel, products in (("forward", 2), ("queries", 3), ("keys", 2))},
}
PARAMETERS = {"forward": 23, "backward": 37}  # other files have functions of these names
ATTENTION = ("forward", "backward", "add_teams", *TENSOR_FLOPS)
OPTIMIZERS = ("adamw_of",)


def number(word):
    """A parameter's; None for a pointer."""
    return int(word, 0) if re.fullmatch("0x[0-9a-f]+|[0-9]+", word) else None


def function_of(name):
    return re.fullmatch(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_(.*)_l[0-9]+", name).group(1)


def price_launch(name, blocks, parameters, gpu):
    """(part of the step, bytes, seconds on the device)"""
    function = function_of(name)
    shortest = 1e-6 * gpu["kernel_us"]
    if function not in BYTES or len(parameters) != PARAMETERS.get(function, len(parameters)):
        return f"unknown {function}", 0, shortest
    share = min(1.0, blocks / gpu["processors"]) * gpu["kernels_reach"]
    moved = BYTES[function](parameters)
    flops = FLOPS[function](parameters) if function in FLOPS else 0
    tensor = TENSOR_FLOPS[function](parameters) if function in TENSOR_FLOPS else 0
    filled = min(1.0, blocks / gpu["processors"]) * gpu["attention_reach"]
    seconds = max(moved / (share * gpu["bandwidth"] * 1e9), flops / (share * gpu["f32"] * 1e12),
                  tensor / (filled * gpu["bf16"] * 1e12), shortest)
    part = "attention" if function in ATTENTION else "optimizer" if function in OPTIMIZERS else "kernels"
    return part, moved, seconds


def least_of(name, parameters, gpu):
    """Seconds that attention's arithmetic takes at least: as products of its type where tensor cores make it."""
    function = function_of(name)
    if len(parameters) != PARAMETERS.get(function, len(parameters)):
        return 0.0
    if function in NEEDED:
        return NEEDED[function](parameters) / (gpu["products_reach"] * gpu["bf16"] * 1e12)
    return FLOPS[function](parameters) / (gpu["kernels_reach"] * gpu["f32"] * 1e12) if function in ("forward", "backward") else 0.0


def price_product(m, n, k, kind, moved, gpu):
    """(flops, seconds)"""
    flops = 2 * m * n * k
    arithmetic = flops / (gpu["products_reach"] * gpu[kind] * 1e12)
    memory = moved / (gpu["kernels_reach"] * gpu["bandwidth"] * 1e9)
    return flops, max(arithmetic, memory, 1e-6 * gpu["kernel_us"])


def price_copy(kinds, moved, gpu):
    if kinds == "device>device":
        return 2 * moved / (gpu["kernels_reach"] * gpu["bandwidth"] * 1e9)
    return moved / (gpu["pcie"] * 1e9)


def totals(lines, gpu, waits):
    """Of an account's LINES, by (part, "count", "bytes", "flops" or "s"). WAITS: the calls that wait."""
    sums = collections.Counter()

    def add(part, **more):
        sums[part, "count"] += 1
        for name, value in more.items():
            sums[part, name] += value

    for _, kind, name, *rest in lines:
        if kind == "launch":
            parameters = [number(word) for word in rest[3:]]
            part, moved, seconds = price_launch(name, int(rest[0]), parameters, gpu)
            add(part, bytes=moved, s=seconds, least=least_of(name, parameters, gpu))
        elif kind == "product":
            m, n, k, moved = int(name), int(rest[0]), int(rest[1]), int(rest[3])
            flops, seconds = price_product(m, n, k, rest[2], moved, gpu)
            add("products", bytes=moved, flops=flops, s=seconds)
        elif kind == "copy":
            add("communication", bytes=int(rest[0]), s=price_copy(name, int(rest[0]), gpu))
        elif kind == "call" and name.startswith("nccl") and rest:
            add("communication", bytes=int(rest[0]), s=int(rest[0]) / (gpu["link"] * 1e9))
        elif kind == "call" and name in waits:
            add("waits", s=1e-6 * gpu["wait_us"])
    return sums


def by_kernel(lines, gpu):
    """The launches and products of an account's LINES, by ((part, kernel), "count", "bytes" or "s"); products by their sizes."""
    sums = collections.Counter()
    for _, kind, name, *rest in lines:
        if kind == "launch":
            part, moved, seconds = price_launch(name, int(rest[0]), [number(word) for word in rest[3:]], gpu)
            key = part.split()[0], function_of(name)
        elif kind == "product":
            m, n, k, moved = int(name), int(rest[0]), int(rest[1]), int(rest[3])
            _, seconds = price_product(m, n, k, rest[2], moved, gpu)
            key = "products", f"{m} x {n} x {k} {rest[2]}"
        else:
            continue
        sums[key, "count"] += 1
        sums[key, "bytes"] += moved
        sums[key, "s"] += seconds
    return sums


PARTS = ("products", "attention", "optimizer", "kernels", "communication")


def predict(sums, gpu, devices=1):
    """The step, in milliseconds, of the totals of one on all DEVICES, which have equal shares of it."""

    def of(part, name):
        return sum(value for (key, field), value in sums.items() if key.split()[0] == part and field == name) / devices

    unknown = sorted({part.split()[1] for part, _ in sums if part.startswith("unknown ")})
    launches = sum(of(part, "count") for part in ("products", "attention", "optimizer", "kernels", "unknown"))
    result = {f"{part}_ms": 1e3 * of(part, "s") for part in PARTS}
    result["kernels_ms"] += 1e3 * of("unknown", "s")
    device = sum(result.values())
    host, waits = 1e-3 * gpu["launch_us"] * launches, 1e3 * of("waits", "s")
    step = max(device, host) + waits
    floor = result["products_ms"] + result["optimizer_ms"]
    bound = floor + 1e3 * of("attention", "least")
    return result | {
        "launches": launches, "gflop": of("products", "flops") / 1e9, "waits_ms": waits, "device_ms": device,
        "kernel_gb": sum(of(part, "bytes") for part in ("attention", "optimizer", "kernels")) / 1e9,
        "product_gb": of("products", "bytes") / 1e9, "host_ms": host, "ms": step, "floor_ms": floor,
        "share_of_floor": floor / step if step else 0.0, "share_of_bound": bound / step if step else 0.0, "unknown": unknown,
    }


# ---- jobs

ALONE = "--mesh data=1,model=1 --schedule plain"
ARTICLE = "--layers 16 --hidden 2048 --expansion 4 --batch 512 --microbatches 8"
BLOCKS = ("train --data text --batch 8 --sequence 1024 --model-dimension 768 --n-heads 12 --blocks 12 "
          "--layers-per-block 1 --precision bf16")
ONE = "--mesh data=1,pipe=1,tensor=1"
JOBS = {
    "article, bf16": ("looping_pipeline", f"{ALONE} {ARTICLE} --precision bf16", 1),
    "article, bf16 stored": ("looping_pipeline", f"{ALONE} {ARTICLE} --precision bf16 --storage bf16", 1),
    "article, tf32": ("looping_pipeline", f"{ALONE} {ARTICLE} --precision tf32", 1),
    "article, bf16, two GPUs": ("looping_pipeline", "--mesh data=2,model=1 --schedule plain --engine nccl "
                                f"{ARTICLE} --precision bf16", 2),
    "transformer, bf16": ("transformer", f"{BLOCKS} {ONE}", 1),
    "transformer, bf16 stored": ("transformer", f"{BLOCKS} {ONE} --storage bf16", 1),
    "transformer, bf16, a microbatch a sequence": ("transformer", f"{BLOCKS} {ONE} --microbatches 8", 1),
    "transformer, bf16 stored, a microbatch a sequence": (
        "transformer", f"{BLOCKS} {ONE} --microbatches 8 --storage bf16", 1),
}


def null_cuda():
    """The module that counts."""
    try:
        import null_cuda as module
    except ImportError as error:  # a build that was brought without its tests' sources
        raise Failure("tests/spmd/device/null_cuda.py is not here") from error
    return module


def count_step(build, program, options, account):
    """What ACCOUNT makes of a step of the driver PROGRAM, on all its devices."""
    build = pathlib.Path(build)
    driver = build / "drivers" / program
    if not (build / "tests/null_cuda").is_dir() or not driver.exists():
        raise Failure(f"{build} has no {program} and tests/null_cuda: cmake --build {build} --target {program} sl_null_cuda", 2)
    counter = null_cuda()
    with tempfile.TemporaryDirectory() as work:
        try:
            return counter.step(str(build), f"{work}/record", str(driver), *options.split(), account=account)
        except (RuntimeError, subprocess.SubprocessError) as error:
            raise Failure(str(error)) from error


def step(build, gpu, program, options, devices=1):
    """A step of the driver PROGRAM, as predicted."""
    sums = count_step(build, program, options, lambda lines: totals(lines, gpu, null_cuda().WAITS))
    return predict(sums, gpu, devices)


def kernels(build, gpu, program, options, devices=1):
    """Rows of the kernels and products of such a step, those that take most of its time first."""
    sums = count_step(build, program, options, lambda lines: by_kernel(lines, gpu))
    rows = [{"part": key[0], "kernel": key[1], "launches": count / devices, "gb": sums.get((key, "bytes"), 0) / devices / 1e9,
             "ms": 1e3 * sums[key, "s"] / devices} for (key, field), count in sums.items() if field == "count"]
    return sorted(rows, key=lambda row: -row["ms"])


def article(build, gpu, model, precision):
    """A step of the article's MODEL, as predicted."""
    sizes = " ".join(f"--{name} {value}" for name, value in model.items())
    return step(build, gpu, "looping_pipeline", f"{ALONE} {sizes} --precision {precision}")


def table(results):
    """Markdown: a row a job, by name."""
    yield "| job | launches | products ms | attention | optimizer | other kernels | copies, NCCL | device | host | waits | step | floor / step | with attention's |"
    yield "| --- |" + " ---: |" * 12
    for name, result in results.items():
        times = [result[f"{part}_ms"] for part in (*PARTS, "device", "host", "waits")]
        cells = [f"{result['launches']:.0f}", *(f"{ms:.2f}" for ms in times), f"{result['ms']:.2f}"]
        yield f"| {name} | {' | '.join(cells)} | {100 * result['share_of_floor']:.0f} % | {100 * result['share_of_bound']:.0f} % |"


def print_kernels(job, rows):
    print(f"{job}\n\n| part | kernel | launches | GB | ms |\n| --- | --- | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {row['part']} | `{row['kernel']}` | {row['launches']:.0f} | {row['gb']:.3f} | {row['ms']:.3f} |")


def print_all(results, gpu):
    print("A GPU of " + ", ".join(f"{name} {value:g}" for name, value in gpu.items()) + "\n")
    print("\n".join(table(results)))
    unknown = sorted({name for result in results.values() for name in result["unknown"]})
    if unknown:
        print(f"\nkernels whose bytes are not known, at {gpu['kernel_us']:g} us each: {', '.join(unknown)}")
