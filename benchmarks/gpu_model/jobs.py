"""jobs - steps whose time is predicted."""

import re
import typing


class Others(typing.NamedTuple):
    """A published figure: its source, tokens a second of one H100, and whether the model is the same."""

    who: str
    speed: float
    same: bool = True


class Job(typing.NamedTuple):
    """A driver's run on DEVICES devices, which have equal shares of a step, and the figures that others have published."""

    program: str
    options: str
    devices: int = 1
    published: tuple = ()
    passes: int = 1  # of a step; if there are more than three, runs of two and of three passes are counted


ALONE = "--mesh data=1,model=1 --schedule plain"
ARTICLE = "--layers 16 --hidden 2048 --expansion 4 --batch 512 --microbatches 8"
BLOCKS = ("train --data text --batch 8 --sequence 1024 --model-dimension 768 --n-heads 12 --blocks 12 "
          "--layers-per-block 1 --precision bf16")
ONE = "--mesh data=1,pipe=1,tensor=1"

# GPT-2 of 124 million parameters with llm.c's padded vocabulary, and Qwen2.5-0.5B: their configurations, in the
# words of the driver transformer. A step has 524,288 tokens, in passes of 8 sequences.
FAMILIES = {
    "GPT-2": "--attention gqa --rope-dim 0 --mlp gelu --norm layer --norm-epsilon 1e-5 --biases all",
    "Qwen2.5": "--attention gqa --rope-base 1e6 --mlp silu --norm rms --norm-epsilon 1e-6 --biases qkv",
}
SIZES = {
    "GPT-2": {"model-dimension": 768, "n-heads": 12, "blocks": 12, "vocab-size": 50304, "learned-positions": 1024},
    "Qwen2.5": {"model-dimension": 896, "n-heads": 14, "kv-heads": 2, "mlp-dim": 4864, "blocks": 24, "vocab-size": 151936},
}
STEP = {"layers-per-block": 1, "sequence": 1024, "batch": 512, "accumulate": 64}
SMALL = {"model-dimension": 64, "n-heads": 4, "mlp-dim": 128, "blocks": 2, "vocab-size": 512, "sequence": 64}
# The steps of llm.c, whose median is 139 ms, on eight GPUs:
#     https://github.com/KellerJordan/modded-nanogpt/tree/master/records/track_1_short/2024-10-13_llmc
# A record of training to the loss of that run: 365.7 million tokens in 79.53 s on eight, by another model:
#     https://github.com/KellerJordan/modded-nanogpt/tree/master/records/track_1_short/2026-07-17_FP8DownProjection
# llm.q on one GPU: https://github.com/IST-DASLab/llmq/blob/main/benchmarks/H100x1.md
PUBLISHED = {
    "GPT-2": (Others("llm.c", 524288 / 0.139 / 8), Others("modded-nanogpt", 365.7e6 / 79.53 / 8, False)),
    "Qwen2.5": (Others("llm.q", 149e3),),
}


def quoted(family, more=""):
    """Returns a step of the model of FAMILY, with MORE options."""
    words = " ".join(f"--{name} {size}" for name, size in (SIZES[family] | STEP).items())
    options = f"train --data text {ONE} --precision bf16 --keep-logits {FAMILIES[family]} {words} {more}"
    return Job("transformer", options.strip(), 1, PUBLISHED[family], STEP["accumulate"])


def of_passes(job, passes):
    """Returns JOB with PASSES passes in a step."""
    batch = int(re.search(r"--batch (\d+)", job.options).group(1)) * passes // job.passes
    options = re.sub(r"--accumulate \d+", f"--accumulate {passes}", re.sub(r"--batch \d+", f"--batch {batch}", job.options))
    return job._replace(options=options, passes=passes)


def of_sizes(job, sizes):
    """Returns JOB with other SIZES."""
    words = job.options.split()
    given = {f"--{name}": str(size) for name, size in sizes.items()}
    return job._replace(options=" ".join(given.get(before, word) for before, word in zip(["", *words], words)))


def smaller(job):
    """Returns two passes of a quoted JOB with a small model, to try a build."""
    return of_sizes(of_passes(job, 2), SMALL)


JOBS = {
    "article, bf16": Job("looping_pipeline", f"{ALONE} {ARTICLE} --precision bf16"),
    "article, bf16 stored": Job("looping_pipeline", f"{ALONE} {ARTICLE} --precision bf16 --storage bf16"),
    "article, tf32": Job("looping_pipeline", f"{ALONE} {ARTICLE} --precision tf32"),
    "article, bf16, two GPUs": Job("looping_pipeline", "--mesh data=2,model=1 --schedule plain --engine nccl "
                                   f"{ARTICLE} --precision bf16", 2),
    "transformer, bf16": Job("transformer", f"{BLOCKS} {ONE}"),
    "transformer, bf16 stored": Job("transformer", f"{BLOCKS} {ONE} --storage bf16"),
    "transformer, bf16, a microbatch a sequence": Job("transformer", f"{BLOCKS} {ONE} --microbatches 8"),
    "transformer, bf16 stored, a microbatch a sequence": Job(
        "transformer", f"{BLOCKS} {ONE} --microbatches 8 --storage bf16"),
    "GPT-2 124M, bf16": quoted("GPT-2"),
    "GPT-2 124M, bf16 stored": quoted("GPT-2", "--storage bf16"),
    "Qwen2.5-0.5B, bf16": quoted("Qwen2.5"),
    "Qwen2.5-0.5B, bf16 stored": quoted("Qwen2.5", "--storage bf16"),
}

# The jobs whose kernels are counted, by two runs each: as wide as the whole job, and with as many blocks of queries as the
# deep kernels of attention ask for, so that its kernels are taken; with two passes where it has several, as later ones add.
# Chunks of the vocabulary are as large.
COUNTED = [name for name in JOBS if "two GPUs" not in name and "a microbatch a sequence" not in name]
RUNS = {
    "looping_pipeline": {"small": {"layers": 2, "batch": 256}, "large": {"layers": 2, "batch": 512}},
    "transformer": {"small": {"blocks": 1, "batch": 3}, "large": {"blocks": 1, "batch": 4}},
}
VOCABULARIES = {"50304": 8 * 3144, "151936": 8 * 2374}


def counted_run(job, run):
    """Returns the run of JOB that RUN names, "small" or "large"."""
    sizes, passes = RUNS[job.program][run], min(job.passes, 2)
    vocabulary = {"vocab-size": VOCABULARIES[size] for size in re.findall(r"--vocab-size (\d+)", job.options)}
    return of_sizes(job, sizes | vocabulary | {"batch": passes * sizes["batch"], "accumulate": passes})._replace(passes=passes)
