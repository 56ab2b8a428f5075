#!/usr/bin/env python3
"""test_counting.py - the table of counts is made again by runs of programs; here a script is the program, and its image is made
by hand; prints TAP."""

import json
import os
import pathlib
import struct
import sys
import tempfile

sys.dont_write_bytecode = True

from points import plan, point

from gpu_model import counting, counts
from programs import Failure

JOB, KERNEL = "GPT-2 124M, bf16", "__omp_offloading_2b_1f_add_l30"
SYMBOLS, STRINGS, CODE = 2, 3, 1


def image():
    """Returns an ELF file for GPUs with one kernel of three instructions and the padding behind them."""
    code = b"".join(struct.pack("<QQ", operation, 0) for operation in (0x981, 0x221, 0x94D, 0x947, 0x918))
    names = b"\0.strings\0.text." + KERNEL.encode() + b"\0.symbols\0"
    sections = ((b"", 0, b"", 0), (b".strings", STRINGS, names, 0), (b".text." + KERNEL.encode(), CODE, code, 0),
                (b".symbols", SYMBOLS, bytes(24), 1))
    data, headers = bytes(64), b""
    for name, kind, contents, link in sections:
        headers += struct.pack("<IIQQQQIIQQ", names.index(name + b"\0"), kind, 0, 0, len(data), len(contents), link, 0, 1, 24)
        data += contents
    header = bytearray(data[:64])
    header[:4] = b"\x7fELF"
    struct.pack_into("<H", header, 18, 190)
    struct.pack_into("<Q", header, 40, len(data))
    struct.pack_into("<HH", header, 60, len(sections), 1)
    return bytes(header) + data[64:] + headers


def launch(sequences):
    """Returns the line of a launch that adds up the elements of SEQUENCES sequences."""
    elements = 1024 * sequences
    return json.dumps({"kernel": KERNEL, "blocks": sequences, "threads": 128, "instructions": {"float": elements, "memory": 300 * elements},
                       **dict.fromkeys(counts.COUNTS, elements), "parameters": ["9+0", hex(elements), "1+0", "2+0"]})


# The program: a script with an image behind it. By its --batch it chooses the line that it writes.
SCRIPT = """#!/bin/sh
case " $* " in *" --batch 6 --accumulate 2 "*) sequences=3 ;; *" --batch 8 --accumulate 2 "*) sequences=4 ;; *) echo "no such batch" >&2; exit 2 ;; esac
[ "$FAKE_CUDA_IDLE" = 1 ] && [ "$LD_LIBRARY_PATH" = "@LIBRARIES@" ] || exit 3
sed -n ${sequences}p "@LINES@" >>"$SL_PTX_COUNTS"
exit 0
"""


def tree(root):
    cuda, libraries = root / "cuda", root / "libraries"
    for folder in (cuda / "drivers", cuda / "ptx/1", cuda / "ptx/2", libraries):
        folder.mkdir(parents=True)
    lines = root / "lines"
    lines.write_text("".join(launch(sequences) + "\n" for sequences in range(1, 5)))
    program = cuda / "drivers/transformer"
    program.write_bytes(SCRIPT.replace("@LIBRARIES@", str(libraries)).replace("@LINES@", str(lines)).encode() + image())
    program.chmod(0o755)
    for folder, statements, age in (("1", 5, 10), ("2", 2, 0)):
        path = cuda / "ptx" / folder / "add.ptx"
        path.write_text(f".entry {KERNEL}(\n)\n{{\n" + "\tret;\n" * statements + "\n}\n")
        os.utime(path, (1e9 - age, 1e9 - age))
    return cuda, libraries, lines


def run(root):
    cuda, libraries, lines = tree(root)
    table = root / "counts.csv"
    counts.write([], table)
    point(list(counting.remade([JOB], cuda, libraries, table)) == [], "a table is made, of a kernel that grows as its work does")
    small, large = (counts.read(table)[JOB]["add"][run] for run in counts.RUNS)
    point((small.work, large.work, large.float, large.store_sectors) == (12 * 3072, 12 * 4096, 4096, 4096), "of a small run and a larger one")
    point((small.ptx, small.machine) == (2, 3), "with the newest PTX's instructions, and the machine code's")
    point(list(counting.compared(JOB, cuda, libraries, table)) == [], "another run finds the same")
    counts.write([small._replace(memory=small.memory + small.memory // 200), large], table)
    point(list(counting.compared(JOB, cuda, libraries, table)) == [], "and half a percent more, by another order of lanes")
    counts.write([small._replace(machine=4), large], table)
    point(len(list(counting.compared(JOB, cuda, libraries, table))) == 1, "but no other kernel")
    others = small._replace(job="another", float=1)
    counts.write([others, small._replace(float=7), large], table)
    point(any("float=7" in line and "float=3072" in line for line in counting.compared(JOB, cuda, libraries, table)), "and tells another number")
    list(counting.remade([JOB], cuda, libraries, table))
    point(counts.read(table)["another"]["add"]["small"] == others and counts.read(table)[JOB]["add"]["small"] == small,
          "the rows of other jobs stay as they are")
    text = lines.read_text().splitlines()
    lines.write_text("\n".join([*text[:3], text[3].replace(f'"memory": {300 * 4096}', f'"memory": {330 * 4096}')]) + "\n")
    told = list(counting.remade([JOB], cuda, libraries, table))
    point(len(told) == 1 and "add" in told[0] and "memory -9 %" in told[0], f"what grows otherwise is told: {told}")
    for missing, words in ((libraries, "build the presets"), (cuda / "drivers/transformer", "build the presets")):
        missing.rename(root / "away")
        try:
            counting.rows_of(JOB, "small", cuda, libraries)
            point(False, f"without {missing.name}")
        except Failure as failure:
            point(failure.status == 2 and words in str(failure) and str(missing) in str(failure), f"without {missing.name}: {failure}")
        (root / "away").rename(missing)


with tempfile.TemporaryDirectory() as folder:
    run(pathlib.Path(folder))
plan()
