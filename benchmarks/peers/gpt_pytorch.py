# SPDX-License-Identifier: Apache-2.0
"""One training step of meshtorch's benchmark GPT, in PyTorch, on CPUs.

    pytorch --mode plain --threads 2      one process
    pytorch --mode ddp                    DistributedDataParallel + ZeroRedundancyOptimizer(AdamW)
    pytorch --mode fsdp2                  fully_shard of each block and of the root + AdamW

`pytorch`, beside this file, launches it: 2 processes of 1 thread on gloo for ddp and fsdp2. The
model is that of meshtorch/models/gpt.cpp and draws its random numbers in the same order, so that
all programs that follow the recipe of README.md print the same losses. The defaults of the options
that follow --rows are the fastest that were found; README.md says against what.
"""

import argparse
import contextlib
import math
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 8192, 256, 256, 6, 8
MICROBATCHES = 4
STD = 0.02
LEARNING_RATE = 3e-4


def linear(inputs, outputs, std=STD, bias=True):
    module = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(module.weight, 0.0, std)
    if bias:
        nn.init.zeros_(module.bias)
    return module


def residual(inputs):
    return linear(inputs, WIDTH, STD / math.sqrt(2.0 * LAYERS))


def embedding(rows):
    module = nn.Embedding(rows, WIDTH)
    nn.init.normal_(module.weight, 0.0, STD)
    return module


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.out = residual(WIDTH)

    def forward(self, x):
        def by_head(y):
            return y.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = by_head(self.q(x)), by_head(self.k(x)), by_head(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = linear(WIDTH, 4 * WIDTH), residual(4 * WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = embedding(VOCABULARY), embedding(LENGTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        """[B, T] int64 -> logits [B, T, V]"""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def parameter_count():
    """meshtorch::parameter_count, untied."""
    block = 4 * (WIDTH * WIDTH + WIDTH) + (8 * WIDTH * WIDTH + 5 * WIDTH) + 4 * WIDTH
    return (2 * VOCABULARY + LENGTH) * WIDTH + LAYERS * block + 2 * WIDTH


def make_model():
    torch.manual_seed(0)
    model = Gpt()
    assert sum(p.numel() for p in model.parameters()) == parameter_count() == 8998912
    return model


def make_microbatches(rows):
    """This process's (inputs, targets) of each microbatch: its equal share of the rows."""
    torch.manual_seed(1)
    tokens = torch.randint(VOCABULARY, (rows, LENGTH + 1))
    mine = [
        micro.chunk(world_size())[rank()]
        for micro in tokens.view(MICROBATCHES, rows // MICROBATCHES, LENGTH + 1)
    ]
    return [(micro[:, :-1].contiguous(), micro[:, 1:].contiguous()) for micro in mine]


def adamw(args):
    return {"lr": LEARNING_RATE, "fused": args.adamw == "fused", "foreach": args.adamw == "foreach"}


def plain(args):
    model = make_model()
    return model, torch.optim.AdamW(model.parameters(), **adamw(args)), lambda last: None


def ddp(args):
    model = DistributedDataParallel(
        make_model(),
        bucket_cap_mb=args.bucket_mb,
        gradient_as_bucket_view=True,
    )
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(),
        torch.optim.AdamW,
        parameters_as_bucket_view=args.bucket_view,
        **adamw(args),
    )
    return model, optimizer, lambda last: None if last else model.no_sync()


def fsdp2(args):
    model = make_model()
    options = {
        "mesh": dist.init_device_mesh("cpu", (world_size(),)),
        "reshard_after_forward": args.reshard,
    }
    for layer in model.layers if args.wrap == "block" else ():
        fully_shard(layer, **options)
    fully_shard(model, **options)

    def prepare(last):
        model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
        if not args.reshard:  # one gather a step: parameters stay whole until the last backward
            model.set_reshard_after_backward(last)

    return model, torch.optim.AdamW(model.parameters(), **adamw(args)), prepare


MODES = {"plain": plain, "ddp": ddp, "fsdp2": fsdp2}


def make_step(args):
    model, optimizer, prepare = MODES[args.mode](args)
    microbatches = make_microbatches(args.rows)

    def step():
        """Trains once; the mean loss of this process's rows."""
        total = 0.0
        for i, (inputs, targets) in enumerate(microbatches):
            with prepare(i == MICROBATCHES - 1) or contextlib.nullcontext():
                logits = model(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / MICROBATCHES
                loss.backward()
                total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def mean_over_processes(value):
    total = torch.tensor(value, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.item() / world_size()


def run(args):
    step = make_step(args)
    losses = [step() for _ in range(args.warmup)]
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - start)
    losses = [mean_over_processes(loss) for loss in losses]
    if rank() == 0:
        if args.print_losses:
            print("losses", *(f"{loss:.7f}" for loss in losses))
        print(
            f"mode={args.mode} processes={world_size()} threads={torch.get_num_threads()}"
            f" rows={args.rows} parameters={parameter_count()}"
            f" step={statistics.median(times):.4f} min={min(times):.4f} loss={losses[-1]:.7f}",
            flush=True,
        )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--steps", type=int, default=10, help="timed ones")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--print-losses", action="store_true", help="of all steps, warm-up too")
    parser.add_argument("--rows", type=int, default=8, help="sequences of one step, all processes")
    parser.add_argument("--adamw", choices=("fused", "foreach", "loop"), default="fused")
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--bucket-mb", type=float, default=25, help="ddp")
    parser.add_argument("--bucket-view", action=flag, default=True, help="ddp: ZeRO's parameters")
    parser.add_argument("--wrap", choices=("root", "block"), default="root", help="fsdp2")
    parser.add_argument("--reshard", action=flag, default=False, help="fsdp2: after forward")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    if args.mode != "plain":
        dist.init_process_group("gloo")
    if args.rows % (MICROBATCHES * world_size()):
        raise SystemExit(f"--rows {args.rows}: not whole rows for {MICROBATCHES} microbatches of"
                         f" {world_size()} processes; use a multiple of the product")
    run(args)
    if dist.is_initialized():
        dist.barrier()
        os._exit(0)  # after fsdp2, an orderly exit now and then aborts (torch 2.15)


if __name__ == "__main__":
    main()
