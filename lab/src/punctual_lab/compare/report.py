"""A comparison as a report that a person reads from top to bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_lab.compare import plots
from punctual_lab.report.document import (
    Block,
    Command,
    Figure,
    Note,
    Plot,
    Report,
    Section,
    TableBlock,
    Text,
)
from punctual_lab.report.plots import build_svg
from punctual_lab.tables import format_number, format_share

if TYPE_CHECKING:
    from punctual_lab.compare.plan import Comparison, ModeRun

PREDICTING = "Predictive"
MODE_TEXTS = {
    "Unlimited": "everything joins the queue.",
    "Bounded": "at most {queue_limit} requests wait; the next one is refused.",
    "Deadline": "as Bounded, and a request that can no longer make its deadline when it reaches "
    "the front is dropped unstarted.",
    "Predictive": "no count. At arrival the wait and the own service time are predicted; a request "
    "that would end after its deadline is refused at once.",
    "Predictive + displacement": "as Predictive, and a waiting long request gives way when that "
    "lets more requests be on time.",
}


def build_report(
    comparison: Comparison, summary: dict[str, Any], title: str, command: str
) -> Report:
    """Build the report of a comparison and its summary; `command` is how to run it again."""
    sections = (
        Section("Who was answered in time", _answer_blocks(comparison, summary)),
        Section("Short and long requests", _size_blocks(comparison, summary)),
        Section("Was the prediction right", _promise_blocks(comparison, summary)),
        Section("What a refusal costs", _refusal_blocks(comparison, summary)),
        Section("How it was measured", _method_blocks(comparison, summary, command)),
    )
    return Report(title, _lead(summary), _figures(summary), tuple(s for s in sections if s.blocks))


def _lead(summary: dict[str, Any]) -> str:
    modes = summary["modes"]
    first = next(iter(modes))
    best = max(modes, key=lambda name: modes[name]["good"])
    total = modes[first]["total"]
    return (
        f"The same {total} requests were sent to one model server that can serve about "
        f"{total / summary['effective_load']:.0f} of them (load {summary['effective_load']:.2f}, "
        f"deadline {summary['deadline_ms'] / 1e3:g} s). {best} answered "
        f"{modes[best]['good']} in time and {modes[best]['late']} late; {first} answered "
        f"{modes[first]['good']} in time and {modes[first]['late']} late."
    )


def _figures(summary: dict[str, Any]) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            value=f"{row['good']} of {row['total']}",
            label=name,
            detail=f"{format_share(row['good'], row['total'])} in time, {row['late']} late",
        )
        for name, row in summary["modes"].items()
    )


def _answer_blocks(comparison: Comparison, summary: dict[str, Any]) -> tuple[Block, ...]:
    modes = summary["modes"]
    columns = ("mode", *(outcome.value for outcome in Outcome), "in time", "p50 s", "p99 s")
    rows = tuple(
        (
            name,
            *(str(row[outcome.value]) for outcome in Outcome),
            format_share(row["good"], row["total"]),
            _seconds(row["latency_ms"]["p50"]),
            _seconds(row["latency_ms"]["p99"]),
        )
        for name, row in modes.items()
    )
    return (
        Text(
            "Good: whole answer by the deadline. Late: answered after it. Refused: turned away at "
            "arrival. Expired: dropped from the queue before starting. Failed: the server broke. "
            "Cancelled: the client left. Each request is in one column."
        ),
        _plot(plots.draw_mode_outcomes(comparison), "outcomes", "How each mode's requests ended."),
        TableBlock(columns, rows, "Counts, and the time to a whole answer (good and late)."),
        _plot(
            plots.draw_latency_over_time(comparison),
            "latency",
            "Each request at the time it was sent and the time its answer or refusal took, on a "
            "logarithmic scale. The dashed line is the deadline. Where everything joins the queue, "
            "the wait grows as long as the overload lasts, and soon each answer is late.",
        ),
    )


def _size_blocks(comparison: Comparison, summary: dict[str, Any]) -> tuple[Block, ...]:
    modes = summary["modes"]
    sizes = sorted({size for row in modes.values() for size in row["by_tokens"]}, key=int)
    rows = tuple(
        (
            name,
            *(
                f"{row['by_tokens'].get(size, {}).get('good', 0)} of "
                f"{row['by_tokens'].get(size, {}).get('offered', 0)}"
                for size in sizes
            ),
            str(row["good_tokens"]),
        )
        for name, row in modes.items()
    )
    columns = ("mode", *(f"{size} tokens" for size in sizes), "tokens in time")
    return (
        Text(
            "A rule may serve more requests by serving only short ones, so requests and tokens are "
            "both counted, and each size class by itself."
        ),
        _plot(
            plots.draw_size_classes(comparison),
            "sizes",
            "Share of each size class that was answered in time.",
        ),
        TableBlock(columns, rows, "Answered in time, of those offered; tokens of good answers."),
    )


def _promise_blocks(comparison: Comparison, summary: dict[str, Any]) -> tuple[Block, ...]:
    runs = tuple(run for run in comparison.runs if run.mode.mode == PREDICTING)
    if not any(row.predicted_ms is not None for run in runs for row in run.rows):
        return ()
    errors = [f"{run.mode.name}: {format_share_of(summary, run)}" for run in runs if run.rows]
    return (
        Text(
            "At arrival the gateway says how long the request will wait and when its answer will "
            "end (`X-Queue-Predict-Wait`, `X-Punctual-Predicted-Ms`). Points on the dashed line "
            "came true; a point below it was answered sooner than predicted. Relative error of the "
            f"predicted end, median and p99: {'; '.join(errors)}."
        ),
        _plot(
            plots.draw_promises(runs),
            "promises",
            "Predicted and measured, for answered requests. An answer comes sooner than predicted "
            "where a request ahead of it was dropped, and where the machine had become faster.",
        ),
    )


def _refusal_blocks(comparison: Comparison, summary: dict[str, Any]) -> tuple[Block, ...]:
    columns = ("pattern", "gateway p50 ms", "p99", "bare handler p50 ms", "p99", "ratio p50", "p99")
    rows = [
        (f"sustained, {name}", *_refusal_cells(row))
        for name, row in summary["refusal"]["sustained"].items()
        if row["gateway_ms"]["p50"] is not None
    ]
    burst = summary["refusal"]["burst_of_30"]
    if burst is not None:
        rows.append(("30 at once, Predictive", *_refusal_cells(burst)))
        inside = [format_number(burst["server_ms"][key]) for key in _KEYS]
        rows.append(("30 at once, inside the gateway", *inside, "-", "-", "-", "-"))
    if not rows:
        return ()
    blocks: list[Block] = [
        Text(
            "A refusal must cost almost nothing, else overload feeds itself. Each run also sent a "
            "request to a bare aiohttp handler 20 ms after each of its own: it reads the request "
            "and answers a constant 503. Both share the client, the machine and the moment."
        ),
        TableBlock(columns, tuple(rows), "Milliseconds from sending to the whole refusal."),
    ]
    run = next((run for run in comparison.runs if run.mode.name == PREDICTING), None)
    if run is not None and summary["modes"][PREDICTING]["refused"]:
        picture = plots.draw_refusal_times(run)
        caption = "All refusals of the Predictive run, and the bare handler's."
        blocks.append(_plot(picture, "refusals", caption))
    return tuple(blocks)


def _method_blocks(
    comparison: Comparison, summary: dict[str, Any], command: str
) -> tuple[Block, ...]:
    plan = comparison.plan
    service = ", ".join(
        f"{tokens} tokens {float(seconds) * 1e3:.0f} ms"
        for tokens, seconds in summary["service_seconds"].items()
    )
    columns = ("mode", "probe before ms", "probe after ms", "effective load")
    rows = tuple(
        (
            name,
            f"{row['speed_probe_before'] * 1e3:.1f}",
            f"{row['speed_probe_after'] * 1e3:.1f}",
            f"{row['effective_load']:.2f}",
        )
        for name, row in summary["modes"].items()
    )
    modes = tuple(
        Text(f"{run.mode.name}: {MODE_TEXTS[run.mode.name].format(queue_limit=plan.queue_limit)}")
        for run in comparison.runs
        if run.mode.name in MODE_TEXTS
    )
    return (
        Text(
            f"One model server (`{plan.model}`, {plan.slots} slot(s)) ran throughout; each mode "
            f"had a gateway of its own. A request alone took: {service}. The trace is Poisson "
            f"with seed {plan.seed}, {plan.seconds:g} s long, answer lengths {_mix(comparison)}. "
            "Requests leave at their times whatever happens to the others. The order of the modes "
            "is rotated by the seed. The effective load is the work offered per second times the "
            "speed probe (a 16-token request alone) around that run."
        ),
        *modes,
        TableBlock(columns, rows, "The server's speed around each run."),
        *(Note(text) for text in summary["warnings"]),
        Text("The rows of each run lie beside this file as JSON lines. To run it again:"),
        Command(command),
    )


def format_share_of(summary: dict[str, Any], run: ModeRun) -> str:
    """Return the median and p99 of a run's relative prediction error as text."""
    error = summary["modes"][run.mode.name]["promises"]["relative_error"]
    if error["p50"] is None:
        return "-"
    return f"{error['p50']:.1%} and {error['p99']:.1%}"


def _refusal_cells(row: dict[str, Any]) -> tuple[str, ...]:
    cells = [format_number(row[side][key]) for side in ("gateway_ms", "bare_ms") for key in _KEYS]
    return (*cells, *(format_number(row["ratio"][key]) for key in _KEYS))


def _plot(figure: Any, name: str, caption: str) -> Plot:
    return Plot(build_svg(figure, name), caption, caption)


def _mix(comparison: Comparison) -> str:
    mix = comparison.plan.mix
    pairs = zip(mix.tokens, mix.shares, strict=True)
    return ", ".join(f"{tokens} ({share:.0%})" for tokens, share in pairs)


def _seconds(milliseconds: float | None) -> str:
    return format_number(None if milliseconds is None else milliseconds / 1e3)


_KEYS = ("p50", "p99")
