"""device.py - the images of a build (images.py) for mutants: which kernels they have, one kernel's statements and blocks, and an
image with one kernel changed."""
import json
import pathlib
import re
import subprocess

import flow
import translate
from images import title
from inline import inline
from text import Module

ENTRY = re.compile(r"^(?:\.(?:weak|visible)\s+)*\.entry\s+([\w$]+)\(.*?^\}$", re.M | re.S)
LINES = re.compile(r"^\s*\.loc[^\n]*$|\$L__\w+", re.M)  # source lines and labels


class Kernel:
    """One kernel of an image as it was built."""

    def __init__(self, image, path, source, match):
        self.image, self.name, self.path = image, match.group(1), path
        self.code = LINES.sub("", match.group())
        # Its name for readers, without the numbers of a device and a file, which differ from build to build; and its place.
        function, line = re.fullmatch(r"(?:__omp_offloading_[0-9a-f]+_[0-9a-f]+_)?(.*?)(?:_l(\d+))?", self.name).groups()
        self.title, self.place = function, (function, source, int(line or 0))

    def read(self):
        """(module, kernel), a new copy each time, which the caller may change."""
        text = self.path.read_text(encoding="utf-8")
        module = Module(ENTRY.sub(lambda m: m.group(0) if m.group(1) == self.name else "", text))
        kernel, = module.kernels
        functions = {}
        for path in self.image.paths:
            if ".func" in path.read_text(encoding="utf-8"):
                functions.update(Module(ENTRY.sub("", path.read_text(encoding="utf-8"))).functions)
        inline(kernel, functions)
        return module, kernel


def block_numbers(kernel):
    """The number of the block in which each statement lies, by its id."""
    return {id(statement): number for number, block in enumerate(flow.order(flow.make_blocks(kernel)))
            for statement in block.body + ([block.end] if block.end else [])}


class Image:
    def __init__(self, json_path, paths):
        self.json_path, self.paths = json_path, paths
        texts = [(path, path.read_text(encoding="utf-8")) for path in paths]
        self.kernels = [Kernel(self, path, title(text), match) for path, text in texts for match in ENTRY.finditer(text)]

    def write(self, module, kernel, folder):
        """The image with KERNEL in place of its own of that name. False: they are the same."""
        lines = self.json_path.read_text(encoding="utf-8").splitlines()
        head = json.loads(lines[0])
        numbers = {row[0]: i for i, row in enumerate(head["variables"])}
        used = {r for s in kernel.statements if hasattr(s, "ops") for o in s.ops for r in re.findall(r"[\w$.]+", o)}
        shared = [v for v in module.variables if v.space == "shared" and v.name in used]
        row = translate.Translation(module, kernel, numbers, shared).row()
        row["registers"] = 0  # ptxas has not seen it
        lines[1 + head["kernels"].index(kernel.name)] = json.dumps(row, separators=(",", ":"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.json_path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def images(build):
    """Of BUILD, a tree of the preset ptx."""
    folder = pathlib.Path(build) / "tests/ptx/images"
    lines = (folder / "build.ninja").read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        match = re.match(r"build ([0-9a-f]{64})\.jsonl: translate (.*) \| ", line)
        if match:
            found.append(Image(folder / (match.group(1) + ".jsonl"), [pathlib.Path(p) for p in match.group(2).split()]))
    return found


def kernels(build):
    """Lists of the kernels that have one name and one code: several files may have them of one header. Two files may have one number
    in names, as a file's is its inode when it was compiled, and a compiler's cache keeps objects."""
    found = {}
    for kernel in (kernel for image in images(build) for kernel in image.kernels):
        found.setdefault((kernel.name, kernel.code), []).append(kernel)
    return list(found.values())


class Point:
    """A point of a test: its name ("": behind the last point), whether it is ok, seconds, and by kernel its work and a bit for each block run."""

    def __init__(self, row):
        self.name, self.ok, self.seconds, self.work = row["point"], row["ok"], row["seconds"], row["work"]
        self.ran = {kernel: int(digits[::-1], 16) for kernel, digits in row["ran"].items()}

    def runs(self, kernel, block):
        return bool(self.ran.get(kernel, 0) >> block & 1)


class Test:
    """A test of the preset: a command, its environment, and its points (covered)."""

    def __init__(self, row, points):
        self.name, self.command = row["name"], row["command"]
        properties = {p["name"]: p["value"] for p in row.get("properties", [])}
        self.environment = dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", []))
        self.folder = properties.get("WORKING_DIRECTORY")
        self.points = points


def tests(build):
    """Tests with a record of their points: ctest has run them since the last image was translated."""
    folder = pathlib.Path(build) / "tests/ptx"
    translated = max(image.json_path.stat().st_mtime for image in images(build))
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True, check=True)
    found = []
    for row in json.loads(shown.stdout)["tests"]:
        path = folder / "coverage" / row["name"]
        if path.exists() and path.stat().st_mtime > translated:
            with path.open(encoding="utf-8") as lines:
                found.append(Test(row, [Point(json.loads(line)) for line in lines]))
    return found
