"""torch_step - the same training step in PyTorch.

--mode eager and compile run the whole batch in one process on all cores, without any parallelism: --mesh and
--microbatches do not matter. --mode pipelining runs torch.distributed.pipelining over gloo, a process for each
coordinate of the mesh, and one all_reduce of a rank's gradients over the data axis (DistributedDataParallel takes
longer here and cannot rebuild its buckets under a schedule); the cores are divided among the processes. Its times hold
one barrier a step; threads and memory are sums over the processes.

With --device gpu, eager and compile run on one GPU. --precision tf32 lets products round their floats to TF32; bf16 is
autocast to bfloat16 with float32 master weights: linear layers, and operations that follow their type, compute in
bfloat16; parameters, gradients, norms, the loss and AdamW are float32.

The model is ours: dense 784 -> hidden, residual blocks x + W2 dropout(silu(W1 layer_norm(x))), layer_norm,
dense hidden -> 10, softmax cross entropy, AdamW.
"""

import os
import shutil
import tempfile

import measure

if "CXX" not in os.environ:  # torch.compile's own search knows g++ only
    compiler = next(filter(shutil.which, ["g++", "clang++", "clang++-19"]), None)
    os.environ.update({"CXX": compiler} if compiler else {})

import torch
import torch.distributed as dist
from torch import nn

INPUTS, CLASSES = 784, 10
SCHEDULES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
}


def read_options():
    parser = measure.model_options(__doc__)
    parser.add_argument("--mode", choices=["eager", "compile", "pipelining"], default="eager")
    parser.add_argument("--schedule", choices=SCHEDULES, default="looped-bfs", help="of --mode pipelining")
    options = parser.parse_args()
    if options.precision == "tf32" and options.device == "cpu":
        parser.error("--precision tf32: CPUs have no TF32")
    if options.mode == "pipelining":
        if options.device != "cpu" or options.precision != "f32":
            parser.error("--mode pipelining: runs on CPUs in f32 only")
        data, ranks = options.mesh["data"], options.mesh["model"]
        if options.layers % ranks:
            parser.error(f"{options.layers} layers do not divide over {ranks} ranks")
        if options.batch % (data * options.microbatches):
            parts = f"data={data} and {options.microbatches} microbatches"
            parser.error(f"a batch of {options.batch} rows does not divide over {parts}")
    return options


class Block(nn.Module):
    def __init__(self, hidden, inside, rate):
        super().__init__()
        self.layer = nn.Sequential(
            nn.LayerNorm(hidden, eps=1e-6),
            nn.Linear(hidden, inside),
            nn.SiLU(),
            nn.Dropout(rate),
            nn.Linear(inside, hidden),
        )

    def forward(self, x):
        return x + self.layer(x)


def seeded(number, make, *arguments, **options):
    """Returns a module whose initial values depend on its NUMBER in the whole model."""
    torch.manual_seed(number)
    return make(*arguments, **options)


def build(options, stage, stages):
    """Returns stage STAGE of STAGES: its layers, the input layer before the first, the output layers after the last."""
    layers, hidden = options.layers, options.hidden
    count = layers // stages
    parts = [seeded(layers, nn.Linear, INPUTS, hidden)] if stage == 0 else []
    for number in range(stage * count, (stage + 1) * count):
        parts.append(seeded(number, Block, hidden, hidden * options.expansion, options.dropout))
    if stage == stages - 1:
        parts += [nn.LayerNorm(hidden, eps=1e-6), seeded(layers + 1, nn.Linear, hidden, CLASSES)]
    return nn.Sequential(*parts)


def make_batch(rows):
    generator = torch.Generator().manual_seed(42)
    inputs = torch.randn(rows, INPUTS, generator=generator)
    return inputs, torch.randint(0, CLASSES, (rows,), generator=generator)


def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-4, fused=True)


def flat_gradients(parameters):
    """Makes all gradients parts of one tensor, so one all_reduce sums them."""
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    for parameter, part in zip(parameters, flat.split([parameter.numel() for parameter in parameters])):
        parameter.grad = part.view_as(parameter)
    return flat


def run_single(options):
    device = "cpu" if options.device == "cpu" else "cuda"
    torch.set_num_threads(measure.cores())
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    inputs, labels = (tensor.to(device) for tensor in make_batch(options.batch))
    model = build(options, 0, 1).to(device)
    optimizer = make_optimizer(model.parameters())

    def loss_function(inputs, labels):
        with torch.autocast(device, torch.bfloat16, enabled=options.precision == "bf16"):
            outputs = model(inputs)
        return nn.functional.cross_entropy(outputs.float(), labels)

    if options.mode == "compile":
        loss_function = torch.compile(loss_function)

    def step():
        loss = loss_function(inputs, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        return loss.item()

    return measure.run(step, options.steps, options.warmup)


def run_coordinate(number, options, directory, spent_ms):
    """Runs coordinate NUMBER = data index * ranks + rank; number 0 prints. SPENT_MS: time before this process began."""
    from torch.distributed import pipelining

    data, ranks = options.mesh["data"], options.mesh["model"]
    rank = number % ranks
    torch.set_num_threads(max(1, measure.cores() // (data * ranks)))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=number, world_size=data * ranks)
    mesh = dist.init_device_mesh("cpu", (data, ranks), mesh_dim_names=("data", "model"))
    group = mesh.get_group("model")

    looping = options.schedule in ("interleaved-1f1b", "looped-bfs")
    loops = options.layers // ranks if looping else 1
    modules = [build(options, loop * ranks + rank, loops * ranks) for loop in range(loops)]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = make_optimizer(parameters)
    gradients = flat_gradients(parameters)
    torch.manual_seed(number)  # for dropout
    device = torch.device("cpu")
    stages = [
        pipelining.PipelineStage(module, loop * ranks + rank, loops * ranks, device, group=group)
        for loop, module in enumerate(modules)
    ]
    make_schedule = getattr(pipelining, SCHEDULES[options.schedule])
    loss_function = nn.functional.cross_entropy
    schedule = make_schedule(stages if looping else stages[0], options.microbatches, loss_fn=loss_function)
    first, last = rank == 0, rank == ranks - 1
    inputs, labels = (tensor.chunk(data)[number // ranks] for tensor in make_batch(options.batch))

    def step():
        losses = []
        schedule.step(*([inputs] if first else []), **({"target": labels, "losses": losses} if last else {}))
        if data > 1:
            dist.all_reduce(gradients, group=mesh.get_group("data"))
            gradients.div_(data)
        optimizer.step()
        gradients.zero_()
        dist.barrier()
        return torch.stack(losses).mean().item() if last else 0.0

    result = measure.run(step, options.steps, options.warmup)
    results = [None] * (data * ranks)
    dist.all_gather_object(results, result)
    if number == 0:
        result["threads"] = sum(other["threads"] for other in results)
        result["peak_bytes"] = sum(other["peak_bytes"] for other in results)
        result["startup_ms"] = spent_ms + max(other["startup_ms"] for other in results)
        result["loss"] = [sum(column) / data for column in zip(*(other["loss"] for other in results))]
        report(options, result)
    dist.destroy_process_group()


def report(options, result):
    peer = f"torch_{options.mode}"
    if options.mode == "pipelining":
        peer += "_" + options.schedule.replace("-", "_")
    measure.report({"peer": peer, "version": torch.__version__} | result, options.json)


def main():
    options = read_options()
    if options.mode != "pipelining":
        report(options, run_single(options))
        return
    with tempfile.TemporaryDirectory() as directory:
        processes = options.mesh["data"] * options.mesh["model"]
        torch.multiprocessing.spawn(run_coordinate, (options, directory, measure.since_start_ms()), nprocs=processes)


if __name__ == "__main__":
    main()
