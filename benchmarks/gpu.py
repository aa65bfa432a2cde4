"""Every measurement on a GPU through Vulkan, beside PyTorch on the same GPU where it is installed: `python benchmarks/gpu.py`.

Prints a table, and what share of the card's own copy bandwidth (or of cuBLAS) each row reaches. Without a GPU it says so and
fails. A time is the median of rounds in which fuelnumba and PyTorch take turns; a round is so many calls, waited for once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fuelnumba as fn

ROUNDS, CALLS = 7, 10


def chain(x: Any, w: Any) -> Any:
    y = x * 0.5 + w
    return 0.5 * y * (1 + np.tanh(0.79788456 * (y + 0.044715 * y * y * y))) * (1 / (1 + np.exp(-y))) + x


def torch_of() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch if torch.cuda.is_available() else None


def ours(target: Any, function: Callable[..., Any], arrays: list[Any]) -> Callable[[], float]:
    """A round on the Vulkan device: seconds for a call."""
    jitted = fn.jit(function)
    jitted(*arrays).wait()

    def round_() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            result = jitted(*arrays)
        result.wait()
        return (time.perf_counter() - start) / CALLS

    return round_


def theirs(torch: Any, function: Callable[..., Any], arrays: list[Any]) -> Callable[[], float]:
    for _ in range(3):
        function(*arrays)
    torch.cuda.synchronize()

    def round_() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            function(*arrays)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / CALLS

    return round_


def copy_round(target: Any, nbytes: int) -> Callable[[], float]:
    """A round of the driver's own copies on the device."""
    machine = target.machine
    a, b = machine.memory.take(nbytes), machine.memory.take(nbytes)
    with machine.lock:
        recorder = machine.recorder()
        for _ in range(CALLS):
            recorder.copy(a, 0, b, 0, nbytes)
        commands = recorder.finish()

    def round_() -> float:
        start = time.perf_counter()
        machine.wait(machine.submit(commands, [a, b], "copy"))
        return (time.perf_counter() - start) / CALLS

    return round_


def workloads(torch: Any, small: bool) -> list[tuple[str, Callable[..., Any], Any, list[np.ndarray[Any, Any]], float, str]]:
    """(name, ours, PyTorch's, operands, bytes or operations of a call, their unit)"""
    rng = np.random.default_rng(0)
    k = 16 if small else 1

    def f(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape, np.float32).astype(dtype)

    n, rows, side, m = (64 << 20) // k, 16384 // k, 16384 // k, 4096 // k
    F = None if torch is None else torch.nn.functional

    def torch_chain(x: Any, w: Any) -> Any:
        y = x * 0.5 + w
        return F.gelu(y, approximate="tanh") * torch.sigmoid(y) + x

    return [
        ("W1 chain, 64 M f32", chain, torch_chain, [f(n), f(n)], 12.0 * n, "B"),
        ("softmax 16384x4096 f32", lambda x: fn.ops.softmax(x, axis=-1), lambda x: torch.softmax(x, -1), [f(rows, 4096)],
         8.0 * rows * 4096, "B"),
        ("rms_norm 16384x4096 f32", lambda x, w: fn.ops.rms_norm(x, w, eps=1e-6), lambda x, w: F.rms_norm(x, (4096,), w, 1e-6),
         [f(rows, 4096), f(4096)], 8.0 * rows * 4096, "B"),
        ("sum over axis 0, 16384^2 f32", lambda x: x.sum(axis=0), lambda x: x.sum(0), [f(side, side)], 4.0 * side * side, "B"),
        ("sum over axis 1, 16384^2 f32", lambda x: x.sum(axis=1), lambda x: x.sum(1), [f(side, side)], 4.0 * side * side, "B"),
        ("sum of all, 16384^2 f32", lambda x: x.sum(), lambda x: x.sum(), [f(side, side)], 4.0 * side * side, "B"),
        ("matmul 4096^3 f32", lambda x, y: x @ y, lambda x, y: x @ y, [f(m, m), f(m, m)], 2.0 * m**3, "op"),
        ("matmul 4096^3 f16", lambda x, y: x @ y, lambda x, y: x @ y, [f(m, m, dtype=np.float16), f(m, m, dtype=np.float16)],
         2.0 * m**3, "op"),
        ("row @ matrix 4096x4096 f32", lambda x, y: x @ y, lambda x, y: x @ y, [f(1, m), f(m, m)], 4.0 * m * m, "B"),
    ]


def measure(target: Any, small: bool) -> None:
    torch = torch_of()
    print(f"device: {target.machine.info}")
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}" if torch else "PyTorch: not here, or without CUDA")
    if torch:
        torch.backends.cuda.matmul.allow_tf32 = False
    size = (1 << 30) // (16 if small else 1)
    copies = copy_round(target, size)
    copies()
    bandwidth = 2 * size / statistics.median(copies() for _ in range(ROUNDS))
    print(f"the card's own copy: {bandwidth / 1e9:.0f} GB/s, bytes read and written\n")
    print(f"| {'work':30s} | us | limit reached | PyTorch us | ratio |\n| --- | --- | --- | --- | --- |")
    for name, mine, other, arrays, amount, unit in workloads(torch, small):
        try:
            given = [target.put(a) for a in arrays]
            mine_round = ours(target, mine, given)
            others = theirs(torch, other, [torch.from_numpy(a).cuda() for a in arrays]) if torch else None
            times: list[float] = []
            peers: list[float] = []
            for _ in range(ROUNDS):
                times.append(mine_round())
                if others:
                    peers.append(others())
            t, p = statistics.median(times), statistics.median(peers) if peers else 0.0
            reached = (f"{amount / t / bandwidth:.0%} of the copy" if unit == "B" else f"{amount / t / 1e12:.2f} Top/s")
            print(f"| {name:30s} | {t * 1e6:.0f} | {reached} | {p * 1e6:.0f} | {p / t:.2f}x |", flush=True)
        except Exception as err:  # one row that fails is told, and the others are measured
            print(f"| {name:30s} | {type(err).__name__}: {str(err)[:200]} |", flush=True)


def calls(target: Any) -> None:
    """What a call costs the processor: replayed, and recorded anew."""
    x = target.put(np.ones(1024, np.float32))
    f = fn.jit(lambda x: fn.ops.softmax(x * 2.0 + 1.0))
    f(x).wait()
    start = time.perf_counter()
    for _ in range(1000):
        r = f(x)
    r.wait()
    print(f"\na call of two small launches, by replay: {(time.perf_counter() - start) * 1e3:.1f} us")
    machine = target.machine
    instance = next(iter(f._last.instances.values()))  # type: ignore[union-attr]
    _, pipeline, block, total = instance.launches[0]
    with machine.lock:
        start = time.perf_counter()
        recorder = machine.recorder()
        for k in range(1000):
            recorder.dispatch(pipeline, instance.blocks_at + 8 * block, total, 1, [("in", 0, 1)], [(k, 0, 1)])
        made = recorder.finish()
        print(f"recording a dispatch: {(time.perf_counter() - start) * 1e3:.2f} us")
        machine.wait(machine.submit(made, [instance.cells], "recorded"))
        start = time.perf_counter()
        machine.wait(machine.submit(made, [instance.cells], "replayed"))
        print(f"replaying a dispatch, its running included: {(time.perf_counter() - start) * 1e3:.2f} us")


def decode(target: Any, tokens: int) -> None:
    """The small model, when it is installed."""
    from fuelnumba.models.generate import TextGenerator
    from fuelnumba.models.gguf_file import find_default_model

    path = find_default_model()
    if path is None:
        decode_random(target, tokens)
        return
    model = TextGenerator.load(path, device=target.name)
    text = "".join(model.stream(model.encode("The capital of France is"), tokens))
    text = "".join(model.stream(model.encode("The capital of France is"), tokens))
    print(f"\ndecode: {model.statistics}\n{text!r}")


def decode_random(target: Any, tokens: int) -> None:
    """A model of SmolLM2-135M's sizes with random weights: its speed, and whether it takes the CPU's tokens."""
    from fuelnumba.models.gguf_file import LlamaConfig
    from fuelnumba.models.llama import KVCache, prepare, step

    config = LlamaConfig(30, 576, 9, 3, 64, 1536, 49152, 2048, 1e5, 64, 1e-5, True)
    rng = np.random.default_rng(0)

    def f(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

    e, ff, kv = config.n_embd, config.n_ff, config.n_kv_heads * config.head_dim
    layers = [{"attn_norm": np.ones(e, np.float32), "wq": f(e, e), "wk": f(kv, e), "wv": f(kv, e), "wo": f(e, e),
               "ffn_norm": np.ones(e, np.float32), "w_gate": f(ff, e), "w_up": f(ff, e), "w_down": f(e, ff)}
              for _ in range(config.n_layers)]
    table = f(config.vocab_size, e)
    weights = {"token_embd": table, "output": table, "output_norm": np.ones(e, np.float32), "layers": layers}
    params = prepare(config, weights, 512)
    made = {}
    for where in ("cpu", target.name):
        at, cache = fn.to_device((params, KVCache.empty(config, 512)), where)
        given, position, chosen, times = np.array([1, 2, 3, 4, 5]), 0, [], []
        for _ in range(tokens if where != "cpu" else min(tokens, 24)):
            start = time.perf_counter()
            logits, cache = step(at, cache, given, position, config)
            chosen.append(int(np.argmax(np.asarray(logits))))
            times.append(time.perf_counter() - start)
            position += len(given)
            given = np.array(chosen[-1:])
        made[where] = chosen
        print(f"decode on {where}, random weights of SmolLM2-135M's sizes: {1 / statistics.median(times[2:]):.1f} tokens/s, "
              f"the first token {times[0]:.2f} s")
    same = next((k for k, (a, b) in enumerate(zip(*made.values())) if a != b), min(map(len, made.values())))
    print(f"the first {same} tokens are the CPU's")


def parity(target: Any, seconds: float) -> int:
    """The op table's cases on contiguous arrays, in turns over the ops, as many as there is time for; how many are wrong."""
    from fuelnumba.core.ops import OPS
    from fuelnumba.testing import cases
    from fuelnumba.testing.parity import run_op

    start, run, wrong = time.perf_counter(), 0, []
    tables = [list(cases(op, layouts=["contiguous"])) for op in OPS.values() if op.kind != "leaf" and "uid" not in op.attrs]
    for turn in range(max(map(len, tables))):
        for table in tables:
            if turn >= len(table) or time.perf_counter() - start > seconds:
                continue
            case = table[turn]
            run += 1
            try:
                with target:
                    got, _ = run_op(case.op, case.arrays, case.attrs)
                problem = case.problem(np.asarray(got))
            except Exception as err:
                problem = f"{type(err).__name__}: {str(err)[:200]}"
            if problem is not None:
                wrong.append(f"{case.id}: {problem}")
    print(f"\nparity: {run} of {sum(map(len, tables))} cases, {len(wrong)} wrong, {time.perf_counter() - start:.0f} s")
    print("\n".join(wrong[:40]))
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="vulkan", help="vulkan, vulkan:1, vulkan:NAME")
    parser.add_argument("--small", action="store_true", help="a sixteenth of each size, for trying it out")
    parser.add_argument("--software", action="store_true", help="go on where the device is no GPU")
    parser.add_argument("--parity", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    target = fn.device(args.device)
    if target.machine.info.kind == "cpu" and not args.software:  # type: ignore[attr-defined]
        print(f"{target!r} is no GPU: nothing was measured", file=sys.stderr)
        return 2
    measure(target, args.small)
    calls(target)
    if args.tokens:
        decode(target, args.tokens)
    return 1 if args.parity and parity(target, args.parity) else 0


if __name__ == "__main__":
    sys.exit(main())
