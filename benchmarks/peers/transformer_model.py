"""transformer_model - the shared part of the transformer peers: options, parameters, tokens, and the report of generation.

The model is a decoder with a tied embedding: blocks of layers x + mla(rms_norm(x)), x + mlp(rms_norm(x)). Attention is
multi-head latent attention; its rotary positions turn the key and the whole width of the queries, before the split into
heads, and the last layer of each block has none. The MLP is 4 times as wide as the model, with the tanh form of GELU.
"""

import json
import statistics
import time

import numpy

import measure

LEARNING_RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 1e-4
NORM_EPSILON = 1e-6
ROPE_BASE = 10000.0


def make_parser(description):
    """Returns a parser with the options of both programs; the defaults are the benchmarks' model."""
    parser = measure.Parser(description=description, formatter_class=measure.argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=["step", "generate"], default="step", help="default %(default)s")
    for name, default, text in (
        ("model-dimension", 256, "columns between layers"),
        ("n-heads", 8, "attention's heads"),
        ("blocks", 2, "blocks of layers"),
        ("layers-per-block", 3, "of which the last has no rotary positions"),
        ("sequence", 256, "tokens a sequence when training"),
        ("latent-dim", 64, "columns of a latent: keys' and values', queries'"),
        ("rope-dim", 16, "columns a head that are rotated"),
        ("vocab-size", 256, "tokens there are"),
        ("batch", 8, "sequences of a step; generation: of the second of two runs, the first has one"),
        ("prompt", 64, "generation: tokens a sequence begins with"),
        ("tokens", 128, "generation: tokens a sequence is continued by"),
        ("steps", 20, "measured steps, or generations"),
        ("warmup", 3, "those before them, of which the first compiles"),
    ):
        parser.add_argument(f"--{name}", type=measure.positive, default=default, help=f"{text} (default {default})")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="of products' operands")
    parser.add_argument("--json", action="store_true", help="print a JSON object a run")
    return parser


def check_options(parser, options):
    if options.model_dimension % options.n_heads:
        parser.error(f"{options.model_dimension} columns do not divide over {options.n_heads} heads")
    if options.rope_dim % 2:
        parser.error(f"--rope-dim {options.rope_dim}: pairs of columns are rotated, so it must be even")
    if options.job == "generate" and options.tokens < 2:
        parser.error("--tokens 1: the first token is prefill's; decoding needs another one")


def has_rope(options, layer):
    """Returns whether LAYER, its number within a block, has rotary positions."""
    return layer < options.layers_per_block - 1


def layer_shapes(options, layer):
    """Returns the shapes of a layer's parameters, by their names within it."""
    width, latent, rope = options.model_dimension, options.latent_dim, options.rope_dim
    dense = {
        "mla.down": (width, 2 * latent),  # to keys' and values' latent, then queries'
        "mla.kv_up": (latent, 2 * width),  # to keys, then values
        "mla.q_up": (latent, width),
        "mla.out": (width, width),
        "mlp.up": (width, 4 * width),
        "mlp.down": (4 * width, width),
    }
    if has_rope(options, layer):
        dense |= {"mla.k_rope": (2 * latent, rope), "mla.q_rope": (2 * latent, rope * options.n_heads)}
    shapes = {f"{norm}.{part}": (width,) for norm in ("norm1", "norm2") for part in ("gamma", "beta")}
    for name, shape in dense.items():
        shapes |= {f"{name}.kernel": shape, f"{name}.bias": shape[1:]}
    return shapes


def parameter_shapes(options):
    width = options.model_dimension
    shapes = {"embedding": (options.vocab_size, width), "norm.gamma": (width,), "norm.beta": (width,)}
    for block in range(options.blocks):
        for layer in range(options.layers_per_block):
            prefix = f"blocks.{block}.layers.{layer}."
            shapes |= {prefix + name: shape for name, shape in layer_shapes(options, layer).items()}
    return shapes


def random_parameters(options):
    """Returns arrays by name. Kernels keep the scale of their input; no array is 0 or 1 throughout."""
    random = numpy.random.default_rng(42)
    parameters = {}
    for name, shape in parameter_shapes(options).items():
        values = random.standard_normal(shape, numpy.float32)
        if len(shape) == 2:
            columns = options.model_dimension if name == "embedding" else shape[0]
            parameters[name] = values * numpy.float32(columns**-0.5)
        else:
            parameters[name] = numpy.float32(0.02) * values + numpy.float32(name.endswith("gamma"))
    return parameters


def random_batch(options):
    """Returns inputs [batch, sequence], and targets, each input's next token."""
    random = numpy.random.default_rng(43)
    tokens = random.integers(0, options.vocab_size, (options.batch, options.sequence + 1), numpy.int32)
    return tokens[:, :-1], tokens[:, 1:]


def random_prompts(options, rows):
    return numpy.random.default_rng(44).integers(0, options.vocab_size, (rows, options.prompt), numpy.int32)


def rotation(positions, columns):
    """Returns cosines and sines [positions, columns / 2]: position t turns pair i by (t + 1) / base^(2i / columns)."""
    pairs = numpy.arange(columns // 2)
    angles = numpy.outer(numpy.arange(positions) + 1, ROPE_BASE ** (-2 * pairs / columns))
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


# ---- generation


def measure_generation(options, prefill, decode):
    """PREFILL() returns a state that has every sequence's first new token, and DECODE(state) all new tokens, an array
    [rows, tokens]; both return when everything that they started is done. ms_... are of one decoded token of all rows,
    whose number is "tokens" less prefill's."""
    before, prefills, decodes, startup = None, [], [], None
    for count in range(options.warmup + options.steps):
        before = measure.thread_ticks() if count == options.warmup else before
        begin = time.perf_counter()
        state = prefill()
        middle = time.perf_counter()
        tokens = decode(state)
        end = time.perf_counter()
        startup = startup or measure.since_start_ms()
        if count >= options.warmup:
            prefills.append(1e3 * (middle - begin))
            decodes.append(1e3 * (end - middle) / (options.tokens - 1))
    return {
        "job": "generate",
        "batch": len(tokens),
        "prompt": options.prompt,
        "tokens": options.tokens,
        "threads": measure.threads_since(before),
        "prefill_ms": statistics.median(prefills),
        "ms_min": min(decodes),
        "ms_median": statistics.median(decodes),
        "ms_max": max(decodes),
        "steps": options.steps,
        "startup_ms": startup,
        "peak_bytes": measure.peak_bytes(),
        "first_tokens": [int(token) for token in tokens[0, :12]],
    }


def report_generation(result, as_json):
    if as_json:
        print(json.dumps({name: measure.rounded(value) for name, value in result.items()}), flush=True)
        return
    print("{peer} {version}: {threads} threads on {cores} cores".format(cores=measure.cores(), **result))
    print("{batch} sequences, {prompt} tokens: prefill {prefill_ms:.3f} ms".format(**result), end="; ")
    print("{tokens} new tokens: min {ms_min:.4f}, median {ms_median:.4f}, max {ms_max:.4f} ms each".format(**result))
    print("tokens", *result["first_tokens"], flush=True)
