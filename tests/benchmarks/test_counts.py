#!/usr/bin/env python3
"""test_counts.py - counts of executed kernels: the table, counts of launches of other sizes, and the predicted times of launches;
the kernels are invented; prints TAP."""

import json
import pathlib
import struct
import sys
import tempfile

sys.dont_write_bytecode = True

from points import plan, point

from gpu_model import counts, pricing
from gpu_model.figures import H100

PTX = """
.version 8.0
.visible .entry __omp_offloading_2b_1f_add_l30(
	.param .u64 add_0,
	.param .u64 add_1
)
.maxntid 128, 1, 1
{
	.reg .pred 	%p<3>;
	.shared .align 4 .b8 room[4];
	.loc	1 30 0
	ld.param.u64 	%rd1, [add_0];
$L__BB0_1:
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];   // of one thread
	@!%p1 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_1;
$L__BB0_2:
	ret;

}
.func helper()
{
	ret;
}
.entry __omp_offloading_2b_1f_fill_l9()
{
	bar.sync 	0;
	ret;
}
"""


def code(*operations):
    return b"".join(struct.pack("<QQ", operation, 0) for operation in operations)


def name_of(function, line=30):
    return f"__omp_offloading_2b_1f_{function}_l{line}"


def launch(function, blocks, parameters, line=30, **counted):
    """Returns a launch in the form that the runtime writes: the first parameter is the launch environment."""
    kinds = {kind: counted.pop(kind) for kind in list(counted) if kind in counts.KINDS}
    told = dict.fromkeys(counts.COUNTS, 0) | counted
    return json.dumps({"kernel": name_of(function, line), "blocks": blocks, "threads": 128, "instructions": kinds, **told,
                       "parameters": ["9+0", *parameters]})


def add(elements, scale=1):
    """Returns a launch that adds ELEMENTS elements, 12 bytes each; a warp has 128 of them."""
    warps = elements // 128
    return launch("add", elements // 512, (hex(elements), "1+0", "2+0"), memory=3 * warps * scale, float=4 * warps,
                  load_sectors=32 * warps, load_requests=2 * warps, store_sectors=16 * warps, store_requests=warps)


def heads(queries):
    return ("0x2", "0x1", "0x1", hex(queries), "0", hex(queries), "0x1", "0x40", *["0"] * 20)


def static():
    point(counts.statements(PTX) == {name_of("add"): 5, name_of("fill", 9): 2}, "instructions of PTX are those of each kernel alone")
    point(counts.instructions(code(0x981, 0x95D, 0x94D, 0x947, 0x918, 0x918)) == 3, "of machine code those before its end")
    point(counts.instructions(code(0x981, 0x918, 0x947, 0x94D)) == 4, "and all of them where it ends otherwise")


OTHER = name_of("add").replace("_1f_", "_2e_")  # the same region in another image, whose name tells another number of its file
LENGTHS = {name_of("add"): (10, 15), OTHER: (10, 15), name_of("add", 40): (30, 45), name_of("attention_forward_64"): (100, 90), name_of("merge"): (5, 5)}


def made(run, *lines):
    return {row.kernel: row for row in counts.rows_of("job", run, lines, LENGTHS)}


def table():
    rows = made("small", add(1024), add(2048), launch("add", 1, ("0x80", "1+0", "2+0"), 40, float=7))
    row = rows["add"]
    point((row.launches, row.blocks, row.work) == (3, 7, 12 * (1024 + 2048 + 128)), "launches, blocks and bytes of a kernel are added up")
    point((row.memory, row.float, row.load_sectors, row.store_requests) == (72, 103, 768, 24), "and what they did")
    point((row.ptx, row.machine) == (40, 60) and row.slots() == (72 + 103) * 1.5, "its regions' instructions are, too, and say what one of PTX takes")
    twice = made("small", add(1024), json.dumps(json.loads(add(1024)) | {"kernel": OTHER}))["add"]
    point((twice.launches, twice.ptx, twice.machine) == (2, 10, 15), "a region of a header is counted once, whichever numbers its file has")
    line = json.loads(add(1024)) | {"parameters": [2**47, 1024, 2**46, 2**46 + 4096]}
    point(made("small", json.dumps(line))["add"].work == 12 * 1024, "parameters may be numbers, and addresses larger ones")
    rows |= made("small", launch("attention_forward_64", 2, heads(128), mma=3), launch("merge", 6, ("0x1",)))
    point(rows["attention_forward_64"].work == 4 * 64 * 3 * 64 * 64, "attention's work are its products of whole tiles")
    point(rows["merge"].work == 6, "and of a kernel without a formula its blocks")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "counts.csv"
        counts.write([*made("large", add(4096)).values(), *rows.values()], path)
        read = counts.read(path)
        point(read["job"]["add"]["small"] == row and set(read["job"]["add"]) == {"small", "large"} and set(read["job"]) == set(rows),
              "the table is read as it was written")
        text = path.read_text()
        counts.write([*rows.values(), *made("large", add(4096)).values()], path)
        point(text == path.read_text() and text.count("\n") == 5, "a line a row, in an order of their own")


def growth():
    kernels = {"add": {"small": made("small", add(4096))["add"], "large": made("large", add(8192))["add"]}}
    point(set(counts.differences(kernels["add"]).values()) == {0.0}, "what each element costs is the same in both runs")
    kernels["add"]["large"] = made("large", add(8192, 2))["add"]
    point(counts.differences(kernels["add"])["memory"] == -0.5, "a count that grows otherwise is told by how much")
    point("memory" not in counts.differences(kernels["add"], 1000), "unless it is small")
    grown = counts.launch_of(kernels, "add", 100, [81920, None, None])
    point(grown.sectors == 48 * 640 and grown.slots == (6 + 4) * 640 * 1.5, "a launch has the larger run's counts by its work")
    point(counts.launch_of(kernels, "fill", 1, [1]) is None, "a kernel that the table has not has none")


# Round numbers: a TFLOP/s, a GB/s, ten processors at a megahertz.
GPU = dict.fromkeys(H100, 1.0) | {"bf16": 4.0, "processors": 10.0, "kernel_us": 1e-9, "cache": 2.0}


def priced(kernels, function="add", blocks=10, parameters=(0x100000, None, None), **more):
    return pricing.price_launch(name_of(function), blocks, list(parameters), GPU | more, kernels)[1:]


def close(left, right):
    return abs(left - right) <= 1e-9 * abs(right)


def times():
    """Tests the time of a kernel with one kind of work after another the slowest: a million elements, 8192 warps."""
    kernels = {"add": {"large": made("large", add(8192))["add"]}}
    moved, seconds, longest = priced(kernels, clock=1e6)
    point(moved == 12 << 20 and close(seconds, 12e-9 * 2**20) and longest == "bytes", "a kernel takes as long as its bytes")
    _, seconds, longest = priced(kernels, clock=1e6, bandwidth=100.0)
    point(close(seconds, 48 * 8192 * 32 / 2e9) and longest == "cache", "or its sectors, as the cache gives them")
    fast = {"bandwidth": 100.0, "cache": 100.0}
    _, seconds, longest = priced(kernels, **fast)
    slots = 7 * 8192 * 1.5
    point(close(seconds, slots / (4 * 10 * 1e6)) and longest == "issue", "or the slots in which its instructions are issued")
    point(close(priced(kernels, blocks=5, **fast)[1], 2 * seconds), "of which half of the processors have half")
    point(close(priced(kernels, issue_reach=0.5, **fast)[1], 2 * seconds), "and those that it reaches")
    line = launch("attention_forward_64", 10, heads(128), mma=1000, bank_conflicts=30, float=10)
    kernels = {"attention_forward_64": {"large": made("large", line)["attention_forward_64"]}}
    attention = "attention_forward_64", 10, [counts.number(word) for word in heads(128)]
    _, seconds, longest = priced(kernels, *attention, clock=1e6, bandwidth=1e6)
    point(close(seconds, 1000 * 4096 / 4e12) and longest == "products", "or its products on tensor cores")
    line = launch("attention_forward_64", 10, heads(128), mma=1, bank_conflicts=30000)
    kernels = {"attention_forward_64": {"large": made("large", line)["attention_forward_64"]}}
    _, seconds, longest = priced(kernels, *attention, bandwidth=1e6)
    point(close(seconds, 30000 / (10 * 1e6)) and longest == "shared", "or its passes over shared memory")
    _, seconds, longest = priced(kernels, kernel_us=1e9)
    point(close(seconds, 1e3) and longest == "launch", "and never less than the shortest kernel")
    known, guessed = (priced(kernels, *attention, bandwidth=1e6, attention_reach=share)[1] for share in (1.0, 0.01))
    point(known == guessed and priced({}, *attention, bandwidth=1e6, attention_reach=0.01)[2] == "products",
          "what is counted is not guessed any more")


static()
table()
growth()
times()
plan()
