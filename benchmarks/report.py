"""The table as text, and as a picture."""

import importlib.util
import platform
from pathlib import Path

from benchmarks.growth import Grown
from benchmarks.rosey import Latency
from benchmarks.served import Served
from keyhouse.bench.drawing import svg
from keyhouse.bench.figure import Figure


def print_figure(figure: Figure) -> None:
    print(f"\n{figure.row}: {figure.work}")
    for result in figure.results:
        low, high = min(result.rounds), max(result.rounds)
        spent = (
            f", {result.processor_us:,.0f} µs of processor each"
            if result.processor_us is not None
            else ""
        )
        print(
            f"  {result.name:6} {result.median:12,.0f} {figure.unit}   (rounds {low:,.0f} to {high:,.0f}{spent})"
        )
    if figure.ratio is not None and figure.goal is not None:
        print(
            f"  ours / limit {figure.ratio:.2f}, goal {figure.goal:.2f}: {_verdict(figure.ratio, figure.goal)}"
        )
    if figure.peer_ratio is not None and figure.peer_goal is not None:
        verdict = _verdict(figure.peer_ratio, figure.peer_goal)
        print(f"  ours / peer {figure.peer_ratio:.1f}, goal {figure.peer_goal:g}: {verdict}")
    if figure.note:
        print(f"  {figure.note}", flush=True)


def _verdict(ratio: float, goal: float) -> str:
    return "reached" if ratio >= goal else "MISSED"


def print_growth(grown: list[Grown], of: str = "") -> None:
    print(f"\nGrowth on SQLite{of}")
    print("        rows   get p50 µs   by hand µs   list of 1,000 ms   memory MB")
    for each in grown:
        numbers = f"{each.get_p50_us:12.1f} {each.hand_p50_us:12.1f} {each.list_ms:18.2f} {each.memory_mb:11.1f}"
        print(f"  {each.rows:10,} {numbers}")
    first, last = grown[0], grown[-1]
    print(
        f"  get {last.get_p50_us / first.get_p50_us:.2f} x "
        f"(goal 1.5; by hand {last.hand_p50_us / first.hand_p50_us:.2f} x), "
        f"list {last.list_ms / first.list_ms:.2f} x (goal 1.5), "
        f"memory +{last.memory_mb - first.memory_mb:.1f} MB (goal 20)",
        flush=True,
    )


def print_served(served: list[Served]) -> None:
    print("\nGrowth of plugin storage over NATS, one request at a time")
    print("        keys   get p50 ms   list of 1,000 ms   memory of the service MB")
    for each in served:
        print(f"  {each.keys:10,} {each.get_ms:12.2f} {each.list_ms:18.2f} {each.memory_mb:26.1f}")
    first, last = served[0], served[-1]
    print(
        f"  get {last.get_ms / first.get_ms:.2f} x (goal 1.5), list {last.list_ms / first.list_ms:.2f} x (goal 1.5), "
        f"memory +{last.memory_mb - first.memory_mb:.1f} MB (goal 20)",
        flush=True,
    )


def print_latencies(latencies: list[Latency]) -> None:
    print("\nLatency over NATS, ms")
    print("  operation  in flight      p50      p95      p99      per second")
    for each in latencies:
        print(
            f"  {each.operation:9} {each.in_flight:10} {each.p50:8.2f} {each.p95:8.2f} {each.p99:8.2f} "
            f"{each.per_second:15,.0f}"
        )
    print(flush=True)


def draw(figures: list[Figure], path: Path) -> bool:
    """Each ratio as a bar beside its goal; whether there was anything to draw it with."""
    if path.suffix == ".svg":
        path.write_text(svg("Keyhouse", platform.platform(), figures))
        return True
    if not figures or importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=(9, 1 + 0.6 * len(figures)))
    names = [f"{figure.row}  {figure.work}" for figure in figures]
    axes.barh(names, [figure.ratio for figure in figures], color="#4477aa", label="ours / by hand")
    axes.plot([figure.goal for figure in figures], names, "k|", markersize=24, label="goal")
    axes.axvline(1.0, color="#999999", linewidth=0.8)
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    pyplot.tight_layout()
    pyplot.savefig(path, dpi=110)
    return True
