"""level - limits a whole run to a lower level of the CPU's instructions: our programs, oneDNN, and the peers.

The floor is then that level's, because the same processes measure it.
"""

import os

from programs import Failure

LEVELS = {
    "sse": {"kernels": "x86-64-v2", "ours": "2", "onednn": "SSE41", "xla": "SSE4_2", "torch": "default"},
    "avx2": {"kernels": "x86-64-v3", "ours": "3", "onednn": "AVX2", "xla": "AVX2", "torch": "avx2"},
    "avx512": {"kernels": "x86-64-v4", "ours": "4", "onednn": "AVX512_CORE_BF16", "xla": "AVX512", "torch": "avx512"},
    "amx": {"kernels": "x86-64-v4", "ours": "5", "onednn": "AVX512_CORE_AMX", "xla": "AMX", "torch": "avx512"},
}


def force(name):
    """Sets the level of all processes that are started from now on. If NAME is None, nothing changes."""
    if not name:
        return
    level = LEVELS[name]
    os.environ["SHARDLOOP_CPU_LEVEL"] = level["ours"]
    os.environ["ONEDNN_MAX_CPU_ISA"] = os.environ["DNNL_MAX_CPU_ISA"] = level["onednn"]
    os.environ["ATEN_CPU_CAPABILITY"] = level["torch"]
    os.environ["MKL_ENABLE_INSTRUCTIONS"] = {"sse": "SSE4_2", "amx": "AVX512_E4"}.get(name, name.upper())


def of_peer(name, environment):
    """Returns the prefix of a peer's command in ENVIRONMENT. An old JAX stops at an option that it does not know."""
    if not name or not environment.startswith("jax"):
        return []
    if environment != "jax":
        raise Failure("it cannot be forced down to other instructions")
    return ["env", f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={LEVELS[name]['xla']}"]


def check_build(name, build):
    """Fails if the programs of BUILD, a path, cannot be limited to a level."""
    program = build / "benchmarks/bench_step"
    if name and program.exists() and b"SHARDLOOP_CPU_LEVEL" not in program.read_bytes():
        raise Failure(f"--level {name}: the build in {build} is too old: it knows no SHARDLOOP_CPU_LEVEL", 2)


def check(name, line, program):
    """Fails if LINE, which PROGRAM printed, names another level: the CPU may lack NAME."""
    found = line.get("kernels") or line.get("level", "")
    if name and found.startswith("x86-64") and found != LEVELS[name]["kernels"]:
        raise Failure(f"--level {name}: {program} has kernels of {found} on this CPU", 2)
