#!/usr/bin/env python3
"""circles.py BUILD [ROOT] - circles of calls between files of a folder, and calls from an engine's folder to another
engine's, in the objects of a build; prints TAP.
circles.py --list BUILD [ROOT] - prints them: the folder, the number of files, the files.
circles.py --self-test [CC] - compiles small files with circles, and sees them found; prints TAP.

A file calls another one if its object needs a function that the other's object defines. A circle is a set of files of
one folder, each of which reaches each other one by calls within the folder. Engines call each other by tables of
functions (struct sl_engine_table) alone."""

import json
import os
import re
import subprocess
import sys
import tempfile

from house import Points

# The remaining circles by folder. None is added; if one becomes smaller in the code, make it smaller here, too.
LEFT = {
    "tests/fake_cuda": ["cuda graph record streams"],
}

ENGINES = ("collectives/local", "collectives/mpi", "collectives/nccl", "collectives/replay")


def objects(build, root):
    """Returns the objects of a build with their sources, as paths from ROOT. Objects of removed sources and targets stay in a
    build, but not in its list of commands."""
    commands, listed = os.path.join(build, "compile_commands.json"), None
    if os.path.exists(commands):
        with open(commands, encoding="utf-8") as file:
            listed = {os.path.normpath(os.path.join(entry["directory"], entry.get("output") or re.search(r" -o (\S+)", entry["command"])[1])) for entry in json.load(file)}
    for folder, _, names in os.walk(build):
        place = re.fullmatch(r"(.*?)/?CMakeFiles/[^/]+\.dir/?(.*)", os.path.relpath(folder, build))
        for name in names if place else []:
            parts = [".." if part == "__" else part for part in place[2].split("/")]
            source = os.path.normpath(os.path.join(place[1], *parts, name[:-2]))
            path = os.path.normpath(os.path.join(os.path.abspath(folder), name))
            if name.endswith(".c.o") and os.path.exists(os.path.join(root, source)) and (listed is None or path in listed):
                yield os.path.join(folder, name), source


def read_functions(source_of):
    """Returns the functions that each source defines, and the functions that it calls."""
    defined, needed = {}, {}
    command = [os.environ.get("NM", "nm"), "-A", "-g", "-P", *source_of]
    for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        path, symbol = line.rsplit(": ", 1)
        name, kind = symbol.split()[:2]
        if kind in "TWU":
            (needed if kind == "U" else defined).setdefault(source_of[path], set()).add(name)
    return defined, needed


def read_all(build, root):
    """Returns the functions that each source of a build defines, and the functions that it calls."""
    source_of = dict(objects(build, root))
    return read_functions(source_of) if source_of else ({}, {})


def read_calls(defined, needed):
    """Returns for each file the files of its own folder that it calls."""
    home = {}
    for source, functions in defined.items():
        for function in functions:
            home.setdefault((os.path.dirname(source), function), set()).add(source)
    calls = {source: set() for source in {**defined, **needed}}
    for source, functions in needed.items():
        for function in functions - defined.get(source, set()):
            calls[source] |= home.get((os.path.dirname(source), function), set())
    return calls


def reached(calls, start):
    found, left = set(), [start]
    while left:
        for source in calls[left.pop()] - found:
            found.add(source)
            left.append(source)
    return found


def find_circles(calls):
    """Returns sets of two or more files by folder; a file is named without its folder and its ending."""
    reach = {source: reached(calls, source) for source in calls}
    found = {}
    for circle in {frozenset(other for other in reach[source] if source in reach[other]) for source in calls}:
        if len(circle) > 1:
            names = sorted(os.path.basename(source)[:-2] for source in circle)
            found.setdefault(os.path.dirname(min(circle)), []).append(" ".join(names))
    return {folder: sorted(circles) for folder, circles in sorted(found.items())}


def engine_of(source, engines):
    return next((engine for engine in engines if source.startswith(engine + "/")), None)


def strange_calls(defined, needed, engines):
    """Returns the calls from an engine's folder to functions of another engine's folder."""
    home = {}
    for source, functions in sorted(defined.items()):
        for function in functions if engine_of(source, engines) else []:
            home[function] = source
    for source in sorted(needed):
        for function in sorted(needed[source] & home.keys() if engine_of(source, engines) else []):
            if engine_of(home[function], engines) != engine_of(source, engines):
                yield f"{source}: calls {function} of {home[function]}"


def compare(found, left, built):
    """Returns lines about new circles, and about circles of LEFT that are gone, among the files BUILT."""
    for folder in sorted({*found, *left}):
        for circle in found.get(folder, []):
            if circle not in left.get(folder, []):
                yield f"{folder}: a circle of calls: {circle}"
        for circle in left.get(folder, []):
            there = all(f"{folder}/{name}.c" in built for name in circle.split())
            if there and circle not in found.get(folder, []):
                yield f"{folder}: not a circle any more: take it off LEFT (tests/circles.py), or make it smaller: {circle}"


def check(build, root):
    defined, needed = read_all(build, root)
    calls = read_calls(defined, needed)
    points = Points()
    points.point(len(calls) > 100, f"the objects are there ({len(calls)} files)")
    wrong = list(compare(find_circles(calls), LEFT, set(calls)))
    points.point(not wrong, "no circles of calls between files of a folder, but for those that are left", wrong)
    strange = list(strange_calls(defined, needed, ENGINES))
    points.point(not strange, "no calls between the folders of engines, but by tables", strange)
    points.end()


def show(build, root):
    for folder, circles in find_circles(read_calls(*read_all(build, root))).items():
        for circle in circles:
            print(f"{folder}: {len(circle.split())} files: {circle}")


def self_test(compiler):
    points = Points()
    files = {
        "a/one.c": "void two(void); void one(void) { two(); }",
        "a/two.c": "void three(void); void two(void) { three(); }",
        "a/three.c": "void one(void); void high(void); void three(void) { one(); high(); }",
        "a/high.c": "void one(void); void high(void) { one(); }",
        "a/top.c": "void one(void); void top(void) { one(); }",
        "a/table.c": "void top(void); extern int data; void (*const table)(void) = top; int *use(void) { return &data; }",
        "b/here.c": "void there(void); void here(void) { there(); }",
        "c/there.c": "void here(void); void there(void) { here(); }",
        "c/own.c": "void there(void) {} void own(void) { there(); }",
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            object_ = os.path.join(root, "build", os.path.dirname(path), "CMakeFiles/x.dir", os.path.basename(path) + ".o")
            for name in os.path.join(root, path), object_:
                os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
            subprocess.run([compiler, "-c", os.path.join(root, path), "-o", object_], check=True)
        defined, needed = read_all(os.path.join(root, "build"), root)
        calls = read_calls(defined, needed)
        found = find_circles(calls)
        points.point(found == {"a": ["high one three two"]}, "one circle, in one folder", [str(found)])
        strange = list(strange_calls(defined, needed, ("a", "b", "c")))
        points.point(strange == ["b/here.c: calls there of c/there.c", "c/there.c: calls here of b/here.c"],
                     "calls between folders of engines, but not those by tables", strange)
        points.point(not list(strange_calls(defined, needed, ("a", "c"))), "other folders are called freely")
        os.remove(os.path.join(root, "a/two.c"))
        without = find_circles(read_calls(*read_all(os.path.join(root, "build"), root)))
        points.point(without == {}, "an object whose source is gone does not count", [str(without)])
    for left, name, expected in [
        (found, "a circle that is listed may stay", []),
        ({}, "a new one may not", ["a: a circle of calls: high one three two"]),
        ({"a": ["high one three top two"]}, "nor one that has become smaller without the list",
         ["a: a circle of calls: high one three two", "a: not a circle any more"]),
        ({**found, "a/b": ["x y"]}, "a circle of files that are not built is not missed", []),
    ]:
        lines = list(compare(found, left, set(calls)))
        same = len(lines) == len(expected) and all(line.startswith(start) for line, start in zip(lines, expected))
        points.point(same, name, lines)
    points.end()


if __name__ == "__main__":
    above = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    if sys.argv[1:2] == ["--self-test"] and len(sys.argv) <= 3:
        self_test(*(sys.argv[2:] or ["cc"]))
    elif sys.argv[1:2] == ["--list"] and 3 <= len(sys.argv) <= 4:
        show(sys.argv[2], *(sys.argv[3:] or [above]))
    elif 2 <= len(sys.argv) <= 3 and not sys.argv[1].startswith("-"):
        check(sys.argv[1], *(sys.argv[2:] or [above]))
    else:
        sys.exit(__doc__)
