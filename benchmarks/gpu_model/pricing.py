"""pricing - computes the time of an account's lines on a GPU of given figures, and of the whole step."""

import collections

from gpu_model.counts import SECTOR, launch_of
from gpu_model.formulas import ATTENTION, BYTES, FLOPS, NEEDED, OPTIMIZERS, PARAMETERS, TENSOR_FLOPS, function_of, number

NONE = {}  # nothing is counted
SCHEDULERS = 4  # of a processor; each issues an instruction in a cycle
PRODUCT = 2 * 16 * 8 * 16  # operations of an instruction of tensor cores


def bounds_of(function, blocks, parameters, gpu, kernels):
    """Returns the seconds that each kind of work of a launch takes by itself. KERNELS: the counts of some kernels."""
    filled = min(1.0, blocks / gpu["processors"])
    share = filled * gpu["kernels_reach"]
    bounds = {"bytes": BYTES[function](parameters) / (share * gpu["bandwidth"] * 1e9)}
    counted = launch_of(kernels, function, blocks, parameters)
    if not counted:
        flops, products = (table[function](parameters) if function in table else 0 for table in (FLOPS, TENSOR_FLOPS))
        return bounds | {"arithmetic": flops / (share * gpu["f32"] * 1e12), "products": products / (filled * gpu["attention_reach"] * gpu["bf16"] * 1e12)}
    cycles = filled * gpu["processors"] * gpu["clock"] * 1e6  # a second, of all processors that have blocks
    return bounds | {
        "cache": counted.sectors * SECTOR / (filled * gpu["cache"] * 1e9),
        "issue": counted.slots / (gpu["issue_reach"] * SCHEDULERS * cycles),
        "products": counted.products * PRODUCT / (filled * gpu["mma_reach"] * gpu["bf16"] * 1e12),
        "shared": counted.passes / cycles,
    }


def price_launch(name, blocks, parameters, gpu, kernels=NONE):
    """Returns (part of the step, bytes, seconds on the device, the slowest kind of work)."""
    function = function_of(name)
    shortest = 1e-6 * gpu["kernel_us"]
    if function not in BYTES or len(parameters) != PARAMETERS.get(function, len(parameters)):
        return f"unknown {function}", 0, shortest, "launch"
    bounds = bounds_of(function, blocks, parameters, gpu, kernels) | {"launch": shortest}
    part = "attention" if function in ATTENTION else "optimizer" if function in OPTIMIZERS else "kernels"
    longest = max(bounds, key=bounds.get)
    return part, BYTES[function](parameters), bounds[longest], longest


def least_of(name, parameters, gpu):
    """Returns the least seconds of attention's arithmetic; on tensor cores, of products of its type."""
    function = function_of(name)
    if len(parameters) != PARAMETERS.get(function, len(parameters)):
        return 0.0
    if function in NEEDED:
        return NEEDED[function](parameters) / (gpu["products_reach"] * gpu["bf16"] * 1e12)
    return FLOPS[function](parameters) / (gpu["kernels_reach"] * gpu["f32"] * 1e12) if function in ("forward", "backward") else 0.0


def price_product(m, n, k, kind, moved, gpu):
    """Returns (flops, seconds, the slowest kind of work)."""
    flops = 2 * m * n * k
    bounds = {
        "products": flops / (gpu["products_reach"] * gpu[kind] * 1e12),
        "bytes": moved / (gpu["kernels_reach"] * gpu["bandwidth"] * 1e9),
        "launch": 1e-6 * gpu["kernel_us"],
    }
    longest = max(bounds, key=bounds.get)
    return flops, bounds[longest], longest


def price_copy(kinds, moved, gpu):
    if kinds == "device>device":
        return 2 * moved / (gpu["kernels_reach"] * gpu["bandwidth"] * 1e9)
    return moved / (gpu["pcie"] * 1e9)


def totals(lines, gpu, waits, kernels=NONE):
    """Returns sums over an account's LINES by (part, unit); the unit is "count", "bytes", "flops" or "s". WAITS: the calls that
    wait. KERNELS: counts of some kernels."""
    sums = collections.Counter()

    def add(part, **more):
        sums[part, "count"] += 1
        for name, value in more.items():
            sums[part, name] += value

    for _, kind, name, *rest in lines:
        if kind == "launch":
            parameters = [number(word) for word in rest[3:]]
            part, moved, seconds, _ = price_launch(name, int(rest[0]), parameters, gpu, kernels)
            add(part, bytes=moved, s=seconds, least=least_of(name, parameters, gpu))
        elif kind == "product":
            m, n, k, moved = int(name), int(rest[0]), int(rest[1]), int(rest[3])
            flops, seconds, _ = price_product(m, n, k, rest[2], moved, gpu)
            add("products", bytes=moved, flops=flops, s=seconds)
        elif kind == "copy":
            add("communication", bytes=int(rest[0]), s=price_copy(name, int(rest[0]), gpu))
        elif kind == "call" and name.startswith("nccl") and rest:
            add("communication", bytes=int(rest[0]), s=int(rest[0]) / (gpu["link"] * 1e9))
        elif kind == "call" and name in waits:
            add("waits", s=1e-6 * gpu["wait_us"])
    return sums


def by_kernel(lines, gpu, kernels=NONE):
    """Returns sums over the launches and products of an account's LINES by ((part, kernel, limit), unit); the unit is "count",
    "bytes" or "s". The limit is the slowest kind of work; a product is named by its sizes."""
    sums = collections.Counter()
    for _, kind, name, *rest in lines:
        if kind == "launch":
            part, moved, seconds, longest = price_launch(name, int(rest[0]), [number(word) for word in rest[3:]], gpu, kernels)
            key = part.split()[0], function_of(name), longest
        elif kind == "product":
            m, n, k, moved = int(name), int(rest[0]), int(rest[1]), int(rest[3])
            _, seconds, longest = price_product(m, n, k, rest[2], moved, gpu)
            key = "products", f"{m} x {n} x {k} {rest[2]}", longest
        else:
            continue
        sums[key, "count"] += 1
        sums[key, "bytes"] += moved
        sums[key, "s"] += seconds
    return sums


PARTS = ("products", "attention", "optimizer", "kernels", "communication")


def predict(sums, gpu, devices=1):
    """Returns a step's times in milliseconds. SUMS: its totals over all DEVICES, which have equal shares."""

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
