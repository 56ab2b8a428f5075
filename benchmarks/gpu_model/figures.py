"""figures - rates of GPUs from NVIDIA's data sheets, and assumptions about them."""

import re

from programs import Failure

# An H100 SXM. Of NVIDIA's data sheet: dense products in TFLOP/s, float32 outside of tensor cores, memory, PCIe and NVLink
# in one direction, all in GB/s; the clock in MHz, at which each of its processors makes the 4096 operations in a cycle that
# are 989.4 TFLOP/s. The others are assumed: shares of these that products, attention's products in registers and kernels
# reach, and the times of a launch (host), of the shortest kernel (device) and of a wait. For counted kernels also: the rate
# of the shared cache, in GB/s, and the shares of products and of slots that mma.sync and kernels reach.
H100 = {
    "bf16": 989.4, "tf32": 494.7, "f32": 66.9, "bandwidth": 3350.0, "pcie": 64.0, "link": 450.0, "processors": 132.0, "clock": 1830.0,
    "products_reach": 0.75, "attention_reach": 0.2, "kernels_reach": 0.9, "launch_us": 2.5, "kernel_us": 2.0, "wait_us": 10.0,
    "cache": 5500.0, "mma_reach": 0.6, "issue_reach": 0.6,
}
SHARES = ("products_reach", "attention_reach", "kernels_reach", "mma_reach", "issue_reach")
# Other GPUs, from their data sheets, with the same assumptions.
H200 = H100 | {"bandwidth": 4800.0}
A100 = H100 | {"bf16": 312.0, "tf32": 156.0, "f32": 19.5, "bandwidth": 2039.0, "pcie": 32.0, "link": 300.0, "processors": 108.0, "clock": 1410.0,
               "cache": 4000.0, "mma_reach": 0.9}
GPUS = {"H100": H100, "H200": H200, "A100": A100}
NAMES = {r"H100 (80GB HBM3|SXM)": "H100", r"H200$": "H200", r"A100-SXM4-80GB": "A100"}  # as the driver calls them


def figures_of(name, text):
    """Returns the figures that predict the GPU NAME, and the name of the figures: those in TEXT; without TEXT the GPU's own, or
    an H100's."""
    if text:
        return read_gpu(text, "--gpu"), text
    own = next((figures for pattern, figures in NAMES.items() if re.search(pattern, name)), None)
    return GPUS[own or "H100"], own or f"H100, as there are no figures for {name or 'this GPU'}: --gpu FIGURES gives some"


def read_gpu(text, option="--predict"):
    """Returns an H100's figures, some of them replaced by TEXT: "H100,bandwidth=4800"."""
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
