"""jax_pipelines - the looping and the plain pipeline in JAX: one program per coordinate of a mesh of simulated devices.

The model is ours: dense 784 -> hidden, residual blocks x + W2 dropout(silu(W1 layer_norm(x))), layer_norm,
dense hidden -> 10, softmax cross entropy, AdamW. Parameters are stacked over the model axis, so that every stage has a
copy of the edge layers, of which the first and the last stage's are used. Initial values follow from a block's number:
without dropout both schedules have the same losses.

With --device gpu the mesh is one of GPUs. --precision tf32 lets products round their floats to TF32; bf16 rounds the
operands of dense layers' products to bf16, and of their gradients' products; everything else, sums and parameters
included, is float32.
"""

import os

import measure

INPUTS, CLASSES = 784, 10
LEARNING_RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 1e-4  # optax.adamw's defaults


def read_options():
    parser = measure.model_options(__doc__)
    parser.add_argument("--schedule", choices=["looping", "plain"], default="looping")
    options = parser.parse_args()
    data, stages = options.mesh["data"], options.mesh["model"]
    if options.layers % stages:
        parser.error(f"{options.layers} layers do not divide over {stages} stages")
    if options.batch % (data * options.microbatches):
        parts = f"data={data} and {options.microbatches} microbatches"
        parser.error(f"a batch of {options.batch} rows does not divide over {parts}")
    if options.precision == "tf32" and options.device == "cpu":
        parser.error("--precision tf32: CPUs have no TF32")
    if options.microbatches < stages:
        parser.error(f"{options.microbatches} microbatches are fewer than {stages} stages")
    return options


options = read_options()
DATA, STAGES, MICROBATCHES = options.mesh["data"], options.mesh["model"], options.microbatches
LAYERS = options.layers // STAGES  # of a stage

# Read when jax is imported.
os.environ["JAX_PLATFORMS"] = "cpu" if options.device == "cpu" else "cuda"
if options.device == "cpu":
    simulated = f"--xla_force_host_platform_device_count={DATA * STAGES} "
    os.environ["XLA_FLAGS"] = simulated + os.environ.get("XLA_FLAGS", "")

import jax
import jax.numpy as jnp
import numpy
from jax import lax, random
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

if options.device == "gpu" and options.precision != "bf16":  # otherwise XLA would choose TF32 for floats
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if options.precision == "tf32" else "float32")


def shard_map(function, mesh, in_specs, out_specs):
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map  # jax 0.4

    return shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)


# ---- the model


def init_dense(key, rows, columns):
    scale = rows**-0.5 / 0.87962566103423978  # lecun_normal: the truncated distribution's own deviation
    return {"w": scale * random.truncated_normal(key, -2, 2, (rows, columns)), "b": jnp.zeros(columns)}


def init_norm(columns):
    return {"scale": jnp.ones(columns), "bias": jnp.zeros(columns)}


def init_block(key):
    hidden, inside = options.hidden, options.hidden * options.expansion
    key1, key2 = random.split(key)
    return {"norm": init_norm(hidden), "in": init_dense(key1, hidden, inside), "out": init_dense(key2, inside, hidden)}


def block_numbers(stage):
    """Returns the global numbers of STAGE's layers."""
    layer = jnp.arange(LAYERS)
    return layer * STAGES + stage if options.schedule == "looping" else stage * LAYERS + layer


def init_parameters(key):
    numbers = block_numbers(lax.axis_index("model"))
    return {
        "input": init_dense(random.fold_in(key, options.layers), INPUTS, options.hidden),
        "blocks": jax.vmap(lambda number: init_block(random.fold_in(key, number)))(numbers),
        "norm": init_norm(options.hidden),
        "output": init_dense(random.fold_in(key, options.layers + 1), options.hidden, CLASSES),
    }


def multiply_rounded(a, b):
    """Returns A B, operands rounded to bf16, sums in float32."""
    return jnp.matmul(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


@jax.custom_vjp
def multiply_bf16(x, w):
    return multiply_rounded(x, w)


def multiply_bf16_backward(operands, dy):
    x, w = operands
    return multiply_rounded(dy, w.T), multiply_rounded(x.T, dy)


multiply_bf16.defvjp(lambda x, w: (multiply_rounded(x, w), (x, w)), multiply_bf16_backward)


def dense(p, x):
    return (multiply_bf16(x, p["w"]) if options.precision == "bf16" else x @ p["w"]) + p["b"]


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * p["scale"] + p["bias"]


def dropout(key, x):
    if options.dropout == 0:
        return x
    keep = 1 - options.dropout
    return jnp.where(random.bernoulli(key, keep, x.shape), x / keep, 0)


def block(p, x, key):
    return x + dense(p["out"], dropout(key, jax.nn.silu(dense(p["in"], layer_norm(p["norm"], x)))))


# ---- the pipelines: from microbatches [microbatches, rows, hidden] on the first stage to microbatches on the last


def ring(x):
    return lax.ppermute(x, "model", [(stage, (stage + 1) % STAGES) for stage in range(STAGES)])


def take(array, index, otherwise):
    return jnp.where(index >= 0, array[jnp.maximum(index, 0)], otherwise)


def put(array, index, value):
    at = jnp.maximum(index, 0)
    return array.at[at].set(jnp.where(index >= 0, value, array[at]))


def looping_pipeline(blocks, x, key):
    """A stage is one layer; all microbatches go around the ring once a loop. An index of -1: not in this iteration."""
    stage = lax.axis_index("model")
    first, last = stage == 0, stage == STAGES - 1
    iterations = LAYERS * MICROBATCHES + STAGES - 1
    t = jnp.arange(iterations)
    back = t - STAGES  # iterations since the first microbatch came back to the first stage
    out = t - (iterations - MICROBATCHES)  # iterations since it left the last stage for good
    input_index = jnp.where(first & (t < LAYERS * MICROBATCHES), t % MICROBATCHES, -1)
    update_index = jnp.where(first & (back >= 0) & (back < (LAYERS - 1) * MICROBATCHES), back % MICROBATCHES, -1)
    output_index = jnp.where(last & (out >= 0), out, -1)
    params_index = jnp.clip((t - stage) // MICROBATCHES, 0, LAYERS - 1)

    def iteration(t, carry):
        inputs, outputs, state = carry
        inputs = put(inputs, update_index[t], state)
        y = take(inputs, input_index[t], state)
        y = block(jax.tree.map(lambda p: p[params_index[t]], blocks), y, random.fold_in(key, t))
        return inputs, put(outputs, output_index[t], y), ring(y)

    return lax.fori_loop(0, iterations, iteration, (x, jnp.zeros_like(x), jnp.zeros_like(x[0])))[1]


def plain_pipeline(blocks, x, key):
    """A stage is all its layers; the first stage's input is a new microbatch each iteration."""
    first = lax.axis_index("model") == 0

    def layer(y, parameters_and_key):
        return block(parameters_and_key[0], y, parameters_and_key[1]), None

    def iteration(state, input_and_key):
        y = jnp.where(first, input_and_key[0], state)
        y, _ = lax.scan(layer, y, (blocks, random.split(input_and_key[1], LAYERS)))
        return ring(y), y

    idle = jnp.zeros((STAGES - 1, *x.shape[1:]))
    keys = random.split(key, MICROBATCHES + STAGES - 1)
    _, outputs = lax.scan(iteration, jnp.zeros_like(x[0]), (jnp.concatenate([x, idle]), keys))
    return outputs[STAGES - 1 :]


# ---- the step


def loss_function(parameters, key, inputs, labels):
    """Returns the mean loss of this coordinate's rows on the last stage, 0 on the others."""
    pipeline = looping_pipeline if options.schedule == "looping" else plain_pipeline
    x = dense(parameters["input"], inputs).reshape(MICROBATCHES, -1, options.hidden)
    x = pipeline(parameters["blocks"], x, key).reshape(-1, options.hidden)
    logits = dense(parameters["output"], layer_norm(parameters["norm"], x))
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return jnp.where(lax.axis_index("model") == STAGES - 1, losses.mean(), 0)


def adamw(parameters, gradients, m, v, count):
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, gradients)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, gradients)
    scale1, scale2 = 1 / (1 - BETA1**count), 1 / (1 - BETA2**count)

    def update(p, m, v):
        return p - LEARNING_RATE * (scale1 * m / (jnp.sqrt(scale2 * v) + EPSILON) + DECAY * p)

    return jax.tree.map(update, parameters, m, v), m, v


def unstack(tree):
    return jax.tree.map(lambda leaf: leaf[0], tree)


def stack(tree):
    return jax.tree.map(lambda leaf: leaf[None], tree)


def initialize(key):
    """Returns the state: parameters, and AdamW's two moments."""
    parameters = stack(init_parameters(key))
    return parameters, jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters)


def train_step(state, step, key, inputs, labels):
    parameters, m, v = map(unstack, state)
    key = random.fold_in(random.fold_in(key, step), lax.axis_index("data") * STAGES + lax.axis_index("model"))
    loss, gradients = jax.value_and_grad(loss_function)(parameters, key, inputs, labels)
    gradients = lax.pmean(gradients, "data")
    loss = lax.psum(loss, ("data", "model")) / DATA
    state = adamw(parameters, gradients, m, v, jnp.float32(step + 1))
    return tuple(map(stack, state)), loss


def main():
    try:
        devices = jax.devices()
    except (AssertionError, RuntimeError) as error:
        reason = str(error) or "it has no plugin for CUDA"
        raise SystemExit(f"--device {options.device}: jax finds none ({reason})") from None
    if len(devices) < DATA * STAGES:
        raise SystemExit(f"--mesh data={DATA},model={STAGES}: there are {len(devices)} devices")
    mesh = Mesh(numpy.array(devices[: DATA * STAGES]).reshape(DATA, STAGES), ("data", "model"))
    key, input_key, label_key = random.split(random.PRNGKey(42), 3)
    rows = NamedSharding(mesh, P("data"))
    inputs = jax.device_put(random.normal(input_key, (options.batch, INPUTS)), rows)
    labels = jax.device_put(random.randint(label_key, (options.batch,), 0, CLASSES), rows)
    state = jax.jit(shard_map(initialize, mesh, P(), P("model")))(key)
    specs = (P("model"), P(), P(), P("data"), P("data"))
    step_function = jax.jit(shard_map(train_step, mesh, specs, (P("model"), P())), donate_argnums=0)
    count = 0

    def step():
        nonlocal state, count
        state, loss = jax.block_until_ready(step_function(state, count, key, inputs, labels))
        count += 1
        return float(loss)

    result = {"peer": f"jax_{options.schedule}", "version": jax.__version__}
    measure.report(result | measure.run(step, options.steps, options.warmup), options.json)


main()
