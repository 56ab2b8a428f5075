#!/usr/bin/env python3
"""foreign.py DRIVERS DATA - texts and tokenizers as others write them, in the drivers: what they say counts, or is
refused by name. Prints TAP."""

import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../published"))
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
    """A folder with a tokenizer of tests/data, with other fields and more tokens: (content, special)."""
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
    """The answer's tokens are those of the rendered text: a space stands before each part, or before the text alone."""
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


def main():
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for part in (chats,):
            part()
        os.chdir("/")
    print(f"1..{points}")


if __name__ == "__main__":
    main()
