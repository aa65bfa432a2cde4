"""Results as lines to print, as JSON, as tables in `docs/benchmarks.md`, and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engines import ENGINES

TITLES = {e.name: e.title for e in ENGINES}
PLACE = re.compile(r"(?P<head><!-- benchmarks -->\n).*?(?P<tail><!-- /benchmarks -->)", re.S)
LEAST_MOVED = 1_000_000  # bytes; for smaller workloads a share of the memory's speed says nothing
Results = dict[str, Any]
Row = dict[str, Any]


# ------------------------------------------------------------------------------------------------ targets
def targets(results: Results) -> list[Row]:
    """What fuelnumba should reach: target, what was measured, and whether it is met; None where it was not measured."""
    ratios = {w["name"]: w["engines"].get("fuelnumba", {}).get("ratio") for w in results["workloads"]}
    measured = {name: r for name, r in ratios.items() if r is not None}
    slower = sorted((r, name) for name, r in measured.items() if r < 1)
    rows = [{"target": "never slower than NumPy", "met": not slower if measured else None,
             "measured": ", ".join(f"{name} {r:.2f}" for r, name in slower) or _least(measured)}]
    for text, wanted, names in (("4 x NumPy on softmax and norms", 4, ("softmax", "rms_norm", "layer_norm")),
                                ("10 x NumPy on the chain of 10 M", 10, ("chain-10m",)),
                                ("5 x NumPy on the 200 ops", 5, ("ops-200",))):
        those = {name: measured[name] for name in names if name in measured}
        rows.append({"target": text, "met": all(r >= wanted for r in those.values()) if len(those) == len(names) else None,
                     "measured": ", ".join(f"{name} {r:.2f}" for name, r in those.items())})
    return rows


def _least(measured: dict[str, float]) -> str:
    if not measured:
        return ""
    name = min(measured, key=measured.__getitem__)
    return f"least: {name} {measured[name]:.2f}"


def target_lines(results: Results) -> list[str]:
    word = {True: "met", False: "NOT MET", None: "not measured"}
    return [f"{t['target']:32s} {word[t['met']]:12s} {t['measured']}".rstrip() for t in targets(results)]


# ------------------------------------------------------------------------------------------------ printed
def seconds_text(s: float) -> str:
    """Three digits and a unit."""
    scale, unit = (1e6, "us") if s < 999.5e-6 else (1e3, "ms") if s < 0.9995 else (1.0, "s")
    value = s * scale
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.{0 if ratio >= 99.5 else 1 if ratio >= 9.995 else 2}f}"


def thread_text(cores: int) -> str:
    return (f"All engines may use {cores} threads; NumPy (but for products) and PyTensor use one, as do most for small arrays. "
            "Idle threads do not spin (OMP_WAIT_POLICY=PASSIVE, OPENBLAS_THREAD_TIMEOUT=20, KMP_BLOCKTIME=0, onnxruntime's "
            "allow_spinning=0).")


def share_text(workload: Row, engine: Row) -> str:
    small = workload["read"] + workload["written"] < LEAST_MOVED
    return "-" if small else f"{engine['share']:.0%}"


def workload_text(row: Row) -> str:
    work = f"{(row['read'] + row['written']) / 1e6:.3g} MB" + (f", {row['flops'] / 1e9:.3g} GFLOP" if row["flops"] else "")
    lines = [f"\n{row['title']} ({row['name']}): {work}, at the machine's limits {seconds_text(row['least_seconds'])}"]
    for name, e in row["engines"].items():
        if "missing" in e:
            if e["missing"] != "no formula":
                lines.append(f"  {TITLES[name]:14s} {e['missing']}")
            continue
        lines.append(f"  {TITLES[name]:14s} median {seconds_text(e['median']):>8s}  least {seconds_text(e['least']):>8s}  "
                     f"x {e['ratio']:6.2f}  of the limit {share_text(row, e):>5s}  error {e['error']:.0e}  {e['rounds']} rounds")
    return "\n".join(lines)


def first_call_text(row: Row) -> str:
    head = f"  {row['function']:9s} {TITLES[row['engine']]:14s} "
    if "missing" in row:
        return head + row["missing"]
    return (f"{head}{row['cache']:6s}  process to result {row['process']:6.2f} s  imports {row['imports']:5.2f} s  "
            f"first call {row['first']:7.3f} s  second {seconds_text(row['second'])}")


def generate_text(row: Row) -> str:
    if "missing" in row:
        return f"  {row['missing']}"
    return (f"  cache {row['cache']:6s}  first token {row['first_token']:.2f} s  {row['tokens_per_second']:.1f} tokens/s  "
            f"compiling {row['compiling']:.2f} s ({row['kernels_compiled']:.0f} kernels)  whole process {row['process']:.1f} s")


# ------------------------------------------------------------------------------------------------ document
def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown(results: Results, picture: str = "") -> str:
    """What stands between the document's markers."""
    m, limits = results["machine"], results["limits"]
    measured = [n for n in TITLES if any("ratio" in w["engines"].get(n, {}) for w in results["workloads"])]
    versions = ", ".join(f"{n} {v}" for n, v in m["versions"].items() if v != "not installed")
    parts = [
        f"{m['date']}, commit {m['commit']}, load {m['load']} before. {m['processor']}, {m['cores']} cores, "
        f"caches {m['caches']}, {m['system']}, C++ compiler: {m['compiler']}; {versions}.\n"
        f"Limits of the machine: read {limits['read'] / 1e9:.1f} GB/s, copy {limits['copy'] / 1e9:.1f} GB/s (read and written), "
        f"sgemm {limits['sgemm'] / 1e9:.0f} GFLOP/s.\n{thread_text(m['cores'])}",
    ]
    if results["quick"]:
        parts.append("A quick run: few rounds, these numbers say little.")
    if picture:
        parts.append(f"![Ratio to NumPy of every engine on every workload]({picture})")
    word = {True: "met", False: "**not met**", None: "not measured"}
    parts.append(table(["target", "", "measured: NumPy's median over ours"],
                       ([t["target"], word[t["met"]], t["measured"]] for t in targets(results))))
    parts.append("### Warm calls\n\nMedian, and in brackets how many times faster than NumPy.\n\n" + table(
        ["workload", *(TITLES[n] for n in measured)],
        ([w["title"], *(_warm_cell(w["engines"].get(n, {}), n) for n in measured)] for w in results["workloads"])))
    parts.append("Share of the machine's limit: the least time that its memory or arithmetic allows over the median.\n\n" + table(
        ["workload", "limit", *(TITLES[n] for n in measured)],
        ([w["title"], seconds_text(w["least_seconds"]), *(_share_cell(w, w["engines"].get(n, {})) for n in measured)]
         for w in results["workloads"] if w["read"] + w["written"] >= LEAST_MOVED)))
    reasons = {(TITLES[n], e["missing"]): [] for w in results["workloads"] for n, e in w["engines"].items()
               if e.get("missing", "no formula") != "no formula"}
    for w in results["workloads"]:
        for n, e in w["engines"].items():
            if (key := (TITLES[n], e.get("missing", ""))) in reasons:
                reasons[key].append(w["name"])
    if reasons:
        parts.append("\n".join(f"- {title}: {_escape(why)} ({', '.join(names)})" for (title, why), names in reasons.items()))
    if results["first_calls"]:
        parts.append("### First call in a fresh process\n\n" + table(
            ["function", "engine", "cache", "process start to result", "imports", "first call", "second call", "runs"],
            (_first_cells(r) for r in results["first_calls"])))
    if results["generate"]:
        parts.append("### generate\n\n" + table(
            ["cache", "time to first token", "speed", "compiling", "kernels compiled", "whole process"],
            (_generate_cells(r) for r in results["generate"])))
    return "\n\n".join(parts)


def _escape(text: str) -> str:
    return re.sub(r"([|\[\]<>`*_])", r"\\\1", text)


def _warm_cell(e: Row, name: str) -> str:
    if "median" not in e:
        return ""
    cell = seconds_text(e["median"]) + ("" if name == "numpy" else f" ({ratio_text(e['ratio'])})")
    return f"**{cell}**" if name == "fuelnumba" else cell


def _share_cell(w: Row, e: Row) -> str:
    return share_text(w, e) if "share" in e else ""


def _first_cells(r: Row) -> list[str]:
    if "missing" in r:
        return [r["function"], TITLES[r["engine"]], "", _escape(r["missing"]), "", "", "", ""]
    times = (seconds_text(r[k]) for k in ("process", "imports", "first", "second"))
    return [r["function"], TITLES[r["engine"]], r["cache"], *times, str(r["runs"])]


def _generate_cells(r: Row) -> list[str]:
    if "missing" in r:
        return ["", _escape(r["missing"]), "", "", "", ""]
    return [r["cache"], seconds_text(r["first_token"]), f"{r['tokens_per_second']:.1f} tokens/s", seconds_text(r["compiling"]),
            f"{r['kernels_compiled']:.0f}", seconds_text(r["process"])]


def with_results(document: str, text: str) -> str:
    """The document with another text between its markers. Raises ValueError when it has none."""
    if not PLACE.search(document):
        raise ValueError("the document has no <!-- benchmarks --> ... <!-- /benchmarks -->")
    return PLACE.sub(lambda m: f"{m['head']}\n{text}\n\n{m['tail']}", document)


# ------------------------------------------------------------------------------------------------ files
def write_json(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def read_json(path: Path) -> Results:
    found: Results = json.loads(path.read_text("utf-8"))
    return found


def write_all(results: Results, root: Path) -> list[Path]:
    """JSON, picture and document of a run, below the repository's root. Without matplotlib there is no picture."""
    data = root / "benchmarks" / "results" / f"{results['machine']['date'][:10]}.json"
    document, picture = root / "docs" / "benchmarks.md", root / "docs" / "benchmarks.png"
    write_json(results, data)
    written = [data, document]
    try:
        write_picture(results, picture)
        written.append(picture)
    except ImportError:
        print("no picture: matplotlib is not installed")
    kept = picture.name if picture in written else ""
    document.write_text(with_results(document.read_text("utf-8"), markdown(results, kept)), "utf-8")
    return written


def write_picture(results: Results, path: Path) -> None:
    """A panel for each workload, a bar for each engine: how many times faster than NumPy, on a logarithmic axis. Raises
    ImportError without matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    names = [n for n in TITLES if n != "numpy" and any("ratio" in w["engines"].get(n, {}) for w in results["workloads"])]
    loads = results["workloads"]
    columns = 3
    lines = -(-len(loads) // columns)
    ratios = [w["engines"][n]["ratio"] for w in loads for n in names if "ratio" in w["engines"].get(n, {})]
    low, high = min(0.5, *ratios) / 1.5, max(2.0, *ratios) * 4  # room for the numbers
    figure = Figure(figsize=(11, 0.75 + lines * (0.45 + 0.17 * len(names))), layout="constrained")
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for ax, w in zip(axes.flat, loads):
        ax.set_title(w["title"], fontsize=9)
        ax.set_xscale("log")
        ax.set_xlim(low, high)
        ax.axvline(1, color="0.3", linewidth=0.8)
        for y, name in enumerate(names):
            ratio = w["engines"].get(name, {}).get("ratio")
            if ratio is None:
                continue
            ax.barh(y, ratio - 1, left=1, height=0.75, color="#c8501e" if name == "fuelnumba" else "#8aa4bd")
            ax.text(max(ratio, 1) * 1.08, y, ratio_text(ratio), va="center", fontsize=7)
        ax.set_yticks(range(len(names)), [TITLES[n] for n in names], fontsize=8)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.tick_params(axis="x", labelsize=8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    if len(loads):
        axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    for ax in list(axes.flat)[len(loads):]:
        ax.set_visible(False)
    figure.supxlabel(f"times faster than NumPy (medians, {results['machine']['date']}, {results['machine']['processor']}, "
                     f"{results['machine']['cores']} cores)", fontsize=9)
    figure.savefig(path, dpi=90)
