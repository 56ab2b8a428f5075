"""hand.py - mutants by hand: past faults, and one of each kind that a programmer makes.

A row is found by its kernel, by the source line that an instruction was made of, and by the instruction's own text, so that it
outlives changes of line numbers and registers; a row that no instruction fits is refused. A region that asked for 2^32 - 1
blocks has no row: no image is changed by that; tests/spmd/device/test_regions.c looks at launches
(regions_without_teams_have_one_block).
"""
import linecache
import random
import re
import sys

from changes import KINDS, edited
from text import Instruction


def source_of(module, statement):
    return linecache.getline(*module.lines[statement.line]).strip()


def of_kind(title):
    """The change of that kind, the same each time."""
    return lambda i, module, kernel: KINDS[title](i, kernel.registers, random.Random(1))


def rewritten(pattern, replacement):
    """Operands changed by a regular expression."""
    return lambda i, module, kernel: [edited(i, ops=[re.sub(pattern, replacement, operand) for operand in i.ops])]


def thread_0_alone(i, module, kernel):
    """The other threads keep the first operand."""
    kernel.registers.update({"%mutant_t": "b32", "%mutant_p": "pred"})
    return [Instruction(None, "mov", ["u32"], ["%mutant_t", "%tid.x"], i.line, "mov.u32 %mutant_t, %tid.x"),
            Instruction(None, "setp", ["ne", "s32"], ["%mutant_p", "%mutant_t", "0"], i.line, "setp.ne.s32 %mutant_p, %mutant_t, 0"), i,
            Instruction(("%mutant_p", False), "mov", ["u64"], [i.ops[0], i.ops[1]], i.line, "@%%mutant_p mov.u64 %s, %s" % tuple(i.ops[:2]))]


def reads_behind(source):
    """Behind a barrier all threads read the bytes that the source line stores, with no barrier between."""
    def change(i, module, kernel):
        store = next(s for s in kernel.statements if getattr(s, "name", "") == "st" and "shared" in s.mods and re.fullmatch(source, source_of(module, s)))
        kernel.registers["%mutant_r"] = "b64"
        return [i, Instruction(None, "ld", store.mods, ["%mutant_r", store.ops[0]], i.line, "ld.shared.u64 %mutant_r, " + store.ops[0])]
    return change


# title, kernel, source line, instruction, number among the matching ones (from 0), change
ROWS = [
    ("a barrier removed", "whole_layer_norm_forward", r"SL_LANES\(reduction.*", r"bar\.sync 0", 1, of_kind("a barrier removed")),
    ("a barrier removed behind a guarded store", "whole_norm_backward", r"SL_THREADS\(\)", r"bar\.sync 0", 2, of_kind("a barrier removed")),
    ("a lane's index off by one", "whole_layer_norm_forward", r"SL_LANES\(reduction.*", r"shfl\.sync\.down.*, 16, 31, -1", 0, rewritten("^16$", "15")),
    ("a stride wrong", "whole_layer_norm_forward", r".*", r"mul\.lo\.s64 .*", -1, of_kind("a stride wrong")),
    ("a wait of cp.async removed", "attention_forward_64", r".*cp\.async\.wait_all.*", r"cp\.async\.wait_all", 0, of_kind("a wait of cp.async removed")),
    ("an accumulator not cleared", "whole_layer_norm_forward", r".*", r"mov\.f32 .*, 0f00000000", 0, of_kind("an accumulator not cleared")),
    ("a mask short of a lane", "whole_layer_norm_forward", r"SL_LANES\(reduction.*", r"shfl\.sync\.down.*, 8, 31, -1", 0, of_kind("a mask short of a lane")),
    ("a row beyond the end", "whole_layer_norm_forward", r".*", r"add\.s64 .*, -1", 2, rewritten("^-1$", "0")),
    ("an element counted in two parts of a sum", "add_squares", r"", r"min\.u64 .*, %rd\d+", 1, of_kind("a row beyond the end")),
    ("thread 0 alone goes on to a row, all store it", "forward", r".*\? rows\.at : rows\.at \+ by.*", r"add\.s64 .*", 0, thread_0_alone),
    ("threads store while others read the last round's", "backward", r"TILES void first_by_rows.*", r"bar\.sync 0", 0, reads_behind(r"const struct sight own = .*|sight = own;")),
]


def fitting(kernels, name, source, text):
    """(copies of the kernel, places of the matching statements) of the first kernel of that name with a match."""
    for copies in kernels:
        if copies[0].title == name:
            module, read = copies[0].read()
            places = [at for at, s in enumerate(read.statements) if re.fullmatch(text, getattr(s, "text", "")) and re.fullmatch(source, source_of(module, s))]
            if places:
                return copies, places
    return None, []


def mutants(kernels, make):
    """The mutants of all rows; MAKE is a Mutant."""
    for title, name, source, text, which, change in ROWS:
        copies, places = fitting(kernels, name, source, text)
        if which >= len(places):
            sys.exit("hand.py: %s, %s: %d instructions fit, not %d: %s" % (name, title, len(places), which + 1, text))
        yield make(title, copies, places[which], change)
