#!/usr/bin/env python3
"""translate.py IN.ptx... [IN.registers] OUT.jsonl - an image of PTX modules as the executor reads it (image.c): a line of JSON
for its variables and the kernels' names, then a line for each kernel. IN.registers: a JSON object, how many registers of a
thread ptxas gave each kernel of the image (images.py).

A register is a place in the warp's frame, which it shares with others that live at other times; a lane changes only its own
part. Numbers, addresses and parameters have places, too, which nothing changes. A place's two top bits name its base:
0 the frame, 1 the kernel's numbers, 2 the launch's parameters; the others are an offset in bytes.
"""
import json
import re
import sys

import flow
from inline import inline
from instructions import Instructions
from text import BITS, Module, NotUnderstood

KINDS = ("float", "integer", "memory", "control", "together", "mma", "other")
MEMORY = {"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix"}
SHARED_GAP = 16  # bytes that belong to no array, between two
BYTES = {"p": 32, 8: 32, 16: 64, 32: 128, 64: 256}  # of a place
FRAME_HEAD = 3  # places of 32 bits that hold the numbers of a warp
CONSTANT, PARAMETER = 1 << 30, 2 << 30


def kind_of(instruction):
    name, mods = instruction.name, instruction.mods
    if name == "mma":
        return "mma"
    if name in MEMORY:
        return "other" if "param" in mods else "memory"
    if name in flow.MEETINGS:
        return "together"
    if name in flow.ENDS:
        return "control"
    if name in ("mov", "cvta"):
        return "other"
    return "float" if any(m in ("f32", "f64", "f16", "bf16", "bf16x2") for m in mods) else "integer"


class Places:
    """The frame: places by size, given and taken back."""

    def __init__(self):
        self.end = FRAME_HEAD * 128
        self.free = {}

    def take(self, bits):
        size = BYTES[bits]
        if self.free.get(size):
            return self.free[size].pop()
        self.end = -(-self.end // size) * size
        self.end += size
        return self.end - size

    def give(self, bits, place):
        self.free.setdefault(BYTES[bits], []).append(place)


class Translation(Instructions):
    """One kernel."""

    def __init__(self, module, kernel, variables, shared):
        self.module, self.kernel, self.variables, self.sites = module, kernel, variables, [["?", 0, "?"]]
        self.registers = kernel.registers
        self.constants, self.constant_places, self.constant_end = [], {}, 0
        self.parameters, self.parameter_places, self.parameter_end = [], {}, 4 * 128
        self.text, self.instruction, self.rows = "", None, []
        self.arrange(shared)
        self.blocks = flow.order(flow.make_blocks(kernel))
        self.numbers = {block: i for i, block in enumerate(self.blocks)}
        self.places = Places()
        self.allot()
        self.body = [self.block(block) for block in self.blocks]

    def arrange(self, shared):
        """Shared memory: arrays with gaps between. Local memory: an access behind one array that meets another one goes unseen."""
        self.shared, self.local, self.local_bytes, self.dynamic, end, self.static_bytes = {}, {}, 0, set(), 0, 0
        for variable in shared + self.kernel.variables:
            if variable.external:
                self.dynamic.add(variable.name)
            elif variable.space == "shared":
                at = -(-end // variable.align) * variable.align
                self.shared[variable.name] = (at, variable.bytes)
                end = at + variable.bytes + SHARED_GAP
                self.static_bytes = -(-self.static_bytes // variable.align) * variable.align + variable.bytes
            else:
                self.local[variable.name] = -(-self.local_bytes // 16) * 16
                self.local_bytes = self.local[variable.name] + variable.bytes
        self.shared_bytes = max([at + size for at, size in self.shared.values()], default=0)

    def allot(self):
        """A place for each register from the first block in which it lives to the last one; temporaries lie beyond."""
        live = flow.live_at_start(self.blocks, self.registers)
        first, last = {}, {}
        for i, block in enumerate(self.blocks):
            touched = set(live[block])
            for instruction in block.body + ([block.end] if block.end else []):
                touched.update(flow.reads(instruction, self.registers) + flow.writes(instruction, self.registers))
            if block.meets:
                touched.update(flow.reads(block.meets, self.registers))
            for register in touched:
                first.setdefault(register, i)
                last[register] = i
        begins, ends = {}, {}
        for register, i in first.items():
            begins.setdefault(i, []).append(register)
            ends.setdefault(last[register], []).append(register)
        self.at = {}
        for i in range(len(self.blocks)):
            for register in sorted(begins.get(i, [])):
                kind = self.registers[register]
                self.at[register] = self.places.take("p" if kind == "pred" else BITS[kind])
            for register in sorted(ends.get(i, [])):
                kind = self.registers[register]
                self.places.give("p" if kind == "pred" else BITS[kind], self.at[register])
        self.temporaries = Places()
        self.temporaries.end = self.places.end
        self.frame_bytes = self.places.end

    # Methods that Instructions calls.

    def op(self, name, *numbers):
        self.rows.append([name, self.site, *numbers])

    def register(self, name):
        return self.at[name]

    def temporary(self, bits):
        place = self.temporaries.take(bits)
        self.taken.append((bits, place))
        self.frame_bytes = max(self.frame_bytes, self.temporaries.end)
        return place

    def constant(self, key, bits, row):
        if (key, bits) not in self.constant_places:
            size = BYTES[bits]
            self.constant_end = -(-self.constant_end // size) * size
            self.constant_places[key, bits] = self.constant_end
            self.constants.append([self.constant_end, 0 if bits == "p" else bits, *row])
            self.constant_end += size
        return CONSTANT + self.constant_places[key, bits]

    def number(self, value, bits):
        value = (0xFFFFFFFF if value & 1 else 0) if bits == "p" else value & (1 << bits) - 1
        return self.constant(value, bits, ["number", "%x" % value])

    def lanes(self, values):
        return self.constant(tuple(values), 32, ["lanes", values])

    def symbol(self, name, offset):
        if name in self.shared:
            return self.number(self.shared[name][0] + offset, 64)
        if name in self.dynamic:
            return self.number(-(-self.shared_bytes // 16) * 16 + offset, 64)
        if name in self.local:
            place = self.temporary(64)
            self.op("local", place, self.local[name] + offset)
            return place
        if name in self.variables:
            return self.constant((name, offset), 64, ["variable", self.variables[name], offset])
        raise NotUnderstood("symbol " + name)

    def parameter(self, offset, kind, bits):
        key = offset, kind, bits
        if key not in self.parameter_places:
            size = BYTES[bits]
            self.parameter_end = -(-self.parameter_end // size) * size
            self.parameter_places[key] = self.parameter_end
            self.parameters.append([self.parameter_end, bits, offset, BITS[kind] // 8, int(kind[0] == "s")])
            self.parameter_end += size
        return PARAMETER + self.parameter_places[key]

    @staticmethod
    def of_warp(i):
        return 128 * i

    @staticmethod
    def of_launch(i):
        return PARAMETER + 128 * i

    # Blocks.

    def instruct(self, instruction):
        """Operations of an instruction; an unknown one is reported when it runs."""
        file, line = self.module.lines[instruction.line]
        self.sites.append([file, line, instruction.text])
        self.site = len(self.sites) - 1
        self.text, self.taken = instruction.text, []
        before = len(self.rows)
        try:
            if instruction.guard:
                self.op("guard", self.register(instruction.guard[0]), int(instruction.guard[1]))
            getattr(self, "i_" + instruction.name)(instruction.mods, instruction.ops)
            if instruction.guard:
                self.op("unguard")
        except (NotUnderstood, AttributeError) as error:
            del self.rows[before:]
            print("not understood: %s (%s)" % (error, self.kernel.name), file=sys.stderr)
            self.op("unknown")
        for bits, place in self.taken:
            self.temporaries.give(bits, place)

    def block(self, block):
        """As image.c reads it."""
        self.rows, self.site, self.taken = [], 0, []
        kinds = [0] * len(KINDS)
        for instruction in block.body + ([block.end] if block.end else []):
            kinds[KINDS.index(kind_of(instruction))] += 1
        meets = -2  # no
        if block.meets:
            self.text = block.meets.text
            meets = -1 if flow.whole_warp(block.meets) else self.read(block.meets.ops[-1], "u32")
        for instruction in block.body:
            self.instruct(instruction)
        end, guard, targets = "go", [], [self.numbers[t] for t in block.targets]
        if block.end:
            file, line = self.module.lines[block.end.line]
            self.sites.append([file, line, block.end.text])
            self.site = len(self.sites) - 1
            self.text, self.taken = block.end.text, []
            end = {"bra": "go", "brx": "table", "ret": "leave", "exit": "leave", "trap": "trap"}[block.end.name]
            if block.end.guard:
                guard = [self.register(block.end.guard[0]), int(block.end.guard[1])]
            if end == "table":
                guard = [self.read(block.end.ops[0], "u32"), 0]
        return {"meets": meets, "ops": self.rows, "end": end, "guard": guard, "targets": targets, "kinds": kinds, "site": self.site}

    def row(self):
        kernel = self.kernel
        return {"name": kernel.name, "parameter_bytes": kernel.parameter_bytes, "shared_bytes": self.shared_bytes, "static_bytes": self.static_bytes, "local_bytes": self.local_bytes,
                "most_threads": kernel.most_threads, "frame_bytes": self.frame_bytes, "arrays": sorted(self.shared.values()),
                "constants": self.constants, "constant_bytes": self.constant_end, "parameters": self.parameters,
                "place_bytes": self.parameter_end, "blocks": self.body, "sites": self.sites}


def initial(variable, numbers):
    """(hex of the bytes, pointers) of a variable's initial value."""
    if not variable.value:
        return "", []
    text = variable.value.strip()
    size, data, pointers = BITS[variable.element] // 8, b"", []
    for value in [v.strip() for v in (text[1:-1].split(",") if text.startswith("{") else [text])]:
        pointer = re.match(r"(?:generic\()?([A-Za-z_$%.][\w$.]*)\)?(?:\s*\+\s*(\d+))?$", value)
        if pointer:
            pointers.append([len(data), numbers[pointer.group(1)], int(pointer.group(2) or 0)])
            data += bytes(size)
        else:
            number = int(value[2:], 16) if re.match(r"0[fFdD]", value) else int(value.rstrip("U"), 0)
            data += (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    return data.hex(), pointers


def translate(modules, registers=None):
    """The image's lines. REGISTERS of a thread, by kernel, as far as they are known. Of several modules' variables with one name there is one, as nvlink has it."""
    numbers, variables, kernels = {}, [], []
    for module in modules:
        for variable in module.variables:
            if variable.space in ("global", "const") and not variable.external and variable.name not in numbers:
                numbers[variable.name] = len(variables)
                variables.append(variable)
    functions = {name: function for module in modules for name, function in module.functions.items()}
    for module in modules:
        for kernel in module.kernels:
            inline(kernel, functions)
            used = {r for s in kernel.statements if hasattr(s, "ops") for o in s.ops for r in re.findall(r"[\w$.]+", o)}
            shared = [v for v in module.variables if v.space == "shared" and v.name in used]
            kernels.append(Translation(module, kernel, numbers, shared).row() | {"registers": (registers or {}).get(kernel.name, 0)})
    rows = [[v.name, v.bytes, v.align, *initial(v, numbers)] for v in variables]
    return [{"kinds": KINDS, "variables": rows, "kernels": [kernel["name"] for kernel in kernels]}] + kernels


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    modules, registers = [], {}
    for path in sys.argv[1:-1]:
        with open(path) as source:
            if path.endswith(".registers"):
                registers = json.load(source)
            else:
                modules.append(Module(source.read()))
    lines = translate(modules, registers)
    with open(sys.argv[-1], "w") as target:
        for line in lines:
            target.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
