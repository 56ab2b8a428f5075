"""nesting.py BUILD - checks that target regions keep to the promises made to the compiler (spmd/device/cuda/cuda.cmake): no
shared loop lies within another one, and no region asks OpenMP for tasks, threads or their numbers. Prints TAP.

It reads clang's code of each file before optimization: threads run the functions given to __kmpc_parallel_51, and none of these
may reach a call of it."""
import collections
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TOLD = "-fopenmp-assume-no-nested-parallelism"
PARALLEL = re.compile(r"__kmpc_parallel_[0-9]+")
OTHERS = re.compile(r"omp_(?:set|get|in)_.*|__kmpc_.*task.*|__kmpc_push_num_threads")
NESTED = """
void inner(int *x) {
#pragma omp parallel for
    for (int i = 0; i < 8; i++) x[i]++;
}
void outer(int *x) {
#pragma omp target teams distribute is_device_ptr(x)
    for (int i = 0; i < 8; i++) {
#pragma omp parallel for
        for (int j = 0; j < 8; j++) inner(x + j);
    }
}
"""


def code_of(words, folder, file):
    """Returns LLVM's unoptimized GPU code of FILE, by the compiler and options in WORDS."""
    first = next(i for i, word in enumerate(words) if word.startswith("-"))
    options = [word for word in words[first:] if word not in ("-c", "-MD", "-foffload-lto", words[-1]) and not re.match("-O|-g|-fopenmp-assume", word)]
    architectures = [word for word in options if word.startswith("--offload-arch=")]
    options = [word for word in options if word not in architectures[1:]]
    for pair in ("-o", "-MT", "-MF"):
        if pair in options:
            at = options.index(pair)
            del options[at : at + 2]
    plain = ["-O0", "-Xclang", "-disable-O0-optnone", "--offload-device-only", "-emit-llvm", "-S", "-w", "-o", "-", file]
    return subprocess.run([words[first - 1], *options, *plain], cwd=folder, capture_output=True, text=True, check=True).stdout


def judge(code):
    """Returns (functions that threads run, faults)."""
    calls, bodies, wrong, function = collections.defaultdict(set), set(), [], None
    for line in code.splitlines():
        if line.startswith("define "):
            function = re.search(r'@"?([\w.$]+)"?\(', line).group(1)
        called = re.search(r'\bcall .*?@"?([\w.$]+)"?\(', line)
        if not called:
            continue
        calls[function].add(called[1])
        if PARALLEL.fullmatch(called[1]):
            bodies |= set(re.findall(r'ptr @"?([\w.$]*outlined[\w.$]*)"?', line))
        elif OTHERS.fullmatch(called[1]):
            wrong.append(f"{function} calls {called[1]}")
    for body in bodies:
        seen, left = set(), [body]
        while left:
            function = left.pop()
            if function not in seen:
                seen.add(function)
                left += calls[function]
        wrong += [f"{body} gets to {function}" for function in seen if PARALLEL.fullmatch(function)]
    return bodies, wrong


def main():
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text(encoding="utf-8"))
    told = [command for command in commands if TOLD in command["command"]]
    count = 0
    for command in sorted(told, key=lambda command: (command["file"], command["command"])):
        file = command["file"]
        bodies, wrong = judge(code_of(shlex.split(command["command"]), command["directory"], file))
        count += 1
        print(f"{'not ' if wrong else ''}ok {count} - {file}: {len(bodies)} loops that threads share, none within another")
        for line in wrong:
            print(f"# {line}")
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "nested.c"
        path.write_text(NESTED, encoding="utf-8")
        command = told[0]
        bodies, wrong = judge(code_of(shlex.split(command["command"]), command["directory"], str(path)))
    print(f"{'ok' if len(bodies) >= 2 and wrong else 'not ok'} {count + 1} - loops within loops are seen: {len(bodies)}, {wrong}")
    print(f"{'ok' if count >= 20 else 'not ok'} {count + 2} - {count} files have target regions")
    print(f"1..{count + 2}")


main()
