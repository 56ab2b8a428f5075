"""kernels.py [--linked] PROGRAM... - checks the resources that the machine code of target regions needs; prints TAP.

    --linked                           their files were linked with the device's runtime (SL_CUDA_LTO), of which elements
                                       then need nothing: one barrier at most, and no memory that a block shares
    kernels.py --table PROGRAM...      the same as a table: mode, registers, frame, barriers, shared memory
    kernels.py --check FILE TOOLS PROGRAM...    whether FILE, of the documentation, has that table; skipped if it says
                                                that it was made by other TOOLS

Nothing but the programs is needed: the facts are in the images that they carry (ELF, with NVIDIA's sections). A kernel's
frame is memory of its own for each thread: spilled registers, and arrays that registers do not hold.
"""
import collections
import re
import struct
import sys

MOST_REGISTERS = 128
MACHINE_CUDA = 190
SYMBOLS, FRAME, REGISTERS = 2, 0x11, 0x2F  # a section's type; attributes of .nv.info
VALUE_OF_SIZE = 4  # an attribute's format
INSTRUCTION, OPERATION, BARRIER = 16, 0x1FF, 0x11D  # bytes of one; the bits of its operation; a barrier among warps
LOADS, STORES = (0x180, 0x181), (0x185, 0x186)  # of any memory; of memory that all threads share
WIDTHS = {4: 4, 5: 8, 6: 16}  # bytes that one moves, by bits 9 to 11 of its second half
MODES = {1: "generic", 2: "SPMD", 3: "generic as SPMD"}

# Kernels that break the rules so far, and their limits: registers, bytes of frame. None of these may grow.
KNOWN = {
    "attention.c forward": (193, 0),
    "attention.c backward": (254, 0),
    "attention_latent.c forward": (195, 0),
    "attention_latent.c forward_divided": (167, 0),
    "attention_forward_64": (183, 0),
    "attention_forward_deep_64": (255, 0),
    "attention_forward_128": (228, 0),
    "attention_forward_any_64": (198, 0),
    "attention_forward_any_128": (245, 0),
    "attention_queries_64": (236, 0),
    "attention_queries_deep_64": (254, 0),
    "attention_queries_128": (254, 0),
    "attention_queries_any_64": (222, 0),
    "attention_queries_any_128": (250, 0),
    "attention_keys_64": (249, 0),
    "attention_keys_128": (255, 0),
    "attention_keys_any_64": (255, 0),
    "attention_keys_any_128": (254, 0),
    "multiply": (150, 0),
    "reduce.c reduce_in": (48, 80),
}
UNLINKED = 255, 128  # the same, if files were not linked with the runtime
# Files whose names are told: their functions, the first one in no other file. Functions not listed are told without a
# file. A file's number is its inode when it was compiled, so a compiler's cache may give two files one number.
FILES = {
    "attention.c": ("settle_few", "forward", "backward", "merge"),
    "attention_latent.c": ("make_table", "forward", "forward_divided"),
    "reduce.c": ("reduce_few", "reduce_in", "reduce_many"),
}

# Kernels over elements, with the largest number of bytes of a load and of a store if arrays are aligned.
WIDE = {
    "adamw_of": (16, 16), "add": (16, 16), "add_hash": (16, 0), "add_settled": (16, 16), "copy_settled": (16, 16),
    "fill": (0, 16), "multiply_elements": (16, 16), "multiply_kept_of": (16, 16), "multiply_rounded": (16, 8),
    "round_bf16": (16, 8), "round_block": (16, 8), "settle_bf16": (16, 16), "silu_f32": (16, 16), "silu_kept_of": (16, 16),
    "silu_rounded": (16, 16), "widen_bf16": (8, 16),
}

Kernel = collections.namedtuple("Kernel", "name registers frame shared barriers mode loads stores")


class Image:
    """An ELF file for GPUs, read from DATA."""

    def __init__(self, data):
        self.data = data
        start, = struct.unpack_from("<Q", data, 40)
        count, names = struct.unpack_from("<HH", data, 60)
        fields = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
        self.sections = [(self.text(fields[names][4] + f[0]), f) for f in fields]
        _, table = next(section for section in self.sections if section[1][1] == SYMBOLS)
        strings = fields[table[6]][4]
        self.symbols = []
        for at in range(table[4], table[4] + table[5], 24):
            name, _, _, section, value, size = struct.unpack_from("<IBBHQQ", data, at)
            self.symbols.append((self.text(strings + name), section, value, size))

    def text(self, at):
        return self.data[at : self.data.index(b"\0", at)].decode()

    def attributes(self, wanted):
        """Returns a number for each kernel by name: .nv.info has pairs of a symbol and a number."""
        values = {}
        for name, fields in self.sections:
            at, end = fields[4], fields[4] + fields[5]
            while name == ".nv.info" and at < end:
                form, attribute, size = struct.unpack_from("<BBH", self.data, at)
                at += 4
                if form != VALUE_OF_SIZE:
                    continue
                if attribute == wanted:
                    symbol, value = struct.unpack_from("<II", self.data, at)
                    values[self.symbols[symbol][0]] = value
                at += size
        return values

    def modes(self):
        modes = {}
        for name, section, value, _ in self.symbols:
            if name.endswith("_kernel_environment"):
                at = self.sections[section][1][4] + value
                modes[name[: -len("_kernel_environment")]] = MODES.get(self.data[at + 2], "unknown")
        return modes

    def kernels(self):
        sizes = {name: fields[5] for name, fields in self.sections}
        code = {name: self.data[fields[4] : fields[4] + fields[5]] for name, fields in self.sections}
        registers, frames, modes = self.attributes(REGISTERS), self.attributes(FRAME), self.modes()
        return [
            Kernel(name, registers[name], frames.get(name, 0), sizes.get(f".nv.shared.{name}", 0),
                   barriers(code[f".text.{name}"]), mode, widest(code[f".text.{name}"], LOADS), widest(code[f".text.{name}"], STORES))
            for name, mode in sorted(modes.items())
        ]


def barriers(code):
    """Returns the number of instructions in CODE at which a block's warps wait for each other."""
    return sum(struct.unpack_from("<H", code, at)[0] & OPERATION == BARRIER for at in range(0, len(code), INSTRUCTION))


def widest(code, operations):
    """Returns the most bytes that an instruction of CODE with one of OPERATIONS moves; 0: there is none."""
    found = (struct.unpack_from("<QQ", code, at) for at in range(0, len(code), INSTRUCTION))
    return max((WIDTHS.get(second >> 9 & 7, 0) for first, second in found if first & OPERATION in operations), default=0)


def images(path):
    with open(path, "rb") as file:
        data = file.read()
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == MACHINE_CUDA:
            yield Image(data[at:])
        at = data.find(b"\x7fELF", at + 1)


def kernels_of(paths):
    """Returns each kernel once; programs share most. Kernels have names like __omp_offloading_DEVICE_FILE_FUNCTION_lLINE."""
    found = {}
    for path in paths:
        for image in images(path):
            for kernel in image.kernels():
                found.setdefault(kernel.name, kernel)
    return list(found.values())


def place(name):
    """Returns (number of the source file, function, line)."""
    file, function, line = re.fullmatch(r"__omp_offloading_[0-9a-f]+_([0-9a-f]+)_(.*)_l([0-9]+)", name).groups()
    return file, function, int(line)


def titles(kernels):
    """Returns a readable name for each kernel: its function, with the file if FILES has both."""
    members = collections.defaultdict(set)
    for kernel in kernels:
        file, function, _ = place(kernel.name)
        members[file].add(function)
    files = {file: name for file, functions in members.items() for name in FILES if FILES[name][0] in functions}
    names = {}
    for kernel in kernels:
        file, function, _ = place(kernel.name)
        named = function in FILES.get(files.get(file), ())
        names[kernel.name] = f"{files[file]} {function}" if named else function
    return names


def judge(kernels, linked):
    """Yields (passed, point, reason of a failure) for each kernel."""
    names = titles(kernels)
    for kernel in kernels:
        title = names[kernel.name]
        registers, frame = KNOWN.get(title, (MOST_REGISTERS, 0))
        if title in KNOWN and not linked:
            registers, frame = UNLINKED
        facts = f"{kernel.registers} registers, {kernel.frame} bytes of frame, {kernel.mode}"
        passed = kernel.registers <= registers and kernel.frame <= frame and kernel.mode != "generic"
        yield passed, f"{title}, line {place(kernel.name)[2]}: {facts}", f"at most {registers} and {frame}, and no generic mode"
        if linked and kernel.mode == "SPMD":
            yield (kernel.barriers <= 1 and not kernel.shared, f"{title}, line {place(kernel.name)[2]}: {kernel.barriers} barriers, "
                   f"{kernel.shared} bytes that a block shares", "at most 1, and none")
        if title in WIDE:
            yield ((kernel.loads, kernel.stores) == WIDE[title], f"{title}, line {place(kernel.name)[2]}: loads of "
                   f"{kernel.loads} bytes, stores of {kernel.stores}", f"expected {WIDE[title]}")
    missing = sorted(set(WIDE) - set(names.values()))
    yield not missing, "all kernels that are to load and store by 16 bytes are there", f"missing: {missing}"


def table(kernels):
    """Returns the table's lines."""
    names = titles(kernels)
    yield "| kernel | mode | registers | frame | barriers | shared |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    rows = set()  # a header's kernel is in two images, whose names may tell another number of its file
    for kernel in kernels:
        facts = kernel.mode, kernel.registers, kernel.frame, kernel.barriers, kernel.shared
        rows.add((names[kernel.name], place(kernel.name)[2], facts))  # two files may have a function at one line
    for name, _, facts in sorted(rows):
        yield f"| `{name}` | {' | '.join(map(str, facts))} |"


def check(path, tools, kernels):
    """Prints one point: the file has the same table as the one made here."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    made = re.search(r"^Made by (.*):$", text, re.MULTILINE)
    name = f"{path} has the table of all kernels"
    if not made or made[1] != tools:
        print(f"ok 1 - {name} # SKIP it was made by {made[1] if made else 'nobody'}, here is {tools}\n1..1")
        return
    written = [line for line in text.splitlines() if line.startswith("| ")]
    lines = list(table(kernels))
    differ = sorted(set(written) ^ set(lines))
    print(f"{'ok' if written == lines else 'not ok'} 1 - {name}")
    for line in differ:
        print(f"# {'missing' if line in lines else 'too much'}: {line}")
    print("1..1")


def main():
    option = sys.argv[1]
    kernels = kernels_of(sys.argv[{"--table": 2, "--linked": 2, "--check": 4}.get(option, 1) :])
    if option == "--table":
        print("\n".join(table(kernels)))
        return
    if option == "--check":
        check(*sys.argv[2:4], kernels)
        return
    count = 0
    for passed, name, why in judge(kernels, option == "--linked"):
        count += 1
        print(f"{'' if passed else 'not '}ok {count} - {name}")
        if not passed:
            print(f"# {why}")
    count += 1
    print(f"{'ok' if len(kernels) >= 50 else 'not ok'} {count} - the programs carry {len(kernels)} kernels")
    print(f"1..{count}")


if __name__ == "__main__":
    main()
