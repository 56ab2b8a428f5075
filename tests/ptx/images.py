"""images.py BUILD FOLDER COMPILER PROGRAM... - writes FOLDER/build.ninja, which translates the PTX of the programs' images to
C and makes of each image a library for this machine: FOLDER/SHA-256.so, the hash being the image's. BUILD, of the preset
cuda, keeps the PTX of each image in ptx/SHA-256 (tests/ptx/toolkit). Exit status 1: an image's is not there.

PTX that several images have is translated once."""
import hashlib
import os
import pathlib
import re
import struct
import sys

MACHINE_CUDA = 190
HERE = pathlib.Path(__file__).resolve().parent
RULES = """# Written by {script}.
ninja_required_version = 1.10
rule translate
  command = python3 $translator $in $out
  description = translating $title
rule compile
  command = $compiler -I{here} -O1 -fPIC -march=native -ffp-contract=off -fno-strict-aliasing -fwrapv -w -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = compiling $title
rule link
  command = $compiler -shared -Wl,-Bsymbolic -o $out $in -lm
  description = linking $out
translator = {here}/translate.py
compiler = {compiler}
"""


def size_of(data, at):
    """Bytes of the ELF file that begins there: to where its last section, its program headers or its section headers end."""
    programs, sections = struct.unpack_from("<QQ", data, at + 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", data, at + 54)
    ends = [programs + program_size * program_count, sections + section_size * section_count]
    for i in range(section_count):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", data, at + sections + section_size * i + 4)
        ends.append(offset + size if kind != 8 else 0)  # SHT_NOBITS lies nowhere
    return max(ends)


def images_of(path):
    """SHA-256 of each image for GPUs in the program at PATH."""
    data = pathlib.Path(path).read_bytes()
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == MACHINE_CUDA:
            yield hashlib.sha256(data[at : at + size_of(data, at)]).hexdigest()
        at = data.find(b"\x7fELF", at + 4)


def kept(build, programs):
    """The PTX files of each image of the programs."""
    found = {}
    for program in programs:
        for image in images_of(program):
            files = sorted((build / "ptx" / image).glob("*.ptx"))
            if not files:
                sys.exit(f"images.py: {program} has an image whose PTX is not in {build}/ptx: remove {build}, and build it anew")
            found.setdefault(image, files)
    return found


def title(ptx):
    """The source file that it was made of."""
    files = re.findall(r'^\t\.file\t[0-9]+ "(.*)"', ptx, re.M)
    return os.path.basename(next((file for file in files if file.endswith(".c")), "?"))


def main():
    build, folder, compiler, *programs = sys.argv[1:]
    images = kept(pathlib.Path(build), programs)
    lines, made = [RULES.format(script=__file__, here=HERE, compiler=compiler)], set()
    for image, files in sorted(images.items()):
        objects = []
        for file in files:
            ptx = file.read_text(encoding="utf-8")
            name = hashlib.sha256(ptx.encode()).hexdigest()
            objects.append(f"{name}.o")
            if name in made:
                continue
            made.add(name)
            lines.append(f"build {name}.c: translate {file.resolve()} | $translator\n  title = {title(ptx)}\n"
                         f"build {name}.o: compile {name}.c\n  title = {title(ptx)}\n")
        lines.append(f"build {image}.so: link {' '.join(objects)}\n")
    pathlib.Path(folder).mkdir(exist_ok=True)
    (pathlib.Path(folder) / "build.ninja").write_text("".join(lines), encoding="utf-8")
    print(f"{len(images)} images of {len(programs)} programs, {len(made)} PTX modules")


if __name__ == "__main__":
    main()
