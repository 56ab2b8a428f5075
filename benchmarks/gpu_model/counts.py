"""counts - a table of the work that kernels do, counted while their device code is executed, and its answers for other launches.

A row is a kernel in a small run of a job, with all its launches: their blocks and their work; the instructions of PTX that
warps issued, by kind; sectors of 32 bytes and requests of loads and stores; of shared memory requests, and the passes that
conflicts of banks add; and how many instructions of PTX and of machine code the kernel has.

The work of a launch follows from its parameters: products' operations on tensor cores where it has some, else the bytes
that it moves at least, else its blocks. Counts grow as the work does: a launch of the whole job has those of the larger run
times its own work over that run's. The smaller run says how far that holds (differences). An instruction of PTX takes as
many slots as the kernel has instructions of machine code for one of PTX.
"""

import collections
import csv
import json
import pathlib
import re
import struct
import typing

from gpu_model.formulas import BYTES, PARAMETERS, TENSOR_FLOPS, function_of, number

TABLE = pathlib.Path(__file__).with_name("counts.csv")
KINDS = "float", "integer", "memory", "control", "together", "mma", "other"
COUNTS = "load_sectors", "load_requests", "store_sectors", "store_requests", "shared_loads", "shared_stores", "bank_conflicts"
RUNS = "small", "large"
SECTOR = 32  # bytes
NOP, BRANCH, OPERATION, INSTRUCTION = 0x118, 0x147, 0x1FF, 16  # of machine code: operations, their bits, bytes of each
ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(.*?\n\{\n(.*?)\n\}", re.DOTALL)
STATEMENT = re.compile(r"^\s*(?:@!?%p\d+\s+)?[a-z][\w.]*(?:\s[^;]*)?;", re.MULTILINE)


class Row(collections.namedtuple("Row", ("job", "run", "kernel", "launches", "blocks", "work", *KINDS, *COUNTS, "ptx", "machine"))):
    def slots(self):
        """Issue slots: machine instructions that a processor's schedulers issue."""
        return sum(getattr(self, kind) for kind in KINDS) * self.machine / self.ptx


def work_of(function, blocks, parameters):
    known = len(parameters) == PARAMETERS.get(function, len(parameters))
    formula = known and (TENSOR_FLOPS.get(function) or BYTES.get(function))
    return formula(parameters) if formula else blocks


# ---- making the table

def statements(text):
    """Returns the number of instructions of each kernel in the PTX TEXT, by name."""
    return {name: len(STATEMENT.findall(body)) for name, body in ENTRY.findall(text)}


def instructions(code):
    """Returns the number of instructions in machine CODE without the padding at its end: a branch to itself, and NOPs."""
    operations = [struct.unpack_from("<H", code, at)[0] & OPERATION for at in range(0, len(code), INSTRUCTION)]
    while operations and operations[-1] == NOP:
        operations.pop()
    return len(operations) - (operations[-1:] == [BRANCH])


def parameter(value):
    """Returns VALUE, a word of an account or a kernel's parameter; None for an address (sizes have at most 32 bits)."""
    return number(value) if isinstance(value, str) else value if value < 1 << 32 else None


def rows_of(job, run, lines, lengths):
    """Returns the rows of RUN of JOB. LINES: a JSON object for each launch; LENGTHS: numbers of PTX and machine instructions by
    kernel."""
    sums, found = collections.defaultdict(collections.Counter), collections.defaultdict(set)
    for line in lines:
        launch = json.loads(line)
        function = function_of(launch["kernel"])
        parameters = [parameter(value) for value in launch["parameters"][1:]]  # the first one is the launch environment
        sums[function].update({kind: launch["instructions"].get(kind, 0) for kind in KINDS} | {name: launch[name] for name in COUNTS})
        sums[function].update(launches=1, blocks=launch["blocks"], work=work_of(function, launch["blocks"], parameters))
        found[function].add(launch["kernel"])
    for function, counts in sorted(sums.items()):
        # A header's kernel is in two images, whose names may tell another number of its file: it is counted once.
        regions = {(kernel.rpartition("_l")[2], *lengths[kernel]) for kernel in found[function]}
        ptx, machine = (sum(region[i] for region in regions) for i in (1, 2))
        yield Row(job, run, function, *(counts[name] for name in Row._fields[3:-2]), ptx, machine)


def write(rows, path=TABLE):
    with open(path, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Row._fields)
        table.writerows(sorted(rows))


# ---- reading it

def read(path=TABLE):
    """Returns the rows by job, kernel and run."""
    table = collections.defaultdict(lambda: collections.defaultdict(dict))
    with open(path, newline="") as file:
        for words in csv.DictReader(file):
            row = Row(**{name: word if name in Row._fields[:3] else int(word) for name, word in words.items()})
            table[row.job][row.kernel][row.run] = row
    return table


def differences(runs, least=0):
    """Returns for each count the relative difference between the larger run's and the smaller run's, scaled by the work. Counts
    below LEAST are left out."""
    small, large = (runs[run] for run in RUNS)
    grown = large.work / small.work
    told = {name: (getattr(small, name) * grown, getattr(large, name)) for name in (*KINDS, *COUNTS)}
    return {name: said / counted - 1 for name, (said, counted) in told.items() if counted and counted >= least}


class Launch(typing.NamedTuple):
    """Counts of one launch, scaled by its work."""

    slots: float
    products: float  # of 16 x 8 x 16
    sectors: float
    passes: float  # over shared memory, without conflicts


def launch_of(kernels, function, blocks, parameters):
    """Returns the counts of a launch of FUNCTION by KERNELS, the rows of a job; None if they lack the kernel."""
    runs = kernels.get(function)
    if not runs:
        return None
    row = next(runs[run] for run in reversed(RUNS) if run in runs)
    share = work_of(function, blocks, parameters) / row.work
    return Launch(*(share * count for count in (row.slots(), row.mma, row.load_sectors + row.store_sectors, row.shared_loads + row.shared_stores + row.bank_conflicts)))
