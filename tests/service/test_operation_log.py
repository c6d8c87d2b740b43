"""The operation log: slow operations, sampling, and failures by who is at fault."""

import random

from structlog.testing import capture_logs

from keyhouse.errors import CallerError, EngineError, UnavailableError
from keyhouse.service.limits import LOG_TEXT_CHARS_MAX
from keyhouse.service.operation_log import SAMPLED_ABOVE, OperationLog


def log(slow_seconds: float = 0.1) -> OperationLog:
    return OperationLog(
        "rosey", slow_seconds, prefix="kv", tenant_field="plugin", rng=random.Random(1)
    )


def test_slow_operations_are_warnings_and_debug_lines_are_sampled() -> None:
    with capture_logs() as lines:
        operations = log()
        for _ in range(SAMPLED_ABOVE + 2_000):
            operations.done("get", "p", 0.01, {"key": "k"})
        operations.done("get", "p", 0.2, {"key": "k"})
    fast = [line for line in lines if line["event"] == "kv get"]
    assert SAMPLED_ABOVE <= len(fast) < SAMPLED_ABOVE + 200
    slow = [line for line in lines if line["event"] == "kv get slow"]
    assert [(line["log_level"], line["latency_ms"]) for line in slow] == [("warning", 200)]


def test_zero_switches_slow_warnings_off() -> None:
    with capture_logs() as lines:
        log(0).done("get", "p", 1_000, {})
    assert [line["log_level"] for line in lines] == ["debug"]


def test_unreported_rejections_are_sampled() -> None:
    with capture_logs() as lines:
        operations = log()
        for _ in range(20 * SAMPLED_ABOVE):
            operations.failed("set", "evil", CallerError("No."), answered=False, fields={})
    assert SAMPLED_ABOVE <= len(lines) < 10 * SAMPLED_ABOVE


def test_a_rejection_reported_to_the_caller_is_logged_at_debug() -> None:
    with capture_logs() as lines:
        log().failed("set", "p", CallerError("No."), answered=True, fields={"key": "k"})
    assert [(line["event"], line["log_level"]) for line in lines] == [("kv set rejected", "debug")]


def test_failures_in_an_outage_are_single_lines_and_sampled() -> None:
    """Each request had a traceback of fifty lines: the log filled the disk, and hid its cause."""
    away = UnavailableError("The server can't be reached.", server="db").caused_by(
        OSError("refused")
    )
    operations = log()
    with capture_logs() as lines:
        for _ in range(20 * SAMPLED_ABOVE):
            operations.failed("set", "trivia", away, answered=True, fields={"key": "a"})
        operations.task_failed("cleanup", away)
        operations.task_failed("usage scan", away)
    assert SAMPLED_ABOVE <= len(lines) < 10 * SAMPLED_ABOVE
    for line in (lines[0], lines[-2], lines[-1]):
        assert (line["log_level"], line["cause"]) == ("error", "OSError: refused")
        assert "exc_info" not in line
        assert line["reason"] == "The server can't be reached. (server='db')"
    described = lines[0]
    assert (described["error"], described["plugin"]) == ("DATABASE_ERROR", "trivia")
    assert (described["operation"], described["key"]) == ("kv_set", "a")


def test_an_unexpected_failure_has_its_traceback() -> None:
    for error in (ZeroDivisionError(), EngineError("The engine failed.")):
        with capture_logs() as lines:
            log().failed("set", "trivia", error, answered=True, fields={})
        assert lines[0]["exc_info"] is error


def test_long_text_is_cut() -> None:
    with capture_logs() as lines:
        log().done("get", "p", 0, {"key": "k" * 1_000})
    assert lines[0]["key"] == "k" * LOG_TEXT_CHARS_MAX + "…"
