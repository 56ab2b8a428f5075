#!/usr/bin/env python3
"""foreign.py DRIVERS DATA - texts and tokenizers by other writers, read by the drivers: each entry has its effect, or is refused
by name. Prints TAP."""

import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../published"))
import double  # noqa: E402

drivers = os.path.abspath(sys.argv[1])
data = os.path.join(os.path.abspath(sys.argv[2]), "tokenizers")
points = 0
MESH = ("--mesh", "data=1")
SMALL = ("--attention", "gqa", "--model-dimension", "16", "--n-heads", "2", "--blocks", "1", "--layers-per-block", "1", *MESH)


def point(good, name, *lines):
    global points
    points += 1
    print(f"{'ok' if good else 'not ok'} {points} - {name}")
    for line in lines if not good else ():
        print(f"# {line}")


def run(program, *arguments, text=None):
    return subprocess.run([os.path.join(drivers, program), *arguments], input=text, capture_output=True, text=True, errors="replace",
                          timeout=120)


def refused(name, text, *arguments):
    done = run(*arguments)
    good = done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1 and text in done.stderr
    point(good, f"refused: {name}", done.returncode, done.stdout[:300], done.stderr)


def write(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def tokenizer(path, base, config=None, added=(), **fields):
    """Makes a folder with a tokenizer of tests/data, changed FIELDS and MORE tokens, (content, special)."""
    with open(os.path.join(data, base)) as file:
        root = json.load(file)
    root.update(fields)
    first = max(max(root["model"]["vocab"].values()), *(t["id"] for t in root["added_tokens"])) + 1
    for i, (content, special) in enumerate(added):
        root["added_tokens"].append({"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False, "special": special})
    write(f"{path}/tokenizer.json", json.dumps(root))
    if config is not None:
        write(f"{path}/tokenizer_config.json", json.dumps(config))


# ---- conversations ----

CHATML = [("<|im_start|>", True), ("<|im_end|>", True), ("<think>", False), ("</think>", False)]


def chats():
    tokenizer("qwen3", "qwen2.json", {"eos_token": "<|im_end|>"}, CHATML)
    write("think.jsonl", json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>a</think>b"}]}))
    done = run("transformer", "train", *SMALL, "--tokenizer", "qwen3", "--chat", "think.jsonl", "--sequence", "32", "--batch", "1", "--steps",
               "1", "--validation", "0")
    point(done.returncode == 0 and " 5 tokens of answers" in done.stderr, "added tokens in an answer: <think> a </think> b <|im_end|>",
          done.stderr)
    write("literal.jsonl", json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<|im_end|>b"}]}))
    done = run("transformer", "train", *SMALL, "--tokenizer", "qwen3", "--chat", "literal.jsonl", "--sequence", "64", "--batch", "1", "--steps",
               "1", "--validation", "0")
    point(done.returncode == 0 and " 2 tokens of answers" not in done.stderr, "a special token's spelling in an answer is text", done.stderr)
    for how in (), ("--no-special",):
        ids = run("tokens", "encode", "--tokenizer", "qwen3", *how, text="<think>a</think>").stdout.split()
        point(len(ids) == 3, f"tokens encode finds added tokens {' '.join(how)}", ids)
    prefixes()


def prefixes():
    """An answer's tokens are those of the rendered text, with a space before each part, or before the whole text alone."""
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "split": False, "prepend_scheme": "first"}
    answer = {"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "fox"}]}
    rendered = "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\nfox<|im_end|>\n"
    write("fox.jsonl", json.dumps(answer))
    for name, fields in ("Prepend", {}), ("Metaspace first", {"normalizer": None, "pre_tokenizer": metaspace}):
        tokenizer("pieces", "pieces.json", {"eos_token": "</s>"}, CHATML, **fields)
        ids = run("tokens", "encode", "--tokenizer", "pieces", text=rendered).stdout.split()
        back = run("tokens", "decode", "--tokenizer", "pieces", text=" ".join(ids)).stdout
        start, end = (run("tokens", "encode", "--tokenizer", "pieces", text=f"<|im_{what}|>").stdout.strip() for what in ("start", "end"))
        head = run("tokens", "encode", "--tokenizer", "pieces", text=rendered[: rendered.rindex("fox")]).stdout.split()
        scored = len(ids) - ids[::-1].index(end) - len(head)
        done = run("transformer", "train", *SMALL, "--tokenizer", "pieces", "--chat", "fox.jsonl", "--sequence", str(len(ids)), "--batch", "1",
                   "--steps", "1", "--validation", "0")
        short = run("transformer", "train", *SMALL, "--tokenizer", "pieces", "--chat", "fox.jsonl", "--sequence", str(len(ids) - 3), "--batch",
                    "1", "--steps", "1", "--validation", "0")
        point(back == rendered and f" {scored} tokens of answers" in done.stderr and " 0 shortened, 0 left out" in done.stderr
              and " 0 shortened, 0 left out" not in short.stderr, f"{name}: a conversation has the tokens of its text", back, scored,
              done.stderr, short.stderr)


END = 406  # <|im_end|> in the tokenizers below

# ---- models with tokenizers ----



def model(path, rows, config=None, **changes):
    """Makes a folder with a model of ROWS tokens and qwen2.json's tokenizer with ChatML's tokens, 405 to 408."""
    sizes = {**double.SIZES, "vocabulary": rows}
    double.folder(path, double.params(sizes=sizes), double.config(sizes=sizes, **changes))
    tokenizer(path, "qwen2.json", config if config is not None else {"eos_token": "<|im_end|>"}, CHATML)


def generated(*arguments):
    """Returns the status and the samples' JSON objects."""
    done = run("transformer", "generate", *MESH, "--json", *arguments)
    return done, [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"') and '"tokens"' in line]


def ends():
    """Samples end at each token named by generation_config.json or, without it, by config.json, and at the tokenizer's own."""
    model("ends", 424)
    _, (whole,) = generated("--model", "ends", "--prompt-tokens", "300", "--length", "24", "--temperature", "0", "--no-end-of-text")
    made = whole["tokens"][1:]
    first = lambda *ids: 2 + min((made.index(i) for i in ids if i in made), default=len(made) - 1)
    early, late = made[4], made[2]
    for name, generation, given, want in (("a list of generation_config.json", [408, early], 7, first(early)),
                                          ("a number of generation_config.json", late, early, first(late)),
                                          ("a list of config.json", None, [early, 408], first(early)), ("a number of config.json", None, late, first(late)),
                                          ("neither", None, None, 24)):
        model("ends", 424, **({"eos_token_id": given} if given is not None else {}))
        write("ends/generation_config.json", json.dumps({} if generation is None else {"eos_token_id": generation}))
        _, (sample,) = generated("--model", "ends", "--prompt-tokens", "300", "--length", "24", "--temperature", "0")
        point(sample["tokens"] == whole["tokens"][:want], f"samples end by {name}", sample["tokens"], whole["tokens"], want)
    write("ends/generation_config.json", '{"eos_token_id": "x"}')
    refused("an end that is no number", "generation_config.json: eos_token_id: there must be", "transformer", "generate", "--model", "ends",
            "--prompt-tokens", "3", *MESH)
    write("ends/generation_config.json", '{"eos_token_id": ')
    refused("a generation_config.json that is no JSON", "generation_config.json: line 1", "transformer", "generate", "--model", "ends",
            "--prompt-tokens", "3", *MESH)
    double.gguf("ends.gguf", double.params(sizes={**double.SIZES, "vocabulary": 424}), sizes={**double.SIZES, "vocabulary": 424},
                plain={"tokenizer.ggml.eot_token_id": early})
    _, (sample,) = generated("--model", "ends.gguf", "--prompt-tokens", "300", "--length", "24", "--temperature", "0")
    point(sample["tokens"] == whole["tokens"][: first(early)], "samples end by a GGUF file's eot_token_id", sample["tokens"])


def exported():
    """An exported model names the token that ends a text, whether a folder, a tokenizer or a checkpoint has named it."""
    model("own", 424)
    write("text", "the quick brown fox jumps over the lazy dog " * 60)
    run("transformer", "train", "--model", "own", "--data", "text", "--sequence", "8", "--batch", "1", "--steps", "1", "--save", "run", *MESH)
    run("transformer", "train", *SMALL, "--mlp", "silu", "--biases", "none", "--tokenizer", "own", "--data", "text", "--sequence", "8", "--batch",
        "1", "--steps", "1", "--save", "small")
    for name, arguments in (("a run that began with a folder", ("--params", "run")), ("an own model with a tokenizer", ("--params", "small")),
                            ("a folder whose config.json names none", ("--model", "own"))):
        done = run("transformer", "export", *arguments, "--format", "hf", "--to", "exported")
        config = {}
        if done.returncode == 0:
            with open("exported/config.json") as file:
                config = json.load(file)
        point(config.get("eos_token_id") == END, f"export of {name} names the end of texts", config, done.stderr)
    model("own", 424, eos_token_id=[7, 8])
    run("transformer", "export", "--model", "own", "--format", "hf", "--to", "exported")
    with open("exported/config.json") as file:
        point(json.load(file)["eos_token_id"] == [7, 8], "a config.json that names ends keeps them")


def gguf_tokenizers():
    """A GGUF export contains the folder's tokenizer: the same tokens, special or not, and the chat template."""
    text = "the quick  fox<think>don't 12 \u00e9e\u0301<|im_end|>\n\n  x"
    for base in "gpt2.json", "qwen2.json":
        model("own", 500, {"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"})
        tokenizer("own", base, {"eos_token": "<|im_end|>", "chat_template": "{{ messages }}"}, CHATML)
        done = run("transformer", "export", "--model", "own", "--format", "gguf", "--to", "exported")
        point(done.returncode == 0 and not done.stderr, f"{base}: a GGUF file with a folder's tokenizer", done.stderr)
        for how in (), ("--no-special",):
            want, got = (run("tokens", "encode", "--tokenizer", path, *how, text=text).stdout for path in ("own", "exported/model.gguf"))
            point(want.split() and got == want, f"{base}: the same tokens {' '.join(how)}", want, got)
        with open("exported/model.gguf", "rb") as file:
            content = file.read()
        point(b"{{ messages }}" in content and b"[PAD499]" in content, f"{base}: its template, and names for all rows")
        done, samples = generated("--model", "exported/model.gguf", "--prompt", text, "--length", "60")
        point(done.returncode == 0 and samples and samples[0]["text"].startswith(text.replace("e\u0301", "\u00e9") if base[0] == "q" else text),
              f"{base}: its text comes back", done.stderr, samples)
        if base == "gpt2.json":
            run("transformer", "export", "--model", "exported/model.gguf", "--format", "hf", "--to", "again")
            want, got = (run("tokens", "encode", "--tokenizer", path, text=text).stdout for path in ("own", "again"))
            point(want == got, "and back to a folder", want, got)
    tokenizer("own", "pieces.json", {"eos_token": "</s>"}, CHATML)
    done = run("transformer", "export", "--model", "own", "--format", "gguf", "--to", "exported")
    point(done.returncode == 0 and "no tokenizer is written" in done.stderr, "pieces are told to be left out", done.stderr)


def documents():
    write("many.jsonl", "".join(json.dumps({"text": f"document {i} is here"}) + "\n" for i in range(40)))
    tokenizer("endless", "qwen2.json", {}, CHATML)
    tokenizer("ended", "qwen2.json", {"eos_token": "<|im_end|>"}, CHATML)
    train = ("transformer", "train", *SMALL, "--data", "many.jsonl", "--sequence", "8", "--batch", "1", "--steps", "1")
    line = "many.jsonl: more than one document, and the tokenizer names no token that ends a text"
    refused("documents without an end between them", line, *train, "--tokenizer", "endless")
    refused("the same in evaluate", line, "transformer", "evaluate", *SMALL, "--eval-data", "many.jsonl", "--tokenizer", "endless", "--sequence", "8")
    refused("the same in tokens shards", line, "tokens", "shards", "--data", "many.jsonl", "--tokenizer", "endless", "--save", "shards")
    want = run(*train, "--tokenizer", "ended").stderr.split("documents, ")[1].split(" tokens")[0]
    for mask in (), ("--document-mask",):
        done = run(*train, "--tokenizer", "endless", "--document-token", str(END), *mask)
        point(done.returncode == 0 and f"40 documents, {want} tokens" in done.stderr, f"--document-token names the end {' '.join(mask)}",
              want, done.stderr)
    done = run("tokens", "shards", "--data", "many.jsonl", "--tokenizer", "endless", "--save", "shards", "--document-token", str(END))
    text = run("tokens", "text", "--data", "shards", "--tokenizer", "endless", "--document-token", str(END)).stdout
    point(f" {want} tokens" in done.stdout and text.splitlines() == [f"document {i} is here" for i in range(40)],
          "tokens shards and text take --document-token", done.stdout, done.stderr, text)
    write("one", "a text that is one document, long enough for a step or two of eight tokens: " + "the quick brown fox " * 40)
    done = run("transformer", "train", *SMALL, "--data", "one", "--sequence", "8", "--batch", "1", "--steps", "1", "--tokenizer", "endless")
    point(done.returncode == 0 and "1 document," in done.stderr, "one document needs no end", done.stderr)
    refused("a token that the tokenizer lacks", "--document-token 500: the tokenizer has no such token: it has 409", *train, "--tokenizer",
            "endless", "--document-token", "500")
    refused("the same in tokens shards", "--document-token 500: the tokenizer has no such token", "tokens", "shards", "--data", "many.jsonl",
            "--tokenizer", "endless", "--save", "no", "--document-token", "500")
    refused("a number below -1", '--document-token: "-2" is not an integer from -1', "tokens", "shards", "--document-token", "-2")
    refused("an end of bytes", "--document-token: is read only with --document-mask, or with --tokenizer, or with --model", "transformer", "train",
            *SMALL, "--data", "one", "--sequence", "8", "--document-token", "10")
    refused("an end of tokens", "--document-token 10: needs --document-mask, or a text", "transformer", "train", *SMALL, "--data",
            os.path.join("shards", os.listdir("shards")[0]), "--sequence", "8", "--tokenizer", "endless", "--document-token", "10")


def padded():
    """A model may have more rows of the vocabulary than the tokenizer has tokens."""
    model("pad", 900)
    hot = ("--model", "pad", "--prompt-tokens", "891,5,891", "--length", "60", "--temperature", "5")
    done, samples = generated(*hot, "--samples", "4")
    tokens = [t for sample in samples for t in sample["tokens"][3:]]
    point(done.returncode == 0 and len(samples) == 4 and all("text" in s for s in samples) and tokens and max(tokens) < 409,
          "tokens that the tokenizer lacks are never drawn", done.stderr, tokens)
    for count in "1", "2":
        done = run("transformer", "generate", *MESH, *hot, "--samples", count)
        point(done.returncode == 0 and done.stdout, f"they have no text in {count} printed", done.stderr)
    done = run("transformer", "generate", *MESH, *hot[:-1], "0", "--logits", "logits")
    point(done.returncode == 0 and len(double.read("logits")["logits"][1]) == 59 * 900
          and all(abs(v) < 1e30 for v in double.read("logits")["logits"][1]), "--logits are whole", done.stderr)
    write("text", "the quick brown fox jumps over the lazy dog " * 60)
    for form in (), ("--json",):
        done = run("transformer", "train", "--model", "pad", "--data", "text", "--sequence", "8", "--batch", "1", "--steps", "2", "--sample-every",
                   "1", "--prompt-tokens", "891", "--temperature", "5", *MESH, *form)
        point(done.returncode == 0 and (not form or done.stdout.count('"text":') == 2), f"a training with samples {' '.join(form)}", done.stderr)
    done = run("tokens", "decode", "--tokenizer", "pad", text="891")
    point(done.returncode == 2 and "891" in done.stderr, "tokens decode refuses them", done.stderr)


# ---- one file that is no text ----


def frame(content):
    """Returns a zstd frame with uncompressed blocks."""
    out = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(content))
    parts = [content[i : i + 60000] for i in range(0, len(content), 60000)] or [b""]
    for i, part in enumerate(parts):
        out += struct.pack("<I", (len(part) << 3) | (i + 1 == len(parts)))[:3] + part
    return out


def kinds():
    text = b"the quick brown fox jumps over the lazy dog " * 20
    train = ("transformer", "train", *SMALL, "--sequence", "8", "--batch", "1", "--steps", "1", "--json", "--data")
    for name, content, said in (("a.parquet", b"PAR1" + text, "a Parquet file"), ("b.dat", b"\x93NUMPY" + text, "an array of NumPy's"),
                                ("c.zip", b"PK\3\4" + text, "a zip archive"), ("d.pkl", b"\x80\4" + text, "a pickle of Python's"),
                                ("e.json", b"[1, 2, 3]" * 40, "JSON"), ("f.JSONL", b'{"text": "a"}\n' * 40, "JSON"),
                                ("g.bin", struct.pack("<400H", *range(400)), "tokens of 16 bits without a header, which --data-format uint16 reads")):
        write(name, content)
        done = run(*train, name)
        point(done.returncode == 0 and f"--data {name}: each byte is taken as text, though by its beginning or its name this is {said}\n" in done.stderr,
              f"taken as bytes, with a word: {name}", done.stderr)
    tokenizer("ended", "qwen2.json", {"eos_token": "<|im_end|>"}, CHATML)
    done = run("tokens", "shards", "--tokenizer", "ended", "--data", "a.parquet", "--save", "parquet")
    point(done.returncode == 0 and "a.parquet: each byte is taken as text, though" in done.stderr, "the same of tokens shards", done.stderr)
    write("plain", text)
    plain = run(*train, "plain")
    point(plain.returncode == 0 and not plain.stderr, "a text is taken without a word", plain.stderr)
    loss = lambda done: done.stdout.split('"loss":')[1].split(",")[0] if '"loss":' in done.stdout else done.stderr
    for name, content in ("packed.zst", frame(text)), ("packed.gz", gzip.compress(text)):
        write(name, content)
        done = run(*train, name)
        point(done.returncode == 0 and not done.stderr and loss(done) == loss(plain), f"{name} is unpacked", done.stderr)
    lines = b"\xef\xbb\xbf" + b"".join(json.dumps({"text": f"document {i} is here"}).encode() + b"\n" for i in range(40))
    tokenizer("ended", "qwen2.json", {"eos_token": "<|im_end|>"}, CHATML)
    for name, content in (("a.jsonl", lines), ("a.NDJSON", lines), ("b.ndjson.gz", gzip.compress(lines)), ("b.jsonl.zst", frame(lines))):
        write(name, content)
        done = run(*train, name, "--tokenizer", "ended")
        point(done.returncode == 0 and "40 documents" in done.stderr and done.stderr.count("\n") == 1, f"lines of JSON: {name}", done.stderr)


def nanogpt():
    """A file of tokens without a header equals a shard with one."""
    train = ("transformer", "train", *SMALL, "--sequence", "8", "--batch", "2", "--steps", "3", "--vocab-size", "600", "--json", "--data")
    tokens = [(7 * i * i + 3 * i) % 600 for i in range(900)]
    losses = lambda done: [line.split('"loss":')[1].split(",")[0] for line in done.stdout.splitlines() if '"step"' in line] or done.stderr
    for width, code, magic, version in (16, "H", 20240520, 1), (32, "I", 20240801, 7):
        raw = struct.pack(f"<900{code}", *tokens)
        write(f"with{width}.bin", struct.pack("<256i", magic, version, 900, *[0] * 253) + raw)
        write(f"none{width}.bin", raw)
        write(f"dir{width}/train.bin", raw)
        want = losses(run(*train, f"with{width}.bin"))
        for path in f"none{width}.bin", f"dir{width}":
            done = run(*train, path, "--data-format", f"uint{width}")
            point(len(want) == 3 and losses(done) == want, f"--data-format uint{width}: {path}", want, losses(done), done.stderr)
    run(*train, "none16.bin", "--data-format", "uint16", "--save", "raw")
    done = run("transformer", "train", "--resume", "raw", "--steps", "4", *MESH, "--json")
    point(done.returncode == 0 and '"step":3' in done.stdout, "a run remembers the format", done.stderr)
    write("odd.bin", b"abc" * 33)
    refused("tokens that are cut", "odd.bin: 99 bytes are no whole number of tokens of 2 bytes", *train, "odd.bin", "--data-format", "uint16")
    refused("a format of no name", '--data-format: "u8" is not one of auto|uint16|uint32', *train, "odd.bin", "--data-format", "u8")
    refused("a directory without such files", "no file in it is called *.bin", *train, "ended", "--data-format", "uint16")
    refused("a token beyond the vocabulary", "none16.bin", *[a if a != "600" else "500" for a in train], "none16.bin", "--data-format", "uint16")


# ---- lines that name the fault ----

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"


def messages():
    sizes = {**double.SIZES, "vocabulary": 424}
    generate = ("transformer", "generate", *MESH, "--prompt-tokens", "3", "--model")
    train = ("transformer", "train", *SMALL, "--sequence", "8", "--batch", "1", "--steps", "1", "--data")
    model("pointer", 424)
    for name in "pointer/model.safetensors", "pointer/config.json":
        write(name, POINTER)
        refused(f"a pointer of Git LFS as {name}", f"{name}: a pointer of Git LFS in place of the file", *generate, "pointer")
    for name in "pointer.gguf", "tokenizer.json", "pointer.txt":
        write(name, POINTER)
    refused("a pointer of Git LFS as a GGUF file", "pointer.gguf: a pointer of Git LFS", *generate, "pointer.gguf")
    refused("a pointer of Git LFS as a tokenizer", "tokenizer.json: a pointer of Git LFS", "tokens", "encode", "--tokenizer", "tokenizer.json")
    refused("a pointer of Git LFS as data", "pointer.txt: a pointer of Git LFS", *train, "pointer.txt")
    write("pickle/config.json", json.dumps(double.config()))
    write("pickle/pytorch_model.bin", b"PK\3\4")
    refused("a folder with a pickle alone", "pickle: it has the tensors as pytorch_model.bin, a pickle", *generate, "pickle")
    write("peft/adapter_config.json", "{}")
    write("peft/adapter_model.safetensors", b"")
    refused("a folder with an adapter alone", "peft: it has adapters of PEFT's alone, and no model", *generate, "peft")
    model("whole", 424)
    for name in "model.safetensors", "config.json":
        refused(f"{name} in place of its folder", f"whole/{name}: neither a GGUF file nor a folder: name the folder", *generate, f"whole/{name}")
    double.gguf("experts.gguf", double.params(sizes=sizes), sizes=sizes, expert_count=8, expert_used_count=2)
    refused("a Mixtral as a llama", "experts.gguf: llama.expert_count is not 0", *generate, "experts.gguf")
    for name in "whole/config.json", "whole/tokenizer.json", "whole/tokenizer_config.json":
        with open(name, "rb") as file:
            content = file.read()
        write(name, b"\xef\xbb\xbf" + content)
    done = run(*generate, "whole", "--length", "6")
    point(done.returncode == 0, "JSON with a byte order mark", done.stderr)
    tokenizer("ended", "qwen2.json", {"eos_token": "<|im_end|>"}, CHATML)
    array, pretty = '[{"text":"a"},{"text":"b"}]', json.dumps({"text": "a", "messages": [], "prompt": "q"}, indent=1)
    for name, content, line in (("array", array, "line 1: an array of JSON: each line must be an object"),
                                ("pretty", pretty, "line 1: its JSON goes on in the next line: each line must be an object")):
        write(f"{name}.jsonl", content)
        refused(f"{name} of JSON as data", f"{name}.jsonl: {line}", *train, f"{name}.jsonl", "--tokenizer", "ended")
        refused(f"{name} of JSON as conversations", f"{name}.jsonl: {line}", "transformer", "train", *SMALL, "--chat", f"{name}.jsonl",
                "--tokenizer", "ended", "--sequence", "8")
        refused(f"{name} of JSON as questions", f"{name}.jsonl: {line}", "transformer", "evaluate", "--model", "whole", "--choices",
                f"{name}.jsonl", *MESH)
    os.makedirs("links", exist_ok=True)
    os.symlink("../pretty.jsonl", "links/a")
    refused("a directory of links", "links: no regular file is in it, but 1 link, which are not followed", *train, "links")
    lines = ["the quick", "brown", "fox"]
    for end in "\n", "\r\n":
        write("prompts", "\ufeff" + end.join(lines) + end + end if end == "\r\n" else end.join(lines) + end)
        _, samples = generated("--model", "whole", "--prompts", "prompts", "--length", "16", "--temperature", "0")
        kept = samples if end == "\n" else kept
    point(len(samples) == 3 and samples == kept, "--prompts whose lines end with \\r\\n", samples[:1], kept[:1])


def weights():
    """A message that is not learned has the weight 0."""
    train = ("transformer", "train", *SMALL, "--sequence", "64", "--batch", "1", "--steps", "1", "--validation", "0", "--chat", "chat.jsonl")
    talk = lambda *weights: json.dumps({"messages": [{"role": "user", "content": "a"}] + [
        {"role": "assistant", "content": "bcd", **({} if w is None else {"weight": w})} for w in weights]})
    for given, scored in ((None, None), 8), ((0, 1), 4), ((1, None), 8), ((1.0, 0), 4):
        write("chat.jsonl", talk(*given))
        done = run(*train, "--tokenizer", "ended")
        counts = [int(word) for word, after in zip(done.stderr.split(), done.stderr.split()[1:]) if after == "tokens"]
        if given == (None, None):
            both = counts[0] if counts else 0
        point(counts and counts[0] * 8 == both * scored, f"weights {given}", done.stderr)
    write("chat.jsonl", talk(0))
    refused("nothing is learned", 'line 1: no message has the role "assistant", and another weight than 0', *train)
    write("chat.jsonl", talk(0.5))
    refused("half a weight", "line 1: the weight of message 1 is neither 0 nor 1", *train)


def shards():
    train = ("transformer", "train", *SMALL, "--sequence", "8", "--batch", "1", "--steps", "1", "--vocab-size", "64", "--data")
    for name in "train_000001", "train_000002", "val_000000":
        write(f"fineweb/fineweb_{name}.bin", struct.pack("<256i", 20240520, 1, 100, *[0] * 253) + struct.pack("<100H", *[i % 64 for i in range(100)]))
    done = run(*train, "fineweb")
    point(done.returncode == 0 and "--data fineweb: 2 shards are called train and 1 val, and all are read" in done.stderr,
          "shards for training and for validation in one directory", done.stderr)
    os.remove("fineweb/fineweb_val_000000.bin")
    done = run(*train, "fineweb")
    point(done.returncode == 0 and "are called" not in done.stderr, "shards for training alone", done.stderr)


def main():
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for part in (chats, ends, exported, gguf_tokenizers, documents, padded, kinds, nanogpt, messages, weights, shards):
            part()
        os.chdir("/")
    print(f"1..{points}")


if __name__ == "__main__":
    main()
