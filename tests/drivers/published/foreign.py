#!/usr/bin/env python3
"""foreign.py DRIVERS DATA - models in files by other writers: each entry of a file changes the logits as it should, or the file
is refused with the entry's name. The files are made here; the reference is double.py. Prints TAP."""

import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import double
from double import SIZES, TOKENS, config, folder, gguf, logits, params
from published import read

driver = os.path.join(os.path.abspath(sys.argv[1]), "transformer")
data = os.path.abspath(sys.argv[2])
points = 0


def point(good, name, *lines):
    global points
    points += 1
    print(f"{'ok' if good else 'not ok'} {points} - {name}")
    for line in lines if not good else ():
        print(f"# {line}")


def run(*arguments):
    return subprocess.run([driver, *arguments], capture_output=True, text=True, errors="replace", timeout=120)


def generate(path, *more, tokens=TOKENS, given="--model"):
    return run("generate", given, path, "--mesh", "data=1", "--prompt-tokens", ",".join(map(str, tokens)), "--length",
               str(len(tokens) + 1), "--temperature", "0", "--json", "--logits", "logits", *more)


def difference(want):
    got = read("logits")["logits"][1]
    flat = [v for row in want for v in row]
    return max(abs(a - b) for a, b in zip(got, flat)) / (max(flat) - min(flat))


def gives(name, path, want, *more, **how):
    done = generate(path, *more, **how)
    good = done.returncode == 0 and not done.stderr
    worst = difference(want) if good else 1
    point(good and worst < 1e-5, f"{name} ({worst:.2g})", done.stderr)


def refused(name, path, *texts):
    done = generate(path)
    good = done.returncode == 2 and done.stderr.count("\n") == 1 and all(text in done.stderr for text in texts)
    point(good, f"refused: {name}", done.returncode, done.stderr)


# ---- tensors ----

ONES = [SIZES["channels"]], [1.0] * SIZES["channels"]


def biases():
    kinds = {"qkv": dict(qkv=True), "out": dict(out=True), "attention": dict(qkv=True, out=True), "mlp": dict(mlp=True),
             "qkv and mlp": dict(qkv=True, mlp=True), "out and mlp": dict(out=True, mlp=True),
             "all products": dict(qkv=True, out=True, mlp=True)}
    for name, kind in kinds.items():
        p = params(**kind)
        want = logits(p)
        gguf("model.gguf", p)
        gives(f"GGUF, llama: biases of {name}", "model.gguf", want)
        folder("model", p, config())
        gives(f"folder, llama: biases of {name}", "model", want)
    folder("model", params(qkv=True, out=True, mlp=True), config(attention_bias=True, mlp_bias=True))
    gives("folder, llama: biases that config.json says", "model", want)
    gives("the same over tensor", "model", want, "--mesh", "data=1,tensor=2")
    for family, kind in ("qwen2", {}), ("qwen3", dict(head_norms=True)):
        p = params(qkv=True, out=True, **kind)
        gguf("model.gguf", p, family)
        gives(f"GGUF, {family}: biases of attention", "model.gguf", logits(p))
        folder("model", p, config(family))
        gives(f"folder, {family}: biases of attention", "model", logits(p))


def untaken():
    p = params()
    raw = lambda values: struct.pack(f"<{len(values)}f", *values)
    for name in ("output.bias", "output_norm.bias", "blk.0.attn_q.scale", "rope_factors_long.weight", "rope_factors_short.weight",
                 f"blk.{SIZES['layers']}.attn_norm.weight", "blk.0.attn_norm.bias", "blk.0.attn_sinks.weight"):
        gguf("model.gguf", p, others={name: (ONES[0], raw(ONES[1]), 0)})
        refused(f"GGUF: {name}", "model.gguf", f"tensor {name}: no parameter")
    layer = "model.layers.0."
    for name in (layer + "input_layernorm.bias", "lm_head.bias", f"model.layers.{SIZES['layers']}.input_layernorm.weight",
                 layer + "self_attn.q_proj.weight_scale", "score.weight", layer + "self_attn.q_norm.weight"):
        folder("model", {**p, name: ONES}, config())
        refused(f"folder: {name}", "model", f"tensor {name}: no parameter")
    folder("model", params(qkv=True), config(attention_bias=False))
    refused("biases that config.json denies", "model", "proj.bias: no parameter")
    half = params(qkv=True)
    del half[layer + "self_attn.k_proj.bias"]
    gguf("model.gguf", half)
    refused("biases of queries alone", "model.gguf", "tensor blk.0.attn_k.bias is missing")
    tied = params(tied=True)
    table = tied["model.embed_tokens.weight"]
    folder("model", {**tied, "lm_head.weight": table}, config(tie_word_embeddings=True))
    gives("a head that is the tied table", "model", logits(tied))
    folder("model", {**tied, "lm_head.weight": (table[0], table[1][:-1] + [9.0])}, config(tie_word_embeddings=True))
    refused("a head that is not the tied table", "model", "tensor lm_head.weight: no parameter")


def harmless():
    p = params()
    want = logits(p)
    for dtype, one in ("F32", 1.0), ("F64", 1.0), ("I64", 1), ("U8", 1), ("BOOL", True):
        more = {"model.layers.0.self_attn.rotary_emb.inv_freq": ([6], [one] * 6, dtype), "position_ids": ([3], [one] * 3, dtype)}
        folder("model", {**p, **more}, config())
        gives(f"buffers of type {dtype}", "model", want)
    folder("model", {**p, "model.norm.weight": ([SIZES["channels"]], [1.0] * SIZES["channels"], "F64")}, config())
    refused("a parameter of F64", "model", "tensor model.norm.weight: its type, F64, is not supported: F32, F16 and BF16 are")
    folder("model", {f"_orig_mod.{name}": of for name, of in p.items()}, config())
    gives("names of a compiled module", "model", want)
    folder("model", {name.removeprefix("model."): of for name, of in p.items()}, config())
    gives("names without model.", "model", want)


# ---- keys ----


def keys():
    p = params()
    want = logits(p)
    for key, of, line in (("attention_bias", 1, "attention_bias: there must be true or false"), ("mlp_bias", "no", "mlp_bias: there must"),
                          ("layer_types", ["full_attention", "sliding_attention"], "layer_types is sliding_attention"),
                          ("per_layer_config", {"0": {"head_dim": 4}}, "per_layer_config is there"),
                          ("is_encoder_decoder", True, "is_encoder_decoder is true"), ("vocab_size", 49, "has 48 rows, and vocab_size is 49"),
                          ("hidden_act", 7, "hidden_act is no name"), ("tie_word_embeddings", 0, "tie_word_embeddings: there must be"),
                          ("rope_parameters", {"factor": 4.0}, "rope_parameters.rope_type is missing"),
                          ("rope_scaling", {"factor": 4.0}, "rope_scaling.rope_type is missing"),
                          ("rope_scaling", {"rope_type": "yarn", "factor": 4.0, "truncate": 1}, "rope_scaling.truncate is neither"),
                          ("rope_scaling", {"rope_type": "linear", "factor": 0.5}, "rope_scaling.factor is below 1"),
                          ("rope_scaling", {"rope_type": "longrope"}, "rope_scaling.rope_type is longrope")):
        folder("model", p, config(**{key: of}))
        refused(f"config.json: {key} {json.dumps(of)}", "model", line)
    folder("model", params(qkv=True), config("qwen2", use_sliding_window=True))
    refused("config.json: use_sliding_window of a qwen2", "model", "use_sliding_window is true")
    folder("model", p, config(scale_attn_weights=False, use_sliding_window=True, no_such_key={"a": 1}, pretraining_tp=2,
                              layer_types=["full_attention"] * 2))
    gives("config.json: keys of other families, and none of any", "model", want)
    for key, of, line in (("attention__scale", 2.0, "llama.attention.scale is there"), ("logit_scale", 2.0, "llama.logit_scale is there"),
                          ("expert_count", 2, "llama.expert_count is not 0"), ("attention__causal", False, "llama.attention.causal is not true"),
                          ("vocab_size", 49, "has 48 rows, and vocab_size is 49"), ("attention__value_length", 8, "attention.value_length is not"),
                          ("rope__scaling__type", "longrope", "rope.scaling.type is longrope"),
                          ("rope__scaling__type", 1, "rope.scaling.type is no text"), ("rope__scaling__factor", 4, "rope.scaling.factor: there must"),
                          ("attention__head_count_kv", [2, 1], "attention.head_count_kv: there must be a number")):
        gguf("model.gguf", p, **{key: of})
        refused(f"GGUF: {key} {of}", "model.gguf", line)
    gguf("model.gguf", p, expert_count=0, attention__causal=True, vocab_size=48, attention__value_length=12, tensor_data_layout="Meta")
    gives("GGUF: keys that say what the model is", "model.gguf", want)
    gguf("model.gguf", p, attention__head_count_kv=[2, 2], feed_forward_length=[32, 32])
    gives("GGUF: equal numbers of heads for each layer", "model.gguf", want)
    gguf("model.gguf", p, attention__sliding_window=4)
    gives("GGUF: a window", "model.gguf", logits(p, window=4))


def windows():
    """If the config.json of a Mistral has no window, the window is 4096 tokens, also in its checkpoint."""
    folder("model", params(), config("mistral", max_position_embeddings=5000))
    done = run("train", "--model", "model", "--data", "tokens", "--sequence", "12", "--batch", "1", "--steps", "1", "--save", "run", "--mesh",
               "data=1")
    if done.returncode:
        return point(False, "folder, mistral: a run", done.stderr)
    with open("run/step-00000001.safetensors", "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["__metadata__"]
    point(head.get("option.window") == "4096", "folder, mistral: no window is one of 4096 tokens", {k: v for k, v in head.items() if "window" in k})


def parts():
    p = params()
    first = double.split("parts", p, 3)
    gives("GGUF: three parts", first, logits(p))
    gives("GGUF: three parts over tensor", first, logits(p), "--mesh", "data=1,tensor=2")
    refused("the second part", "parts-00002-of-00003.gguf", "part 2 of 3: name the first one")
    os.rename(first, "other.gguf")
    refused("a first part of another name", "other.gguf", "the first of 3 parts, whose names must end with -00001-of-00003.gguf")
    os.rename("other.gguf", first)
    os.remove("parts-00003-of-00003.gguf")
    refused("a part that is missing", first, "parts-00003-of-00003.gguf: cannot be opened")
    first = double.split("odd", p, 2, change=lambda part, keys: keys.update({"split.no": 5} if part else {}))
    refused("a part of another number", first, "odd-00002-of-00002.gguf: split.no and split.count are not those of part 2 of 2")
    first = double.split("few", p, 2, change=lambda part, keys: keys.update({"split.tensors.count": 7}))
    refused("parts with more tensors", first, "its parts have 21 tensors, and split.tensors.count is 7")


# ---- rotations ----


def scalings():
    p = params()
    width, base = SIZES["width"], SIZES["base"]
    linear = [base ** (-2 * i / width) / 4 for i in range(width // 2)]
    want = logits(p, rates=linear)
    for name, of in (("rope.scaling.factor alone", dict(rope__scaling__factor=4.0)), ("rope.scale_linear", dict(rope__scale_linear=4.0)),
                     ("type linear", dict(rope__scaling__factor=4.0, rope__scaling__type="linear"))):
        gguf("model.gguf", p, **of)
        gives(f"GGUF: {name}", "model.gguf", want)
    gguf("model.gguf", p, rope__scaling__factor=4.0, rope__scaling__type="none")
    gives("GGUF: type none", "model.gguf", logits(p))
    for key in "rope_scaling", "rope_parameters":
        for type_key in "type", "rope_type":
            folder("model", p, config(**{key: {type_key: "linear", "factor": 4.0}}))
            gives(f"folder: linear, by {key} and {type_key}", "model", want)
    folder("model", p, config(rope_theta=7.0, rope_parameters={"rope_type": "default", "rope_theta": base}))
    gives("folder: rope_theta of rope_parameters goes before that beside it", "model", logits(p))
    folder("model", p, config(rope_scaling={}, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": base}))
    gives("folder: an empty rope_scaling says nothing", "model", want)
    yarn(p)


def yarn(p):
    """YaRN's rates and attention factor equal those of transformers 5.24 (tests/data/published/yarn.json)."""
    with open(os.path.join(data, "published/yarn.json")) as file:
        cases = json.load(file)
    keys = {"factor": "factor", "original_max_position_embeddings": "original_context_length", "beta_fast": "yarn_beta_fast",
            "beta_slow": "yarn_beta_slow"}
    for case in cases:
        said, name = case["rope_parameters"], ", ".join(case["rope_parameters"])
        want = logits(p, rates=case["rates"], amplitude=case["attention_factor"])
        folder("model", p, config(rope_parameters={"rope_type": "yarn", "rope_theta": SIZES["base"], **said}))
        gives(f"folder: YaRN, {name}", "model", want)
        if set(said) <= set(keys) and said["factor"]:
            gguf("model.gguf", p, **{f"rope__scaling__{keys[key]}": of for key, of in said.items()}, rope__scaling__type="yarn")
            gives(f"GGUF: YaRN, {name}", "model.gguf", want)
    case = cases[0]
    want = logits(p, rates=case["rates"], amplitude=case["attention_factor"])
    folder("model", p, config(rope_parameters={"rope_type": "yarn", "rope_theta": SIZES["base"], **case["rope_parameters"]}))
    for to, path in ("hf", "back"), ("gguf", "back/model.gguf"):
        done = run("export", "--model", "model", "--format", to, "--type", "f32", "--to", "back")
        point(done.returncode == 0, f"YaRN is exported as {to}", done.stderr)
        gives(f"YaRN, exported as {to}", path, want)
    run("train", "--model", "model", "--data", "tokens", "--sequence", "12", "--batch", "1", "--steps", "1", "--lr", "1e-30", "--save", "yarn",
        "--mesh", "data=1")
    done = run("generate", "--params", "yarn/step-00000001.safetensors", "--prompt-tokens", ",".join(map(str, TOKENS)), "--length",
               str(len(TOKENS) + 1), "--temperature", "0", "--logits", "logits", "--mesh", "data=1")
    worst = difference(want) if done.returncode == 0 else 1
    point(worst < 1e-5, f"YaRN is in what a run saves ({worst:.2g})", done.stderr)


# ---- adapters ----


def adapters():
    p = params()
    folder("model", p, config())
    added = double.adapters("peft", p)
    want = logits(added)
    gives("PEFT: adapters of a folder", "model", want, "--adapters", "peft")
    gives("the same over pipe and tensor", "model", want, "--adapters", "peft", "--mesh", "data=1,pipe=2,tensor=2")
    gguf("model.gguf", p)
    gives("PEFT: adapters beside a GGUF file", "model.gguf", want, "--adapters", "peft")
    some = double.adapters("some", p, ("self_attn.v_proj",), layers=[1], rank=1, alpha=1.0)
    gives("PEFT: adapters of one layer", "model", logits(some), "--adapters", "some")
    for to, path in ("hf", "merged"), ("gguf", "merged/model.gguf"):
        done = run("export", "--model", "model", "--adapters", "peft", "--format", to, "--to", "merged")
        point(done.returncode == 0, f"merged by export as {to}", done.stderr)
        gives(f"merged by export as {to}: the logits", path, want)
    train = ("train", "--model", "model", "--data", "tokens", "--sequence", "12", "--batch", "1", "--mesh", "data=1")
    done = run(*train, "--adapters", "peft", "--steps", "1", "--lr", "1e-30", "--weight-decay", "0", "--save-adapters", "saved")
    point(done.returncode == 0, "trained from PEFT's adapters, and saved", done.stderr)
    before, after = read("peft/adapter_model.safetensors"), read("saved/adapter_model.safetensors")
    point(before == after, "what is saved is what was read, under the same names", set(before) ^ set(after))
    with open("saved/adapter_config.json") as file:
        about = json.load(file)
    point((about["peft_type"], about["r"], about["lora_alpha"], sorted(about["target_modules"])) == ("LORA", 3, 7.0, ["down_proj", "q_proj"])
          and about["base_model_name_or_path"] == "model", "adapter_config.json", about)
    whole = run(*train, "--adapters", "peft", "--steps", "3", "--json", "--save", "three")
    run(*train, "--adapters", "peft", "--steps", "2", "--save", "two")
    done = run("train", "--mesh", "data=1", "--resume", "two", "--steps", "3", "--json")
    last = [[line for line in r.stdout.splitlines() if '"step":2' in line] for r in (whole, done)]
    point(done.returncode == 0 and last[0] and re.findall('"loss":[^,]*', last[0][0]) == re.findall('"loss":[^,]*', last[1][0]),
          "a run with PEFT's adapters goes on from its checkpoint", last, done.stderr)
    done = run(*train, "--lora-rank", "2", "--lora-modules", "*.gqa.v", "--steps", "3", "--lr", "0.01", "--save-adapters", "own", "--save", "whole")
    generate("model", "--adapters", "own")
    first = read("logits")["logits"][1]
    run("generate", "--params", "whole", "--prompt-tokens", ",".join(map(str, TOKENS)), "--length", str(len(TOKENS) + 1), "--temperature", "0",
        "--logits", "logits", "--mesh", "data=1")
    second = read("logits")["logits"][1]
    point(done.returncode == 0 and max(abs(a - b) for a, b in zip(first, second)) < 1e-5 * (max(second) - min(second)),
          "own adapters beside the model are the run's", done.stderr)
    for module in "q", "k", "v", "out", "gate", "up", "down":
        done = run(*train, "--lora-rank", "2", "--lora-modules", f"*.{module}", "--steps", "2")
        point(done.returncode == 0, f"adapters of {module} alone", done.stderr)
    restarted(train)
    full_disk(train)
    refusals(p, train)
    gpt2()


def merged(model, adapters, to):
    """Writes a folder of the GPT-2 in MODEL with the adapters of a PEFT folder added, as PEFT defines them."""
    tensors, of = ({name: [[*shape], list(values)] for name, (shape, values) in read(f"{path}.safetensors").items()}
                   for path in (f"{model}/model", f"{adapters}/adapter_model"))
    with open(f"{adapters}/adapter_config.json") as file:
        about = json.load(file)
    for name in [name for name in of if name.endswith(".lora_A.weight")]:
        layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        (rank, rows), a = of[name]
        (columns, _), b = of[name.replace("lora_A", "lora_B")]
        scale = about["alpha_pattern"].get(layer, about["lora_alpha"]) / about["rank_pattern"].get(layer, about["r"])
        values = tensors[f"{layer}.weight"][1]
        for r in range(rows):
            for c in range(columns):
                values[r * columns + c] += scale * sum(b[c * rank + i] * a[i * rows + r] for i in range(rank))
    with open(f"{model}/config.json") as file:
        folder(to, tensors, json.load(file))


def gpt2():
    """PEFT has one adapter for q, k and v together; the model here has an adapter for each."""
    model, tokens = os.path.join(data, "published/gpt2"), [5, 17, 3, 60, 42, 42, 7, 0, 31, 12, 9, 33]
    theirs = f"{model}/peft"
    want = [read(f"{theirs}/logits.safetensors")["logits"][1]]
    gives("PEFT: adapters of a GPT-2", model, want, "--adapters", theirs, tokens=tokens)
    gives("the same over pipe and tensor", model, want, "--adapters", theirs, "--mesh", "pipe=2,tensor=3", tokens=tokens)
    train = ("train", "--model", model, "--data", "tokens", "--sequence", "12", "--batch", "1", "--mesh", "data=1", "--lr", "0.02")
    still = ("--steps", "1", "--lr", "1e-30", "--weight-decay", "0")
    done = run(*train, *still, "--adapters", theirs, "--save-adapters", "gpt2-saved")
    point(read(f"{theirs}/adapter_model.safetensors") == read("gpt2-saved/adapter_model.safetensors"), "GPT-2: what is saved is what was read",
          done.stderr)
    for modules, targets, apart in (
            ("*", ["attn.c_proj", "c_attn", "c_fc", "mlp.c_proj"], 2), ("*.gqa.q", ["c_attn"], 0), ("*.gqa.q,*.gqa.v", ["c_attn"], 2),
            ("blocks.1.*.gqa.*", ["transformer.h.1.attn.c_attn", "transformer.h.1.attn.c_proj"], 1)):
        done = run(*train, "--steps", "3", "--lora-rank", "3", "--lora-alpha", "4", "--lora-modules", modules, "--save-adapters", "gpt2-own", "--save",
                   "gpt2-run")
        with open("gpt2-own/adapter_config.json") as file:
            about = json.load(file)
        point(done.returncode == 0 and about["fan_in_fan_out"] is True and sorted(about["target_modules"]) == targets
              and list(about["rank_pattern"].values()) == [9] * apart and list(about["alpha_pattern"].values()) == [12.0] * apart,
              f"GPT-2: adapters of {modules}", about, done.stderr)
        merged(model, "gpt2-own", "gpt2-merged")
        done = generate("gpt2-merged", tokens=tokens)
        want = [read("logits")["logits"][1]] if done.returncode == 0 else [[0, 1]]
        gives(f"GPT-2: the run's adapters of {modules} are what PEFT's files say", "gpt2-run", want, tokens=tokens, given="--params")
        gives(f"GPT-2: adapters of {modules} are read again", model, want, "--adapters", "gpt2-own", tokens=tokens)
        run(*train, *still, "--adapters", "gpt2-own", "--save-adapters", "gpt2-saved")
        point(read("gpt2-own/adapter_model.safetensors") == read("gpt2-saved/adapter_model.safetensors"), f"GPT-2: {modules} are saved again")
        shutil.rmtree("gpt2-run")
    gpt2_refusals(model, train)


def gpt2_refusals(model, train):
    run(*train, "--steps", "2", "--lora-rank", "2", "--lora-modules", "*.gqa.*", "--save-adapters", "gpt2-own")
    with open("gpt2-own/adapter_config.json") as file:
        about = json.load(file)
    tensors = {name: [[*shape], list(values)] for name, (shape, values) in read("gpt2-own/adapter_model.safetensors").items()}
    at = "base_model.model.transformer.h.0.attn.c_attn.lora_"
    mixed, odd, uneven = dict(tensors), dict(tensors), dict(tensors)
    uneven[f"{at}B.weight"] = [[71, 6], tensors[f"{at}B.weight"][1][:426]]
    mixed[f"{at}B.weight"] = [tensors[f"{at}B.weight"][0], [1.0] * len(tensors[f"{at}B.weight"][1])]
    odd[f"{at}A.weight"] = [[4, 24], tensors[f"{at}A.weight"][1][:96]]
    for name, text, file, changes in (
            ("q, k and v that are mixed", f"tensor {at}B.weight: of rank 6, q, k and v must have adapters of their own", mixed, {}),
            ("a B that does not divide by three", f"tensor {at}B.weight is no matrix of floats of rank 2", uneven, {}),
            ("another rank of q, k and v", f"tensor {at}A.weight is no matrix of floats of rank 2", odd, {}),
            ("another scale of theirs", "adapter_config.json: rank_pattern is there", tensors,
             {"alpha_pattern": {key: 5 for key in about["alpha_pattern"]}}),
            ("a rank without a scale", "adapter_config.json: rank_pattern is there", tensors, {"alpha_pattern": {}})):
        double.safetensors("gpt2-own/adapter_model.safetensors", file)
        with open("gpt2-own/adapter_config.json", "w") as out:
            json.dump({**about, **changes}, out)
        done = generate(model, "--adapters", "gpt2-own")
        point(done.returncode == 2 and done.stderr.count("\n") == 1 and text in done.stderr, f"GPT-2: refused: {name}", done.stderr)


def restarted(train):
    """A killed run goes on without the files that it began with, those of --model and --adapters."""
    steps = ("--adapters", "peft", "--steps", "40", "--save-every", "5", "--delay-ms", "2", "--save")
    run(*train, *steps, "unbroken")
    with open("log", "w") as log:
        watcher = subprocess.Popen([driver, *train, *steps, "broken", "--restart", "3"], stdout=log, stderr=log)
    for _ in range(3000):
        if os.path.isdir("broken") and any(name.endswith(".safetensors") for name in os.listdir("broken")):
            break
        time.sleep(0.01)
    with open(f"/proc/{watcher.pid}/task/{watcher.pid}/children") as file:
        os.kill(int(file.read().split()[0]), signal.SIGKILL)
    status = watcher.wait(timeout=120)
    with open("log") as log:
        text = log.read()
    last = "step-00000040.safetensors"
    point(status == 0 and "restart 1 of 3" in text and read(os.path.join("broken", last)) == read(os.path.join("unbroken", last)),
          "a killed run with a model and adapters is started again", status, text)


def full_disk(train):
    """If files may have 8 KB at most, nothing half written stays."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    done = subprocess.run([driver, *train, "--steps", "1", "--lora-rank", "16", "--save-adapters", "full"], capture_output=True, text=True,
                          timeout=120, preexec_fn=limit)
    point(done.returncode == 3 and "cannot be written: " in done.stderr and not os.listdir("full"), "a full disk under --save-adapters", done.stderr)


def refusals(p, train):
    def broken(name, text, tensors=None, more=(), **changes):
        double.adapters("peft", p, **changes)
        if tensors:
            file = {n: ([*s], v) for n, (s, v) in read("peft/adapter_model.safetensors").items()}
            tensors(file)
            double.safetensors("peft/adapter_model.safetensors", file)
        done = generate("model", "--adapters", "peft", *more)
        point(done.returncode == 2 and done.stderr.count("\n") == 1 and text in done.stderr, f"refused: {name}", done.stderr)

    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    for key, of in ("peft_type", "IA3"), ("bias", "all"), ("use_rslora", True), ("use_dora", True), ("rank_pattern", {"q_proj": 4}), \
            ("modules_to_save", ["lm_head"]), ("fan_in_fan_out", True), ("init_lora_weights", "pissa"):
        broken(f"{key} {of}", f"peft/adapter_config.json: {key} is ", **{key: of})
    broken("no rank", "adapter_config.json: r: there must be a number", r=None)
    broken("a rank that is too large", "adapter_config.json: r: there must be a number", r=65537)
    broken("an alpha that is too large", "adapter_config.json: lora_alpha: there must be a number", lora_alpha=1e7)
    broken("B of another rank", f"tensor {at}B.weight is no matrix of floats of rank 3", lambda t: t.update({f"{at}B.weight": ([24, 2], [0.0] * 48)}))
    broken("A of one dim", f"tensor {at}A.weight is no matrix of floats of rank 3", lambda t: t.update({f"{at}A.weight": ([72], [0.0] * 72)}))
    broken("no alpha", "adapter_config.json: lora_alpha: there must be a number", lora_alpha="a")
    broken("A without B", f"there is {at}A.weight, but no {at}B.weight", lambda t: t.pop(f"{at}B.weight"))
    broken("another rank", f"tensor {at}A.weight is no matrix of floats of rank 4", r=4)
    broken("another shape", "blocks.0.layers.0.gqa.q.lora_b.kernel: the given values have another shape",
           lambda t: t.update({f"{at}B.weight": ([5, 3], [0.0] * 15)}))
    broken("adapters of nothing", "tensor base_model.model.lm_head.lora_A.weight: no layer of a llama", lambda t: t.update(
        {"base_model.model.lm_head.lora_A.weight": ([3, 24], [0.0] * 72)}))
    broken("no adapters", "adapter_model.safetensors: no adapter is in it", lambda t: t.clear())
    for name, text, arguments in (
            ("a rank beside them", "--lora-rank: is read only without --adapters", (*train, "--steps", "1", "--adapters", "peft", "--lora-rank", "2")),
            ("adapters of a run that goes on", "--adapters: is read only without --resume", (*train, "--adapters", "peft", "--resume", "two")),
            ("no model", "--adapters: is read only with --model, or with --params", ("generate", "--adapters", "peft")),
            ("nothing to save", "--save-adapters: is read only with --lora-rank, or with --adapters", (*train, "--steps", "1", "--save-adapters", "x")),
            ("no steps", "--save-adapters: no steps", (*train, "--steps", "0", "--lora-rank", "2", "--save-adapters", "x")),
            ("a file in place of a folder", "--save-adapters tokens: cannot be opened: it is a regular file", (*train, "--steps", "1", "--lora-rank", "2", "--save-adapters",
                                                                                      "tokens")),
            ("latent attention", "--save-adapters: no published family has latent attention", (
                "train", "--data", "tokens", "--sequence", "12", "--batch", "1", "--mesh", "data=1", "--steps", "1", "--lora-rank", "2",
                "--save-adapters", "x"))):
        done = run(*arguments)
        point(done.returncode == 2 and done.stderr.count("\n") == 1 and text in done.stderr, f"refused: {name}", done.stderr)


# ---- gradients ----


def gradients():
    """Gradients of each kind of parameter along one direction equal differences of the loss in double precision."""
    p = params(qkv=True, out=True, mlp=True)
    tokens = TOKENS + [8]
    folder("model", p, config(rope_scaling={"type": "linear", "factor": 4.0}))
    rates = [SIZES["base"] ** (-2 * i / SIZES["width"]) / 4 for i in range(SIZES["width"] // 2)]
    done = run("train", "--model", "model", "--data", "tokens", "--sequence", "12", "--batch", "1", "--steps", "1", "--json", "--mesh", "data=1",
               "--gradients", "gradients")
    if done.returncode:
        return point(False, "gradients", done.stderr)
    got, draw, worst = read("gradients"), random.Random(3), 0
    for name in ("self_attn.q_proj.bias", "self_attn.k_proj.weight", "self_attn.v_proj.bias", "self_attn.o_proj.bias", "mlp.gate_proj.bias",
                 "mlp.up_proj.bias", "mlp.down_proj.bias"):
        name = "model.layers.0." + name
        shape, values = p[name]
        way = [draw.gauss(0, 1) for _ in values]
        step = 1e-4 / sum(w * w for w in way) ** 0.5
        at = lambda s: double.loss({**p, name: (shape, [v + s * w for v, w in zip(values, way)])}, tokens, rates=rates)
        want = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
        gradient = got[name][1]
        product = sum(map(float.__mul__, gradient, way))
        norm = sum(g * g for g in gradient) ** 0.5 * sum(w * w for w in way) ** 0.5
        worst = max(worst, abs(product - want) / norm)
    point(worst < 1e-5, f"gradients of biases and of scaled rotations ({worst:.2g})")


def main():
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        double.safetensors_of_tokens("tokens", [TOKENS + [8]])
        for part in (biases, untaken, harmless, keys, windows, parts, scalings, adapters, gradients):
            part()
        os.chdir("/")
    print(f"1..{points}")


if __name__ == "__main__":
    main()
