"""null_cuda.py BUILD - counts a training's calls on a GPU that computes nothing; prints TAP.

    null_cuda.py --table BUILD PROGRAM ARGUMENT...    a step's launches, waits, copies and so on, as a table
"""
import collections
import functools
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

MOST_WAITS = 4  # of a step, collectives aside
TEXT_FILE = "text"  # is replaced by a file of text that is long enough for any job
JOURNAL = "journal"  # and this by a folder
ADVISERS = ("looping_pipeline", "transformer")  # drivers that have --no-advice
MOST_FLOPS = 1e21  # a second, that a peak can be (drivers/speed/peak.c)
MOST_MOVES = 2000  # copies and regions of the collectives of a step of the transformer, cut over two coordinates
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2")
ALLOCATES = ("cudaMalloc", "cudaMallocHost", "cudaMallocManaged", "cudaFree", "cudaFreeHost", "cuMemAlloc_v2",
             "cuMemFree_v2")
LOADS = ("cuModuleLoadData", "cuModuleGetFunction", "cuModuleGetGlobal_v2")


def run(build, record, program, *arguments):
    """Returns the lines of a run's account, each as a list of words. With engine nccl each of 8 coordinates has a GPU, with
    engine local all share one."""
    devices = "8" if "nccl" in arguments else "1"
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "tests/null_cuda"), FAKE_CUDA_IDLE="1",
                       FAKE_CUDA_DEVICES=devices, FAKE_CUDA_RECORD=record, OMP_TARGET_OFFLOAD="MANDATORY",
                       XDG_CACHE_HOME=os.path.dirname(record))
    open(record, "w", encoding="ascii").close()
    text, journal = (os.path.join(os.path.dirname(record), name) for name in (TEXT_FILE, JOURNAL))
    if TEXT_FILE in arguments and not os.path.exists(text):
        with open(text, "w", encoding="ascii") as file:
            file.writelines(f"{number} bottles of beer on the wall\n" for number in range(2000))
    arguments = [{TEXT_FILE: text, JOURNAL: journal}.get(argument, argument) for argument in arguments]
    result = subprocess.run([program, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=250)
    with open(record, encoding="ascii") as file:
        return result, [line.split() for line in file]


def account(lines):
    """Returns the numbers of calls by kind."""
    counts = collections.Counter()
    for _, kind, name, *rest in lines:
        if kind in ("launch", "product", "take"):
            counts[kind] += 1
            if kind == "launch" and re.search("_(reduce_few|reduce_many|reduce_floats|reduce_integers|sl_collect_on_device)_", name):
                counts["launch for a collective"] += 1
        elif kind == "copy":
            counts[f"copy {name}"] += 1
            counts[f"bytes {name}"] += int(rest[0])
        elif name in WAITS:
            counts["wait"] += 1
        elif name in ALLOCATES:
            counts["allocate"] += 1
        elif name in LOADS:
            counts["load"] += 1
        elif name.startswith("nccl"):
            counts["nccl"] += 1
    return counts


def settle_peaks(folder):
    """Sets the measured times of products to fixed values: on a GPU that computes nothing they are random, and a step that seemed
    too long would be measured again."""
    path = os.path.join(folder, "shardloop/peaks.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        kept = json.load(file)
    for peak in kept["peaks"]:
        peak["flops_per_second"] = MOST_FLOPS
    with open(path, "w", encoding="utf-8") as file:
        json.dump(kept, file)


@functools.cache
def step(build, record, program, *arguments, steps="--steps", account=account):
    """Returns the calls of one step, by ACCOUNT: half of the difference between four steps and two. Slow steps, as on a busy
    machine, do not start a search for other layouts, whose measurements would be counted."""
    if os.path.basename(program) in ADVISERS:
        arguments = (*arguments, "--no-advice")
    run(build, record, program, *arguments, steps, "1")  # measures the machine once, and saves the results
    settle_peaks(os.path.dirname(record))
    few, few_lines = run(build, record, program, *arguments, steps, "2")
    more, more_lines = run(build, record, program, *arguments, steps, "4")
    failed = few if few.returncode else more
    if failed.returncode:
        raise RuntimeError(f"{os.path.basename(program)} exits with {failed.returncode}: {failed.stderr.strip()}")
    counts = account(more_lines)
    counts.subtract(account(few_lines))
    return {name: count / 2 for name, count in counts.items() if count}


def older_images(program, copy):
    """Returns a copy of the program whose images have CUDA 12's mark in the ELF header; the LLVM of this clang reads no other."""
    with open(program, "rb") as file:
        data = bytearray(file.read())
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        (machine,), (flags,) = struct.unpack_from("<H", data, at + 18), struct.unpack_from("<I", data, at + 48)
        if machine == 190 and data[at + 8] >= 8:
            data[at + 8] = 7
            architecture = flags >> 8 & 0xFF
            struct.pack_into("<I", data, at + 48, architecture << 16 | 0x500 | architecture)
        at = data.find(b"\x7fELF", at + 1)
    with open(copy, "wb") as file:
        file.write(data)
    os.chmod(copy, 0o755)


class Points:
    def __init__(self):
        self.count = 0

    def point(self, passed, name, *why):
        self.count += 1
        print(f"{'' if passed else 'not '}ok {self.count} - {name}")
        for line in why if not passed else ():
            print(f"# {line}")


ALONE = ("--mesh", "data=1,model=1", "--schedule", "plain")
EIGHT = ("--mesh", "data=2,model=4", "--engine", "nccl", "--rng", "global")
HERE = ("--mesh", "data=2,model=4", "--engine", "local")
CUT = ("train", "--mesh", "data=1,pipe=1,tensor=2", "--engine", "local", "--data", "README.md")
NARROW = ("train", "--data", TEXT_FILE, "--batch", "16", "--sequence", "32", "--model-dimension", "64", "--n-heads", "4",
          "--blocks", "2", "--layers-per-block", "2")
TEXT = ("train", "--mesh", "data=1,pipe=1,tensor=1", "--data", "README.md", "--batch", "4", "--sequence", "32",
        "--model-dimension", "64", "--n-heads", "2", "--blocks", "1", "--layers-per-block", "2")
# Jobs of a size for GPUs, and the largest number of regions and products together in a step.
ARTICLE = (*ALONE, "--layers", "16", "--hidden", "2048", "--expansion", "4", "--batch", "512", "--microbatches", "8")
BLOCKS = ("train", "--mesh", "data=1,pipe=1,tensor=1", "--data", TEXT_FILE, "--batch", "8", "--sequence", "1024",
          "--model-dimension", "768", "--n-heads", "12", "--blocks", "12", "--layers-per-block", "1", "--precision", "bf16")
LAUNCHES = (
    (275, "looping_pipeline", *ARTICLE, "--precision", "bf16"),
    (258, "looping_pipeline", *ARTICLE, "--precision", "bf16", "--storage", "bf16"),
    (258, "looping_pipeline", *ARTICLE, "--precision", "tf32"),
    (350, "transformer", *BLOCKS),
    (350, "transformer", *BLOCKS, "--storage", "bf16"),
    (425, "transformer", *BLOCKS, "--schedule", "gpipe", "--microbatches", "8", "--wgrad-group", "8"),
)
JOBS = (
    ("looping_pipeline", *ALONE),
    ("looping_pipeline", *ALONE, "--precision", "bf16", "--clip", "1"),
    ("looping_pipeline", *ALONE, "--exact", "data=1", "--clip", "1"),
    ("looping_pipeline", *ALONE, "--optimizer", "sgd", "--accumulate", "2", "--recompute", "full"),
    ("looping_pipeline", *ALONE, "--accumulate", "8", "--rng", "global"),
    ("looping_pipeline", *ALONE, "--offload", "optimizer"),
    ("looping_pipeline", "--mesh", "data=1,model=1", "--loops", "4", "--rng", "global", "--offload", "activations,weights"),
    ("looping_pipeline", *EIGHT),
    ("looping_pipeline", *HERE),
    ("looping_pipeline", *HERE, "--journal", JOURNAL),
    ("looping_pipeline", "--mesh", "data=8"),
    ("loss_equality", "--mesh", "data=1,model=1"),
    ("transformer", *TEXT),
    ("transformer", *TEXT, "--precision", "bf16", "--clip", "1"),
    ("transformer", *TEXT, "--offload", "optimizer,activations"),
    ("transformer", *CUT),
    ("transformer", *NARROW, "--mesh", "data=2,pipe=2,tensor=2", "--engine", "nccl"),
    ("transformer", *NARROW, "--mesh", "data=2,pipe=2,tensor=2", "--engine", "local"),
    ("transformer", *NARROW, "--mesh", "data=2,pipe=2,tensor=2", "--engine", "local", "--journal", JOURNAL),
    ("transformer", *NARROW, "--mesh", "data=8"),
    ("transformer", *NARROW, "--mesh", "tensor=8", "--n-heads", "8"),
    ("transformer", *NARROW, "--mesh", "data=2,tensor=2", "--exact", "data=2,tensor=2", "--clip", "1"),
    ("transformer", *NARROW, "--mesh", "data=8", "--engine", "nccl", "--fsdp"),
    ("transformer", *NARROW, "--mesh", "data=4", "--engine", "local", "--fsdp"),
    ("transformer", *NARROW, "--mesh", "data=8", "--engine", "nccl", "--fsdp", "--journal", JOURNAL),
    ("transformer", *NARROW, "--mesh", "data=8", "--engine", "nccl", "--experts", "8"),
    ("transformer", *NARROW, "--mesh", "data=4", "--engine", "local", "--experts", "8"),
)
# Jobs of one coordinate: a step with a journal waits as often as a step without.
JOURNALS = (
    ("looping_pipeline", *ALONE),
    ("looping_pipeline", *ALONE, "--optimizer", "sgd", "--accumulate", "2"),
    ("looping_pipeline", *ALONE, "--storage", "bf16", "--clip", "1"),
    ("looping_pipeline", "--mesh", "data=1,model=1", "--loops", "4", "--rng", "global", "--offload", "activations,weights"),
    ("transformer", *TEXT),
    ("transformer", *TEXT, "--precision", "bf16", "--exact", "data=1", "--clip", "1"),
)
# Examples, whose steps are microbatches or epochs: work done once is the same in runs of any length.
# Programs without an option for steps: (steps, program, arguments). Their little work done once is counted, too.
IMAGES = "/usr/share/datasets/fashion-mnist"
EXAMPLES = (
    (300, "regression"),
    (300, "custom_module"),
    (300, "custom_optimizer"),
    (60000 // 128, "convolution", "data=1,pipe=1,rows=1", "1"),
)
OTHERS = (("gpipe", "--microbatches"), ("gpipe", "--microbatches", "--engine", "nccl"))


def without_sizes(arguments):
    return " ".join(a for a in arguments if a not in TEXT + ALONE + EIGHT[4:] + CUT[5:])


def launches(lines):
    """Returns the launches with their parameters, without grids and the runtime's own memory."""
    return [(name, *parameters) for _, kind, name, *rest in lines if kind == "launch" for parameters in [rest[2:]]]


# Jobs that compare launches by LLVM's runtime with ours; attention on tensor cores, and without.
COMPARED = (
    ("looping_pipeline", *ALONE),
    ("looping_pipeline", *ALONE, "--precision", "bf16", "--clip", "1"),
    ("looping_pipeline", *ALONE, "--optimizer", "sgd", "--dropout", "0"),
    ("transformer", *TEXT),
    ("transformer", *TEXT, "--precision", "bf16", "--dropout", "0.1"),
    ("transformer", *TEXT, "--precision", "bf16", "--journal", JOURNAL),
)


def compare_runtimes(points, build, work):
    """LLVM's runtime and ours launch the same kernels with the same parameters in the same order."""
    record, stock = os.path.join(work, "record"), os.path.join(work, "stock")
    for driver, *arguments in COMPARED:
        older_images(os.path.join(build, "tests", f"{driver}_libomptarget"), stock)
        ours, mine = run(build, record, os.path.join(build, "drivers", driver), *arguments, "--steps", "2")
        llvm, its = run(build, record, stock, *arguments, "--steps", "2")
        one, other = launches(mine), launches(its)
        differ = next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
        points.point(ours.returncode == llvm.returncode == 0 and len(one) > 100 and one == other,
                     f"{len(one)} launches are those of LLVM's runtime: {driver} {without_sizes(arguments)}".rstrip(),
                     f"{len(one)} and {len(other)}, exit status {ours.returncode} and {llvm.returncode}",
                     f"number {differ}: {one[differ:differ + 1]}", f"but {other[differ:differ + 1]}", llvm.stderr[-300:])


def coordinates(arguments):
    mesh = next((mesh for option, mesh in zip(arguments, arguments[1:]) if option == "--mesh"), "")
    return math.prod(int(size) for size in re.findall("=([0-9]+)", mesh))


def bound_launches(points, build, work):
    for most, driver, *arguments in LAUNCHES:
        counts = step(build, os.path.join(work, "record"), os.path.join(build, "drivers", driver), *arguments)
        launches = counts["launch"] + counts["product"]
        name = f"{driver} {' '.join(a for a in arguments if a not in ARTICLE + BLOCKS[:-1])}"
        points.point(launches <= most, f"{launches:g} launches in a step, at most {most}: {name}", counts)


def bound_others(points, build, work):
    for driver, steps, *arguments in OTHERS:
        counts = step(build, os.path.join(work, "record"), os.path.join(build, "drivers", driver), *arguments, steps=steps)
        points.point(not counts.get("wait") and not counts.get("allocate"),
                     f"{counts['launch']:g} launches and no wait for a microbatch: {driver} {' '.join(arguments)}", counts)


def bound_examples(points, build, work):
    """Counts of the whole run. In its middle, without beginning and end, nothing is allocated and nothing comes from the host."""
    for steps, program, *arguments in EXAMPLES:
        result, lines = run(build, os.path.join(work, "record"), os.path.join(build, "drivers", program), *arguments)
        if arguments and not os.path.isdir(IMAGES):
            continue
        trainers = len({line[0] for line in lines if line[1] == "product"})  # streams, one a coordinate
        waits = account(lines).get("wait", 0) / steps / max(1, trainers)
        middle = account(lines[len(lines) // 4:len(lines) * 3 // 4])
        points.point(result.returncode == 0 and 0 < waits < MOST_WAITS + 0.5 and not middle.get("allocate") and
                     not middle.get("load") and not middle.get("copy host>device"),
                     f"{trainers} coordinates wait {waits:.1f} times in a step, and allocate nothing: {program}",
                     middle, result.stderr[-300:])


def bound_steps(points, build, work):
    record = os.path.join(work, "record")
    for driver, *arguments in JOBS:
        name = f"{driver} {without_sizes(arguments)}".strip()
        counts = step(build, record, os.path.join(build, "drivers", driver), *arguments)
        waits = counts.get("wait", 0) / coordinates(arguments)
        points.point(waits <= MOST_WAITS, f"a coordinate waits {waits:g} times in a step: {name}", counts)
        points.point(not counts.get("allocate") and not counts.get("load"), f"it allocates and loads nothing: {name}", counts)
        points.point(not counts.get("copy host>device"), f"no region takes from the host's memory: {name}", counts)
        if driver == "transformer" and CUT[2] in arguments:
            moves = counts["launch for a collective"] + counts["copy device>device"]
            points.point(0 < moves <= MOST_MOVES, f"{moves:g} copies and regions for its collectives: {name}", counts)


def bound_journals(points, build, work):
    """A step's hashes are made on the device. They reach the host together, with values that it waits for anyway."""
    record = os.path.join(work, "record")
    for driver, *arguments in JOURNALS:
        program = os.path.join(build, "drivers", driver)
        plain = step(build, record, program, *arguments)
        journal = step(build, record, program, *arguments, "--journal", JOURNAL)
        more = {name: journal.get(name, 0) - plain.get(name, 0) for name in journal}
        points.point(not more.get("wait") and more["copy device>pinned"] == 1 and more["launch"] > 10 and not more.get("copy device>host"),
                     f"{plain['wait']:g} waits in a step, and {journal['wait']:g} with a journal, for {more['launch']:g} regions: "
                     f"{driver} {without_sizes(arguments)}".rstrip(), more)
        points.point(not journal.get("allocate") and not journal.get("load") and not journal.get("copy host>device"),
                     f"it allocates and loads nothing: {driver} {without_sizes(arguments)}".rstrip(), journal)


def main():
    if sys.argv[1] == "--table":
        build, program, *arguments = sys.argv[2:]
        with tempfile.TemporaryDirectory() as work:
            for name, count in sorted(step(build, os.path.join(work, "record"), program, *arguments).items()):
                print(f"{count:16,.0f}  {name}")
        return
    build = sys.argv[1]
    points = Points()
    with tempfile.TemporaryDirectory() as work:
        driver = os.path.join(build, "drivers/looping_pipeline")
        result, lines = run(build, os.path.join(work, "record"), driver, "--help")
        points.point(result.returncode == 0 and not lines, "--help asks nothing of a GPU", lines[:3])
        compare_runtimes(points, build, work)
        bound_steps(points, build, work)
        bound_journals(points, build, work)
        bound_examples(points, build, work)
        bound_launches(points, build, work)
        bound_others(points, build, work)
    print(f"1..{points.count}")


if __name__ == "__main__":
    main()
