#!/usr/bin/env python3
"""house.py [ROOT] - the rules of the source tree's layout, one point each; prints TAP.
house.py --self-test - breaks each rule in a small tree and sees it fail; prints TAP.

It reads every .c and .h file of the tree and every CMake list, with or without git."""

import os
import re
import sys
import tempfile

# The order of folders. A file includes from its own folder and from those on lines above. Folders on one line do not include
# each other. A folder that is not listed counts as the innermost listed one around it ("drivers/tools/plan": "drivers").
ORDER = """
    spmd/base
    spmd/base/numbers
    spmd/schedule spmd/device
    spmd/device/cuda
    spmd/schedule/generators spmd/schedule/drawing spmd/schedule/synthesis
    spmd
    spmd/placement
    collectives
    collectives/sums
    collectives/costs
    collectives/mpi/process
    collectives/local collectives/mpi
    collectives/replay
    collectives/nccl
    layers/kernels/loops layers/kernels/gemm/onednn layers/formats/quantized
    layers/kernels/operands layers/kernels/norms
    layers/kernels/gemm/rows
    layers/kernels/attention layers/kernels/gemm/blocks layers/kernels/gemm/tiles
    layers/kernels layers/formats/files
    layers/kernels/gemm layers/formats/stores
    layers/formats/models layers/formats/tokens
    layers/formats/tokenizers
    layers/modules/calls
    layers/modules/parameters
    layers/modules
    layers/modules/feedforward layers/modules/norms
    layers/modules/feedforward/experts
    layers/modules/parents
    layers/modules/sequence
    layers/modules/sequence/mla
    layers/records/journal
    layers/training/exact layers/training/optimizers
    layers/training
    layers/training/trace
    layers/records/snapshot layers/records/replay
    layers/models
    layers/models/published
    layers/models/peft
    shardloop
    drivers/command_line
    drivers/common
    drivers/speed
    drivers/memory drivers/tools/text
    drivers/training/choices drivers/training/reports drivers/training/restart
    drivers/training
    drivers/tools/machine
    drivers/tools/search
    drivers/classifier
    drivers/tools/diff drivers/tools/report/runs drivers/schedule
    drivers/transformer
    drivers/transformer/generation
    benchmarks/rates
    drivers benchmarks
    benchmarks/subjects
    tests/rigs tests/fake_cuda
    tests
    tests/fuzz/drivers tests/fuzz/library
"""
# Only files of the folder to the right, and its tests, include from the folder to the left.
PRIVATE = {
    "collectives/local": "collectives/local",
    "collectives/mpi": "collectives/mpi",
    "collectives/nccl": "collectives/nccl",
    "layers/kernels/gemm/onednn": "layers/kernels/gemm",
    "tests/fake_cuda": "tests",
}
# Files that may include upward for a while.
UPWARD = {}
BUILT_ELSEWHERE = {
    "benchmarks/peers/collectives_mpi.c": "benchmarks/peers/setup, without the library",
}

FILES_IN_A_FOLDER = 24
NOT_COUNTED = "tests/data"  # tables that a test reads, a file each
LINES_IN_A_FILE = 500
LINES_IN_A_FUNCTION, LINES_IN_A_TEST = 80, 100  # attention backward, with its region; a test may be a list of cases
LINES_IN_A_LONG_FILE = 800
ONE_SUBJECT = "the tests of one subject, each of them short"
LONG_FILES = {
    "tests/collectives/test_checked.c": ONE_SUBJECT,
    "tests/collectives/test_collectives.c": ONE_SUBJECT,
    "tests/fake_cuda/nccl.c": "all of a library's functions, as one file stands for it",
    "tests/layers/kernels/attention/test_attention_kernels.c": ONE_SUBJECT,
    "tests/layers/kernels/test_kernels.c": ONE_SUBJECT,
    "tests/layers/kernels/test_sequence_kernels.c": ONE_SUBJECT,
    "tests/layers/kernels/test_settled.c": ONE_SUBJECT,
    "tests/layers/modules/test_experts.c": ONE_SUBJECT,
    "tests/layers/modules/test_modules.c": ONE_SUBJECT,
    "tests/layers/modules/test_token_modules.c": ONE_SUBJECT,
    "tests/layers/formats/test_safetensors.c": ONE_SUBJECT,
    "tests/layers/formats/test_tokens.c": ONE_SUBJECT,
    "tests/layers/training/test_checkpoint.c": ONE_SUBJECT,
    "tests/spmd/schedule/test_schedule_simulate.c": ONE_SUBJECT,
    "tests/spmd/test_placement.c": ONE_SUBJECT,
}


ROOT = ["CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "README.md"]


class Tree:
    """The files below a root by their paths, without hidden folders and builds, and the includes of its C files."""

    def __init__(self, root):
        self.root = root
        self.files = set()
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith(".") and f != "__pycache__" and
                          not (folder == root and f == "build") and
                          not os.path.exists(os.path.join(folder, f, "CMakeCache.txt"))]
            self.files |= {os.path.relpath(os.path.join(folder, name), root) for name in names}
        self.sources = sorted(f for f in self.files if f.endswith((".c", ".h")))
        self.lists = sorted(f for f in self.files if f.endswith(("CMakeLists.txt", ".cmake")))
        self.includes = {f: list(self.read_includes(f)) for f in self.sources}

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def read_includes(self, path):
        """Yields the files of this tree that a file includes. For an include that is missing, yields None and its text."""
        for mark, name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', self.read(path), re.MULTILINE):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            if name in self.files:
                yield name, name
            elif mark == '"':
                yield name, beside if beside in self.files else None


def places(order=ORDER):
    return {folder: line for line, folders in enumerate(order.split("\n")) for folder in folders.split()}


def place_of(path, known):
    """Returns the folder of ORDER that a file belongs to."""
    folder = os.path.dirname(path)
    while folder and folder not in known:
        folder = os.path.dirname(folder)
    return folder or None


def within(path, folder):
    return path.startswith(folder + "/")


def upward_includes(tree):
    known = places()
    for path in tree.sources:
        here = place_of(path, known)
        if not here:
            yield f"{path}: its folder has no place in the order (tests/house.py)"
            continue
        for name, target in tree.includes[path]:
            if not target:
                yield f"{path}: includes \"{name}\", and there is no such file"
                continue
            there = place_of(target, known)
            same = os.path.dirname(path) == os.path.dirname(target)
            if UPWARD.get(path) == target:
                continue
            if not same and there and not known[there] < known[here]:
                yield f"{path}: includes {target}, which is not below {here}"
            for private, users in PRIVATE.items():
                if within(target, private) and not within(path, users) and not within(path, f"tests/{users}"):
                    yield f"{path}: includes {target}, which is for {users} alone"


def circles(tree):
    """Finds circles between units, through more than one folder. A unit is a .c file and the .h file of its name."""
    def unit(path):
        return path[:-2]
    graph = {}
    for path in tree.sources:
        graph.setdefault(unit(path), set()).update(unit(target) for _, target in tree.includes[path] if target)
    done, found = set(), set()

    def walk(node, trail):
        if node in trail:
            circle = trail[trail.index(node):]
            if len({os.path.dirname(n) for n in circle}) > 1:
                first = circle.index(min(circle))
                found.add(" -> ".join(circle[first:] + circle[:first] + [circle[first]]))
            return
        if node in done:
            return
        for target in sorted(graph.get(node, ())):
            walk(target, trail + [node])
        done.add(node)

    for node in sorted(graph):
        walk(node, [])
    yield from sorted(found)


def unbuilt_sources(tree):
    """A CMake list names files relative to its own folder; a .cmake file relative to the folder of the including list."""
    patterns = []
    for path in tree.lists:
        text = re.sub(r"#.*", "", tree.read(path))
        folders = [os.path.dirname(path)]
        while path.endswith(".cmake") and folders[-1]:
            folders.append(os.path.dirname(folders[-1]))
        for name in re.findall(r"[^\s()\"]+\.c(?![\w.])", text):
            for folder in [""] if name.startswith("${CMAKE_SOURCE_DIR}/") else folders:
                name = name.replace("${CMAKE_SOURCE_DIR}/", "")
                named = re.escape(os.path.normpath(os.path.join(folder, re.sub(r"\$\{\w+\}", "*", name))))
                patterns.append(named.replace(r"\*", "[^/]*"))
    built = re.compile("|".join(patterns) or "$^")
    for path in tree.sources:
        if path.endswith(".c") and path not in BUILT_ELSEWHERE and not built.fullmatch(path):
            yield f"{path}: no CMakeLists.txt and no .cmake file names it"


def full_folders(tree):
    folders = {}
    for path in tree.files:
        folder = os.path.dirname(path)
        folders[folder] = folders.get(folder, 0) + 1
    for folder, count in sorted(folders.items()):
        if count > FILES_IN_A_FOLDER and not within(folder + "/", NOT_COUNTED):
            yield f"{folder or '.'}: {count} files, and a folder has at most {FILES_IN_A_FOLDER}"


def strays(tree):
    """The root has, beside its folders, only files that tools and people expect there."""
    for path in sorted(tree.files):
        if os.path.dirname(path) == "" and not path.startswith(".") and path not in ROOT:
            yield f"{path}: what is it? The root has only {', '.join(ROOT)}"


def long_files(tree, known=None):
    known = LONG_FILES if known is None else known
    for path in tree.sources:
        lines = tree.read(path).count("\n")
        most = LINES_IN_A_LONG_FILE if path in known else LINES_IN_A_FILE
        if lines > most:
            yield f"{path}: {lines} lines, and it has at most {most}"
        elif path in known and lines <= LINES_IN_A_FILE:
            yield f"{path}: {lines} lines are no longer long: take it off LONG_FILES (tests/house.py)"
    for path in sorted(set(known) - set(tree.sources)):
        yield f"{path}: is not there: take it off LONG_FILES (tests/house.py)"


def long_functions(tree):
    """A function begins with an unindented line that has a parenthesis, and ends with an unindented line that is a brace."""
    for path in tree.sources:
        most, begin = LINES_IN_A_TEST if path.startswith("tests/") else LINES_IN_A_FUNCTION, 0
        for number, line in enumerate(tree.read(path).split("\n"), 1):
            if line[:1].isalpha() and "(" in line and not line.endswith(";"):
                begin = number
            elif line == "}" and begin:
                if number - begin >= most:
                    yield f"{path}:{begin}: a function of {number - begin + 1} lines, and it has at most {most}"
                begin = 0


RULES = [
    (upward_includes, "files include from folders below their own alone"),
    (circles, "files of different folders do not include each other in a circle"),
    (unbuilt_sources, "every .c file is built"),
    (full_folders, f"folders have at most {FILES_IN_A_FOLDER} files"),
    (strays, "no files lie astray in the root"),
    (long_files, f"files have at most {LINES_IN_A_FILE} lines, but for those listed"),
    (long_functions, f"functions have at most {LINES_IN_A_FUNCTION} lines, and {LINES_IN_A_TEST} in tests"),
]


class Points:
    def __init__(self):
        self.count = 0

    def point(self, passed, name, why=()):
        self.count += 1
        print(f"{'ok' if passed else 'not ok'} {self.count} - {name}")
        for line in [] if passed else why:
            print(f"# {line}")

    def end(self):
        print(f"1..{self.count}")


def check(root):
    tree = Tree(root)
    points = Points()
    points.point(len(tree.sources) > 100, f"the tree is there ({len(tree.sources)} files)")
    for rule, name in RULES:
        found = list(rule(tree))
        points.point(not found, name, found)
    points.end()


GOOD = {
    "spmd/CMakeLists.txt": "add_library(spmd mesh.c base/error.c)",
    "spmd/base/error.c": '#include "spmd/base/error.h"\n',
    "spmd/base/error.h": "#include <stddef.h>\n",
    "spmd/mesh.c": '#include "spmd/mesh.h"\n#include "spmd/base/error.h"\n',
    "spmd/mesh.h": "",
    "layers/CMakeLists.txt": "include(kernels/kernels.cmake)",
    "layers/kernels/kernels.cmake": "add_library(kernels kernels/${LEVEL}.c)",
    "layers/kernels/v2.c": '#include "spmd/mesh.h"\n',
    "tests/CMakeLists.txt": "file(GLOB sources ${CMAKE_SOURCE_DIR}/tests/fake_cuda/*.c) # lost.c\n",
    "tests/fake_cuda/cuda.c": '#include "fake.h"\n',
    "tests/fake_cuda/fake.h": "",
    "tests/data/tables.txt": "",
    ".hidden/lost.c": '#include "nothing.h"',
    "build/lost.c": '#include "nothing.h"',
    "out/CMakeCache.txt": "",
    "out/lost.c": '#include "nothing.h"',
}
# A rule, additions to the good tree that break it, and the expected line.
BAD = [
    (upward_includes, {"spmd/base/error.h": '#include "spmd/mesh.h"\n'}, "spmd/base/error.h: includes spmd/mesh.h"),
    (upward_includes, {"spmd/base/error.h": '  #  include <layers/kernels/k.h>\n', "layers/kernels/k.h": ""},
     "spmd/base/error.h: includes layers/kernels/k.h"),
    (upward_includes, {"layers/kernels/v2.c": '#include "layers/formats/stores/store.h"\n', "layers/formats/stores/store.h": ""},
     "layers/kernels/v2.c: includes layers/formats/stores/store.h"),
    (upward_includes, {"layers/kernels/v2.c": '#include "collectives/mpi/wire.h"\n', "collectives/mpi/wire.h": ""},
     "layers/kernels/v2.c: includes collectives/mpi/wire.h, which is for collectives/mpi alone"),
    (upward_includes, {"collectives/nccl/hosts.c": '#include "collectives/mpi/wire.h"\n', "collectives/mpi/wire.h": ""},
     "collectives/nccl/hosts.c: includes collectives/mpi/wire.h, which is for collectives/mpi alone"),
    (upward_includes, {"drivers/a/a.c": '#include "drivers/b/b.h"\n', "drivers/b/b.h": ""},
     "drivers/a/a.c: includes drivers/b/b.h"),
    (upward_includes, {"spmd/mesh.c": '#include "spmd/lost.h"\n'}, 'spmd/mesh.c: includes "spmd/lost.h", and there is'),
    (upward_includes, {"tools/new.h": ""}, "tools/new.h: its folder has no place"),
    (circles, {"spmd/mesh.h": '#include "spmd/device/device.h"\n', "spmd/device/device.h": '#include "spmd/mesh.h"\n'},
     "spmd/device/device -> spmd/mesh -> spmd/device/device"),
    (circles, {"spmd/base/error.c": '#include "spmd/mesh.h"\n'}, "spmd/base/error -> spmd/mesh -> spmd/base/error"),
    (unbuilt_sources, {"spmd/lost.c": ""}, "spmd/lost.c: no CMakeLists.txt"),
    (unbuilt_sources, {"layers/kernels/more/v2.c": ""}, "layers/kernels/more/v2.c: no CMakeLists.txt"),
    (unbuilt_sources, {"tests/lost.c": ""}, "tests/lost.c: no CMakeLists.txt"),
    (full_folders, {f"spmd/{i}.h": "" for i in range(FILES_IN_A_FOLDER)}, "spmd: 27 files"),
    (strays, {"1e9": ""}, "1e9: what is it?"),
    (long_files, {"spmd/mesh.h": "\n" * (LINES_IN_A_FILE + 1)}, "spmd/mesh.h: 501 lines"),
    (long_functions, {"spmd/mesh.c": "\nint f(void) {\n" + "    g();\n" * (LINES_IN_A_FUNCTION - 1) + "}\n"},
     "spmd/mesh.c:2: a function of 81 lines"),
]


def made(folder, files):
    for path, text in files.items():
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return Tree(folder)


def self_test():
    points = Points()

    def find(rule, files):
        with tempfile.TemporaryDirectory() as folder:
            tree = made(folder, {**GOOD, **files})
            return list(long_files(tree, {}) if rule is long_files else rule(tree))

    data = {f"tests/data/{i}.csv": "" for i in range(2 * FILES_IN_A_FOLDER)}
    for rule, name in RULES:
        found = find(rule, data)
        points.point(not found, f"a good tree: {name}", found)
    for rule, files, expected in BAD:
        found = find(rule, files)
        points.point(len(found) == 1 and found[0].startswith(expected), f"found: {expected}", found)
    with tempfile.TemporaryDirectory() as folder:
        tree = made(folder, {"spmd/long.h": "\n" * 501, "spmd/short.h": "\n", "spmd/longer.h": "\n" * 801})
        found = list(long_files(tree, {"spmd/long.h": "", "spmd/short.h": "", "spmd/longer.h": "", "spmd/lost.h": ""}))
    points.point([line.split(":")[0] for line in found] == ["spmd/longer.h", "spmd/short.h", "spmd/lost.h"],
                 "a long file that is listed may be, until it is short, or too long, or gone", found)
    points.end()


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) <= 2 and not sys.argv[-1].startswith("-"):
        check(sys.argv[1] if len(sys.argv) == 2 else os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    else:
        sys.exit(__doc__)
