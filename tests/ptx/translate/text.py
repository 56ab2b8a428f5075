"""text.py - a PTX module's text as variables, kernels and their instructions.

Names follow the PTX ISA: a kernel is an entry, a register has a type, an operand is text.
"""
import collections
import re

BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32,
        "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64}

# dims: elements in all; value: text of an initial value, or None
Variable = collections.namedtuple("Variable", "name space align bytes element value external")
# guard: (register, negated) or None; line: index in Module.lines; text: for reports
Instruction = collections.namedtuple("Instruction", "guard name mods ops line text")
Label = collections.namedtuple("Label", "name")


class NotUnderstood(Exception):
    """PTX that is not understood."""


class Kernel:
    """An entry: its parameters' offsets, registers, own variables, and statements (Instruction, Label)."""

    def __init__(self, name):
        self.name = name
        self.parameters = {}
        self.parameter_bytes = 0
        self.results = []  # names of a function's
        self.most_threads = 1024
        self.registers = {}  # name -> type
        self.variables = []
        self.tables = {}  # label -> targets of brx.idx
        self.statements = []


class Module:
    """All of a file."""

    def __init__(self, text):
        self.variables = []
        self.kernels = []
        self.functions = {}  # name -> Kernel, of functions that kernels call (inline.py)
        self.files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M))
        self.lines = [("?", 0)]
        debug = re.search(r"^\s*\.section\b", text, re.M)
        text = text[: debug.start()] if debug else text
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        text = re.sub(r"^\s*\.file[^\n]*$", "", text, flags=re.M)
        start = re.search(r"\.address_size\s+64", text)
        self.read(text[start.end() :])

    def read(self, text):
        head = re.compile(r"((?:\.(?:weak|visible|extern)\s+)*)\.(entry|func)\b")
        at = 0
        while True:
            at = re.compile(r"\s*").match(text, at).end()
            if at == len(text):
                return
            if not head.match(text, at):
                end = text.index(";", at)
                self.variables.append(read_variable(text[at:end]))
                at = end + 1
                continue
            end = re.compile(r"[;{]").search(text, at).start()
            if text[end] == "{":
                close = matching(text, end)
                self.read_function(text[at:end], text[end + 1 : close])
                end = close
            at = end + 1

    def read_function(self, head, body):
        match = re.match(r"[^(]*\.(?:entry|func)\s*(?:\(([^)]*)\))?\s*([\w$.]+)\s*(?:\(([^)]*)\))?(.*)$", head, re.S)
        if not match:
            raise NotUnderstood("a function: " + " ".join(head.split())[:100])
        results, name, parameters, directives = match.groups()
        kernel = Kernel(name)
        kernel.parameters, kernel.parameter_bytes = read_parameters(parameters or "")
        kernel.results = list(read_parameters(results or "")[0])
        most = re.search(r"\.maxntid\s+(\d+)", directives)
        if most:
            kernel.most_threads = int(most.group(1))
        line = 0
        for text in split(body):
            if text.endswith(":"):
                kernel.statements.append(Label(text[:-1]))
            elif text.startswith(".loc "):
                _, file, number = text.split()[:3]
                self.lines.append((self.files.get(file, "?"), int(number)))
                line = len(self.lines) - 1
            elif text.startswith(".reg"):
                read_registers(text, kernel.registers)
            elif re.match(r"\.(shared|local)\b", text):
                kernel.variables.append(read_variable(text))
            elif text.startswith(".branchtargets"):
                kernel.tables[kernel.statements.pop().name] = [t.strip() for t in text[len(".branchtargets") :].split(",")]
            elif text not in ("{", "}") and not re.match(r"\.(pragma|param)\b", text):
                kernel.statements.append(read_instruction(text, line))
        if ".entry" in head:
            self.kernels.append(kernel)
        else:
            self.functions[name] = kernel


def matching(text, at):
    depth = 0
    while True:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
        at += 1


def split(body):
    """Statements of a kernel's body: instructions and directives without ;, labels with :, braces of scopes."""
    body = re.sub(r"^\s*(\.loc\s+\d+\s+\d+)[^\n]*$", r"\1;", body, flags=re.M)
    word = ""
    for part in re.split(r"([;\n{}])", body):
        if part == ";":
            yield " ".join(word.split())
            word = ""
        elif part in "{}" and part and not word.strip():
            yield part
        else:
            label = re.match(r"\s*([$\w.]+):(?!:)\s*(.*)$", part, re.S) if not word.strip() else None
            while label:
                yield label.group(1) + ":"
                part = label.group(2)
                label = re.match(r"\s*([$\w.]+):(?!:)\s*(.*)$", part, re.S)
            word += part


def read_registers(text, registers):
    kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.S).groups()
    for name in names.split(","):
        many = re.match(r"\s*(%[\w$]+)<(\d+)>\s*$", name)
        if not many:
            registers[name.strip()] = kind
            continue
        for i in range(int(many.group(2))):
            registers["%s%d" % (many.group(1), i)] = kind


VARIABLE = re.compile(r"((?:\.(?:weak|visible|extern|common)\s+)*)\.(global|const|shared|local)\s+(?:\.align\s+(\d+)\s+)?"
                      r"(?:\.attribute\([^)]*\)\s*)?\.(\w+)\s+([\w$.]+)\s*((?:\[\d*\])*)\s*(?:=\s*(.*))?$", re.S)


def read_variable(text):
    match = VARIABLE.match(text.strip())
    if not match:
        raise NotUnderstood("variable " + " ".join(text.split())[:100])
    link, space, align, element, name, dims, value = match.groups()
    count = 1
    for dim in re.findall(r"\[(\d*)\]", dims):
        count *= int(dim or 0)
    size = BITS[element] // 8
    return Variable(name, space, int(align or size), count * size, element, value, "extern" in link)


def read_parameters(text):
    """Offsets by name, and the bytes of all."""
    offsets, at = {}, 0
    for part in re.split(r",\s*(?=\.param)", text.strip()) if text.strip() else []:
        match = re.match(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s+)?)?([\w$.]+)(?:\[(\d+)\])?$",
                         part.strip())
        if not match:
            raise NotUnderstood("parameter " + part)
        align, kind, name, count = match.groups()
        align = int(align or BITS[kind] // 8)
        at = (at + align - 1) // align * align
        offsets[name] = at
        at += BITS[kind] // 8 * int(count or 1)
    return offsets, at


def read_instruction(text, line):
    guard = None
    match = re.match(r"@(!?)(%\w+)\s+(.*)$", text, re.S)
    rest = text
    if match:
        guard = (match.group(2), bool(match.group(1)))
        rest = match.group(3)
    match = re.match(r"([a-z][a-z0-9_]*)((?:(?:\.|::)\w+)*)\s*(.*)$", rest, re.S)
    if not match:
        raise NotUnderstood("instruction " + text)
    name, mods, operands = match.groups()
    return Instruction(guard, name, [m for m in re.split(r"\.|::", mods) if m], split_operands(operands), line, text)


def split_operands(text):
    operands, depth, word = [], 0, ""
    for c in text:
        depth += {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}.get(c, 0)
        if c == "," and not depth:
            operands.append(word.strip())
            word = ""
        else:
            word += c
    return operands + [word.strip()] if word.strip() else operands
