"""images.py BUILD FOLDER PROGRAM... - writes FOLDER/build.ninja, which translates the PTX of the programs' images for the
executor: FOLDER/SHA-256.jsonl, the hash being the image's; beside it SHA-256.registers, which its kernels have. BUILD, of the preset cuda, keeps the PTX of each image in
ptx/SHA-256 (tests/ptx/toolkit). Exit status 1: an image's is not there."""
import hashlib
import json
import os
import pathlib
import re
import struct
import sys

MACHINE_CUDA = 190
HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.append(str(HERE.parent / "spmd/device"))
import kernels  # noqa: E402 (its folder is that of the tests of devices)

RULES = """# Written by {script}.
ninja_required_version = 1.10
rule translate
  command = python3 {here}/translate/translate.py $in $registers $out
  description = translating $title
"""
TRANSLATOR = " ".join(str(HERE / "translate" / name) for name in ("translate.py", "inline.py", "instructions.py", "flow.py", "text.py"))


def size_of(data, at):
    """Bytes of the ELF file that begins there: up to the end of its last section, its program headers or its section headers."""
    programs, sections = struct.unpack_from("<QQ", data, at + 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", data, at + 54)
    ends = [programs + program_size * program_count, sections + section_size * section_count]
    for i in range(section_count):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", data, at + sections + section_size * i + 4)
        ends.append(offset + size if kind != 8 else 0)  # SHT_NOBITS lies nowhere
    return max(ends)


def images_of(path):
    """(SHA-256, registers of a thread by kernel) of each image for GPUs in the program at PATH."""
    data = pathlib.Path(path).read_bytes()
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == MACHINE_CUDA:
            image = data[at : at + size_of(data, at)]
            yield hashlib.sha256(image).hexdigest(), kernels.Image(image).attributes(kernels.REGISTERS)
        at = data.find(b"\x7fELF", at + 4)


def kept(build, programs):
    """(PTX files, registers) of each image of the programs."""
    found = {}
    for program in programs:
        for image, registers in images_of(program):
            files = sorted((build / "ptx" / image).glob("*.ptx"))
            if not files:
                sys.exit(f"images.py: {program} has an image whose PTX is not in {build}/ptx: remove {build}, and build it anew")
            found.setdefault(image, (files, registers))
    return found


def title(ptx):
    """The source file that it was made of."""
    files = re.findall(r'^\t\.file\t[0-9]+ "(.*)"', ptx, re.M)
    return os.path.basename(next((file for file in files if file.endswith(".c")), "?"))


def main():
    build, folder, *programs = sys.argv[1:]
    images = kept(pathlib.Path(build), programs)
    lines = [RULES.format(script=__file__, here=HERE)]
    pathlib.Path(folder).mkdir(exist_ok=True)
    for image, (files, registers) in sorted(images.items()):
        names = " ".join(title(file.read_text(encoding="utf-8")) for file in files)
        path = pathlib.Path(folder, f"{image}.registers")
        if not path.exists():
            path.write_text(json.dumps(registers), encoding="utf-8")
        lines.append(f"build {image}.jsonl: translate {' '.join(str(file.resolve()) for file in files)} | {path.name} {TRANSLATOR}\n"
                     f"  title = {names}\n  registers = {path.name}\n")
    (pathlib.Path(folder) / "build.ninja").write_text("".join(lines), encoding="utf-8")
    print(f"{len(images)} images of {len(programs)} programs")


if __name__ == "__main__":
    main()
