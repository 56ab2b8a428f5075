"""jobs - steps whose time is predicted."""

import typing


class Job(typing.NamedTuple):
    """A driver's run on so many DEVICES, which have equal shares of a step."""

    program: str
    options: str
    devices: int = 1


ALONE = "--mesh data=1,model=1 --schedule plain"
ARTICLE = "--layers 16 --hidden 2048 --expansion 4 --batch 512 --microbatches 8"
BLOCKS = ("train --data text --batch 8 --sequence 1024 --model-dimension 768 --n-heads 12 --blocks 12 "
          "--layers-per-block 1 --precision bf16")
ONE = "--mesh data=1,pipe=1,tensor=1"
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
}
