"""Benchmarks of a store on the user's own engine: each case is compared with a baseline in one run.

`keyhouse bench` runs these cases. `make bench` adds services, peers, growth and bare drivers, which
live in `benchmarks/` outside the package and use the same comparison, so that a number means the
same in both.
"""

from keyhouse.bench.chart import svg
from keyhouse.bench.comparison import Measurement, Workload, compare
from keyhouse.bench.result import Result
from keyhouse.bench.run import CASES, BenchReport, run_cases, skipped_cases
from keyhouse.bench.scratch import Scratch, open_scratch
from keyhouse.bench.text import conditions, parse_cases, plan, summary, tables, to_json

__all__ = [
    "CASES",
    "BenchReport",
    "Measurement",
    "Result",
    "Scratch",
    "Workload",
    "compare",
    "conditions",
    "open_scratch",
    "parse_cases",
    "plan",
    "run_cases",
    "skipped_cases",
    "summary",
    "svg",
    "tables",
    "to_json",
]
