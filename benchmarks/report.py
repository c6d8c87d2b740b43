"""The results as text, and as a chart."""

import importlib.util
import platform
from pathlib import Path

from benchmarks.growth import StoreSize
from benchmarks.services.growth import ServiceSize
from benchmarks.services.plugin_storage import Latency
from keyhouse.bench import Result, svg


def print_result(result: Result) -> None:
    print(f"\n{result.case}: {result.work}")
    for each in result.measurements:
        low, high = min(each.rounds), max(each.rounds)
        cpu = f", {each.cpu_us:,.0f} µs of CPU each" if each.cpu_us is not None else ""
        speed = f"{each.median:12,.0f} {result.unit}"
        print(f"  {each.name:8} {speed}   (rounds {low:,.0f} to {high:,.0f}{cpu})")
    if result.ratio is not None and result.goal is not None:
        verdict = _verdict(result.ratio, result.goal)
        print(f"  ours / baseline {result.ratio:.2f}, goal {result.goal:.2f}: {verdict}")
    ours, constant = result.median("ours"), result.median("constant")
    if ours is not None and constant is not None:
        print(f"  ours / constant {ours / constant:.2f}, without a goal: it does no work")
    if result.peer_ratio is not None and result.peer_goal is not None:
        verdict = _verdict(result.peer_ratio, result.peer_goal)
        print(f"  ours / peer {result.peer_ratio:.1f}, goal {result.peer_goal:g}: {verdict}")
    if result.note:
        print(f"  {result.note}", flush=True)


def _verdict(ratio: float, goal: float) -> str:
    return "reached" if ratio >= goal else "MISSED"


def print_growth(sizes: list[StoreSize], of: str = "") -> None:
    print(f"\nGrowth on SQLite{of}")
    print("        rows   get p50 µs   by hand µs   list of 1,000 ms   memory MB")
    for each in sizes:
        gets = f"{each.get_p50_us:12.1f} {each.baseline_p50_us:12.1f}"
        print(f"  {each.rows:10,} {gets} {each.list_ms:18.2f} {each.memory_mb:11.1f}")
    first, last = sizes[0], sizes[-1]
    print(
        f"  get {last.get_p50_us / first.get_p50_us:.2f} x "
        f"(goal 1.5; by hand {last.baseline_p50_us / first.baseline_p50_us:.2f} x), "
        f"list {last.list_ms / first.list_ms:.2f} x (goal 1.5), "
        f"memory +{last.memory_mb - first.memory_mb:.1f} MB (goal 20)",
        flush=True,
    )


def print_service_growth(sizes: list[ServiceSize]) -> None:
    print("\nGrowth of plugin storage over NATS, one request at a time")
    print("        keys   get p50 ms   list of 1,000 ms   memory of the service MB")
    for each in sizes:
        print(f"  {each.keys:10,} {each.get_ms:12.2f} {each.list_ms:18.2f} {each.memory_mb:26.1f}")
    first, last = sizes[0], sizes[-1]
    print(
        f"  get {last.get_ms / first.get_ms:.2f} x (goal 1.5), "
        f"list {last.list_ms / first.list_ms:.2f} x (goal 1.5), "
        f"memory +{last.memory_mb - first.memory_mb:.1f} MB (goal 20)",
        flush=True,
    )


def print_latencies(latencies: list[Latency]) -> None:
    print("\nLatency over NATS, ms")
    print("  operation  in flight      p50      p95      p99      per second")
    for each in latencies:
        print(
            f"  {each.operation:9} {each.in_flight:10} {each.p50:8.2f} {each.p95:8.2f} "
            f"{each.p99:8.2f} {each.per_second:15,.0f}"
        )
    print(flush=True)


def draw(results: list[Result], path: Path) -> bool:
    """Draw each ratio as a bar with its goal; return False if matplotlib is missing."""
    if path.suffix == ".svg":
        path.write_text(svg("Keyhouse", platform.platform(), results))
        return True
    drawn = [result for result in results if result.ratio is not None]
    if not drawn or importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=(9, 1 + 0.6 * len(drawn)))
    names = [f"{result.case}  {result.work}" for result in drawn]
    axes.barh(names, [result.ratio for result in drawn], color="#4477aa", label="ours / baseline")
    axes.plot([result.goal for result in drawn], names, "k|", markersize=24, label="goal")
    axes.axvline(1.0, color="#999999", linewidth=0.8)
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    pyplot.tight_layout()
    pyplot.savefig(path, dpi=110)
    return True
