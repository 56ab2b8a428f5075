#!/usr/bin/env python3
"""unread_options.py DRIVERS - tries every option of --help in every mode of the drivers: it is refused in one line, or changes
the output, or is in QUIET, the list of options that change no output. An ignored option fails. If the line of a refusal names an
option that would make the mode read this one, it does. Prints TAP."""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

drivers = os.path.abspath(sys.argv[1])
tokenizers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "tokenizers")
work = tempfile.mkdtemp()
os.chdir(work)
with open("text", "w") as file:
    file.write("".join(f"{i} times {i} is {i * i}. " for i in range(400)))
with open("talks", "w") as file:
    for i in range(20):
        turns = [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i * i}!"}]
        file.write(json.dumps({"messages": turns}) + "\n")
with open("questions", "w") as file:
    for i in range(1, 9):
        file.write(json.dumps({"prompt": f"{i}?", "choices": [f"{i * i}", f"{i}"], "answer": 0}) + "\n")

with open("rows.jsonl", "w") as file:
    for i in range(9):
        file.write(json.dumps({"text": f"{i} times <|endoftext|> {i}", "words": f"{i}"}) + "\n")
with open("numbers", "w") as file:
    file.write("1 2 3\n4 5\n")
with open("lines", "w") as file:
    file.write("one <|endoftext|><|end_of_text|>\ntwo\n")
for name in ("gpt2.json", "llama3.ranks"):
    os.symlink(os.path.join(tokenizers, name), name)
tokenizer, ranks = "--tokenizer gpt2.json", "--tokenizer llama3.ranks --pattern llama3"
subprocess.run([os.path.join(drivers, "tokens"), "shards", *f"{tokenizer} --data rows.jsonl --save shards".split()], capture_output=True, check=True)

# At most 15 rows a step: with more, oneDNN generates code for some products, for 50 ms a run.
model = "--model-dimension 16 --n-heads 2 --sequence 4 --layers-per-block 2 --blocks 1"
train = f"transformer train --mesh data=1 --json --batch 2 --steps 4 {model}"
evaluate = f"transformer evaluate --mesh data=1 --json {model}"
generate = f"transformer generate --mesh data=1 --json --sequence 8 --length 6 {model}"
plan = "--layers 4 --microbatches 4"  # a search among few layouts: one among the default's takes a second
classifier = "--json --layers 2 --hidden 8 --batch 8 --microbatches 2 --steps 3"
MODES = [
    f"{train} --data text --rope-dim 4",
    f"{train} --data text --attention gqa --sample-every 4 --evaluate-every 4 --lora-rank 2",
    f"{train} --data text --attention gqa --rope-dim 0 --evaluate-every 4 --eval-data text --optimizer sgd --lr-schedule cosine",
    f"{train} --data text --experts 4 --sample-every 4 --temperature 0",
    f"{train} --mesh data=1,context=2 --data text --attention gqa --evaluate-every 4",
    f"{train} --attention gqa --sequence 64 --chat talks",
    f"{evaluate} --batch 2 --data text",
    f"{evaluate} --batch 2 --data text --attention gqa --eval-data text",
    f"{evaluate} --batch 2 --data text --experts 4",
    f"{evaluate} --mesh data=1,context=2 --batch 2 --data text",
    f"{evaluate} --attention gqa --sequence 64 --chat talks",
    f"{evaluate} --attention gqa --sequence 16 --choices questions",
    generate,
    f"{generate} --attention gqa --temperature 0",
    f"{generate} --experts 4 --prompt ab",
    f"looping_pipeline --mesh data=1,model=2 {classifier}",
    f"loss_equality --mesh data=1,model=2 {classifier}",
    *(f"schedule --format {name}" for name in ("table", "indices", "csv", "svg", "html")),
    "schedule --json",
    "schedule --simulate",
    "schedule --simulate --fsdp",
    "schedule --check",
    "schedule --all",
    "schedule --all --json",
    "schedule --synthesize --iterations 50 --stages 2 --microbatches 4",
    "schedule --format svg --over gpipe",
    *(f"plan --section {name} --capacity 2000 {plan}" if name in ("all", "memory", "search") else f"plan --section {name}"
      for name in ("all", "memory", "data", "pipeline", "tensor", "communication", "replicas", "search")),
    *(f"plan --format {name} --pipeline interleaved-1f1b" for name in ("svg", "html", "csv")),
    *(f"sharding --example {name}" for name in ("all", "addition", "gather", "layout")),
    "gpipe --json",
    *(f"tokens encode {one}" for one in (tokenizer, f"{tokenizer} --lines", ranks)),
    *(f"tokens decode {one}" for one in (tokenizer, f"{tokenizer} --lines", ranks)),
    *(f"tokens shards {tokenizer} --data rows.jsonl --save saved {json_too}".strip() for json_too in ("", "--json")),
    *(f"tokens text {tokenizer} --data shards {json_too}".strip() for json_too in ("", "--json")),
]
STDIN = {"tokens encode": "lines", "tokens decode": "numbers"}
# Values that change the output; the others follow from --help.
VALUES = {
    "mesh": ["data=2"], "data": ["text", "1", "3"], "eval-data": ["text"], "exact": ["data=1"], "prompt": ["xy"], "prompt-tokens": ["7,8"],
    "text-key": ["words"], "lora-modules": ["*.q"], "freeze": ["*.q*"], "rope-scaling": ["8,1,4,16"], "rope-divisors": ["2,2,2,2", "2,2"],
    "keep": ["1", "4"], "metrics": ["m"], "tensorboard": ["b"], "gradients": ["g.safetensors"], "trace": ["t"], "journal": ["j"], "save": ["saved"], "logits": ["l.safetensors"],
    "schedule": ["gpipe", "looped-bfs"], "name": ["gpipe"], "over": ["gpipe"], "pipeline": ["gpipe", "inference"], "stage-times": ["1,2,1,1"],
    "optimizer": ["sgd", "adamw", "1"], "in-spec": ["-,x"], "out-spec": ["-,y"], "shape": ["4,8"], "chat": ["talks"], "choices": ["questions"],
    "stop": ["a"], "memory": ["1GB", "1000"], "offload": ["activations", "optimizer", None], "engine": ["local"], "output": ["o"],
    "single-mesh": ["data=2,model=1"], "fail": ["0@F0", "0@0"], "target-delimiter": ["x"], "launcher": ["env"], "weight-decay": ["1000"],
    "epsilon": ["1"], "length": ["3", "7"], "stage-layers": ["1,1"],
}
# These options change no number of these short runs: all layouts give the same bits, and axes have one coordinate; or the option
# names a file to write, or a waiting time.
ALL = "engine timeout checked json output format "
TRAINING = ALL + """vocabulary-parallel fsdp prefetch schedule loops stage-layers spread-head tensor-pieces tensor-layout keep-logits wgrad-group zero overlap fuse no-fuse no-rewrite
    graph delay-ms offload recompute check-replicas progress-every advice journal metrics tensorboard gradients trace save save-frozen measure-peak machine protect """
QUIET = {
    "transformer": TRAINING + "chat-template decay-biases beta2 rope-scaling data groups in-flight threads end-of-text stop kernel-copies pack",
    "looping_pipeline": TRAINING + "restart",
    "loss_equality": TRAINING + "single-mesh",
    "schedule": ALL + "fsdp wgrad-group buffers simulate check overlap memory seconds search-seed",
    "plan": ALL + "loops section heads layers",
    "sharding": ALL + "out-spec",
    "gpipe": ALL + "microbatches partitions trace",
    "tokens": ALL + "threads document-token",  # that one is in the files
}
# Values of options that lines of refusal ask for.
ASKED = {
    "experts": "2", "evaluate-every": "1", "sample-every": "1", "save": "s", "save-every": "1", "restart": "1", "journal": "j", "lora-rank": "2",
    "chat": "talks", "choices": "questions", "plan": "search --machine nowhere", "offload": "optimizer", "tokenizer": "nowhere",
    "eval-data": "text", "temperature": "1", "rope-dim": "4", "model": "nowhere",
}
CLOCK = re.compile(r'"[a-z_0-9]*(?:ms|second|mfu|flops|measured|peak_bytes|simulated|predicted)[a-z_0-9]*":'
                   r'(?:[-\d.e+]+|null|"[^"]*"|\{[^}]*\})|"processes":\[.*?\}\]|"options":\{[^}]*\}')


def call(words):
    """Returns the run's status and output without times and without its options."""
    here = tempfile.mkdtemp(dir=work)
    for name in ("text", "talks", "questions", "rows.jsonl", "shards", "gpt2.json", "llama3.ranks"):
        os.symlink(os.path.join(work, name), os.path.join(here, name))
    with open(os.path.join(work, STDIN.get(" ".join(words[:2]), os.devnull))) as stdin:
        done = subprocess.run([os.path.join(drivers, words[0]), *words[1:]], capture_output=True, text=True, stdin=stdin, cwd=here, timeout=120)
    shutil.rmtree(here)
    out = done.stdout
    if words[0] in ("transformer", "looping_pipeline", "loss_equality"):
        out = re.sub(r'"coordinates":\[[^]]*\],', "", CLOCK.sub("", out))
    return done.returncode, out, done.stderr


told = {}


def options_of(words):
    """Returns the name, the value in --help, and the default of each option."""
    command = tuple(words[:2]) if words[0] in ("transformer", "tokens") else (words[0],)
    if command not in told:
        text = subprocess.run([os.path.join(drivers, command[0]), *command[1:], "--help", "all"], capture_output=True, text=True).stdout
        told[command] = []
        for part in re.split(r"\n  (?=--)", text):
            head = re.match(r"--(\[no-\])?([a-z0-9-]+)(?: ([^ \n]+(?:\n {6}[^ \n]+)*))?", part)
            default = re.search(r"default\s+([^;)\s]+)", part)
            if head and head[2] not in ("help", "version", "plan"):  # that one measures the machine
                value = re.sub(r"\s", "", head[3]) if head[3] and ("|" in head[3] or not head[1]) else None
                told[command].append((head[2], value, bool(head[1]), default[1] if default else ""))
    return command, told[command]


def tries(name, value, switch, default):
    if name in VALUES:
        return [[f"--{name}"] if one is None else [f"--{name}", one] for one in VALUES[name]]
    if value is None:
        return [[f"--no-{name}"] if switch and default == f"--{name}" else [f"--{name}"]]
    if "|" in value:
        return [[f"--{name}", one] for one in value.strip("|").split("|") if one != default]
    if value in "NX":
        return [[f"--{name}", one] for one in (("1", "2", "4", "0", "8") if value == "N" else ("0.5", "2", "0", "100")) if one != default]
    return [[f"--{name}", "nowhere"]]


def judge(words, plain, option):
    """Returns the fate of an option: read, unread (refused because the mode does not read it), refused, quiet or ignored."""
    ends = []
    for given in tries(*option):
        status, out, err = call([*words, *given])
        if status == 2 and err.count("\n") == 1 and f": --{option[0]}: is read only " in err:
            return "unread", err
        if status == 2 and err.count("\n") == 1:
            ends.append("refused")
        elif status or (out, err) != plain[1:]:
            return "read", ""
        elif option[0] in QUIET[words[0]].split():
            return "quiet", ""
        else:
            ends.append("ignored")
    return ("ignored" if "ignored" in ends else "refused"), ""


def follow(words, given, line):
    """Returns the fate of GIVEN if WORDS also have the options that LINE, its refusal, names first."""
    asked = []
    for term in line.split(": is read only ")[1].split(", or ")[0].strip().split(" and "):
        how, what = term.split(" ", 1)
        if how == "by":
            return "of another command"
        name, *value = what.removeprefix("--").split(" or ")[0].split(" ")
        if how == "without":
            at = words.index(f"--{name}")
            words = words[:at] + words[at + (1 if at + 1 == len(words) or words[at + 1].startswith("--") else 2):]
        else:
            asked += [f"--{name}", *(value or ASKED.get(name, "").split())]
    return "unread" if f": {given[0].replace('--no-', '--')}: is read only " in call([*words, *asked, *given])[2] else "read"


followed = set()


def probe(mode):
    words = mode.split()
    command, options = options_of(words)
    plain = call(words)
    verdicts = {}
    if plain[0]:
        return command, {"": f"status {plain[0]}: {plain[2]}"}
    for option in options:
        if "--" + option[0] in words and words[:2] != ["plan", "--section"]:  # that one is given some to be fast; the last value counts
            continue
        verdict, line = judge(words, plain, option)
        if verdict == "unread" and line not in followed and follow(words, tries(*option)[0], line) == "unread":
            verdict = f"not read where it should be: {line.strip()}"
        followed.add(line)
        verdicts[option[0]] = verdict
    return command, verdicts


points = 0
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for mode, (_, verdicts) in zip(MODES, pool.map(probe, MODES)):
        points += 1
        wrong = [name for name, verdict in verdicts.items() if verdict not in ("read", "unread", "refused", "quiet")]
        print(f"{'not ' if wrong else ''}ok {points} - each option is read or refused: {mode}")
        for name in wrong:
            print(f"# --{name}: {verdicts[name]}")
print(f"1..{points}")
shutil.rmtree(work)
