"""A job's report as one HTML file for people: the verdict first, charts as inline SVG, no scripts, nothing from the network.

Everything in a report may come from records that anyone wrote, so all of it is escaped. The page is light or dark as the browser asks.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.console.texts import duration, moment, size_text
from txbroker.names import amount
from txbroker.spark.audit.report import LAWFUL, WRONG
from txbroker.spark.reports import SCHEMA_VERSION
from txbroker.spark.svg_charts import Bar, Cell, Part, bars, heat_map, legend, share

CUT = 80  # characters of a key
ROWS_MAX = 2000  # of a table
MAP_ROWS_MAX = 64
_DATA_URL = "data:,"  # an icon that the browser does not ask for
_KIND_NAMES = {"table": "a table", "upsert": "a table of the latest values", "mirror": "a mirrored topic", "group": "a consumer group",
               "replica": "another replica"}  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #5b6470; --page: #fff; --card: #f4f6f8; --line: #d5dae0;
  --good: #2f6fb7; --late: #e0952b; --bad: #c8352b; --lawful: #8a94a0; --verdict-good: #1d7a46; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --quiet: #9aa4af; --page: #15181c; --card: #20252b; --line: #3a424b;
  --good: #5b9bdf; --late: #e5a84b; --bad: #e8665c; --lawful: #77818c; --verdict-good: #2f9a5e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1120px; font: 15px/1.45 system-ui, sans-serif; color: var(--text);
  background: var(--page); }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 8px; }
p { margin: 4px 0 10px; } .quiet { color: var(--quiet); }
.verdict { padding: 14px 18px; border-radius: 8px; color: #fff; font-size: 18px; margin: 16px 0; }
.verdict.good { background: var(--verdict-good); } .verdict.bad { background: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 16px; min-width: 140px; }
.tile b { display: block; font-size: 22px; font-weight: 600; } .tile span { color: var(--quiet); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--quiet); font-weight: 500; } td:first-child, td.n { white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td.wide { min-width: 260px; }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.wrong { color: var(--bad); font-weight: 600; }
.legend span { margin-right: 18px; white-space: nowrap; } svg { max-width: 100%; } .legend svg, td svg { vertical-align: middle; }
svg text { fill: var(--text); font-size: 12px; } svg text.axis { fill: var(--quiet); } svg text.note { fill: var(--late); }
svg .line { stroke: var(--line); } svg .good { fill: var(--good); } svg .late { fill: var(--late); } svg .bad { fill: var(--bad); }
svg .lawful { fill: var(--lawful); } svg .none { fill: var(--line); }
"""


def page(report: Mapping[str, Any]) -> str:
    """The page of a report that a job wrote with `--json`. CommandFailed for one that cannot be understood."""
    try:
        if int(report["schema"]) > SCHEMA_VERSION:
            raise CommandFailed(f"the report was written by a newer version of txbroker (schema {report['schema']}); use that version")
        job = str(report["job"])
        content = _PAGES.get(job, _any_job)(report)
        spark = f" on Spark {report['spark']}" if "spark" in report else ""
        versions = f"Written by txbroker {report['txbroker']}{spark}."
        good = _is_good(report)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise CommandFailed(f"the report cannot be understood ({type(error).__name__}: {error}); specify a file that `txbroker spark` "
                            "wrote with --json") from None
    title, verdict, *sections = content
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'; img-src data:">',
        f'<link rel="icon" href="{_DATA_URL}">', f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", "</head>", "<body>",
        f"<h1>{escape(title)}</h1>", f'<div class="verdict {"good" if good else "bad"}">{escape(verdict)}</div>', *sections,
        f'<p class="quiet">{escape(versions)}</p>', "</body>", "</html>", "",
    ])  # fmt: skip


def _is_good(report: Mapping[str, Any]) -> bool:
    return bool(report["ok"] if "ok" in report else not report["problems"])


# --- audit ---


def _audit(report: Mapping[str, Any]) -> list[str]:
    partitions: Sequence[Mapping[str, Any]] = report["partitions"]
    findings: Sequence[Mapping[str, Any]] = report["findings"]
    total = {name: sum(one[name] for one in partitions) for name in ("written", "delivered", "equal", "waiting", "written_bytes")}
    title = f"Audit of {report['topic']} against {report['delivered']}"
    if findings:
        kinds = [f"{amount(sum(one['count'] for one in findings if one['kind'] == kind), 'record')} {_name(kind)}"
                 for kind in dict.fromkeys(one["kind"] for one in findings)]  # fmt: skip
        verdict = f"Something is wrong: {', '.join(kinds)}"
    else:
        verdict = f"Nothing is wrong: {amount(total['equal'], 'record')} {'is' if total['equal'] == 1 else 'are'} the same on both sides"
    side = _KIND_NAMES.get(report["kind"], report["kind"])
    about = (f"Compared with {side} at {moment(report['audited_ms'])}, {report['isolation_level']}. The result is exact for the offsets "
             "of that moment.")  # fmt: skip
    keys = [one["keys"] for one in partitions if one["keys"]]
    tiles = [
        ("records compared", f"{total['written']:,}"), ("key and value bytes", size_text(total["written_bytes"])),
        ("not delivered yet", f"{total['waiting']:,}"), ("findings", f"{len(findings):,}"), ("partitions", f"{len(partitions):,}"),
    ]  # fmt: skip
    if keys:
        tiles += [("keys", f"{sum(one['keys'] for one in keys):,}"), ("keys not seen yet", f"{sum(one['unseen'] for one in keys):,}")]
    return [
        title, verdict, f'<p class="quiet">{escape(about)}</p>', _tiles(tiles), *_findings(findings), *_lag(report["ages"]),
        *_map(report["times"], findings), *_audited_partitions(partitions), *_sentences("Not checked", report["not_checked"]),
    ]  # fmt: skip


def _findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    if not findings:
        return []
    rows = []
    for one in findings:
        examples = "<br>".join(_example(example) for example in one["examples"]) or "-"
        rows.append([
            f'<span class="wrong">{escape(_name(one["kind"]))}</span>', escape(f"{one['topic']}-{one['partition']}"), f"{one['count']:,}",
            f"{one['first_offset']:,}", examples, f"<code>{escape(one['command'])}</code>",
        ])  # fmt: skip
    meanings = [f"{_name(kind)}: {WRONG[kind]}" for kind in dict.fromkeys(one["kind"] for one in findings) if kind in WRONG]
    heads = ("finding", "partition", "#count", "#first offset", "+examples", "+look at it")
    return ["<h2>Findings</h2>", f'<p class="quiet">{escape("; ".join(meanings))}.</p>', _table(heads, rows)]


def _example(example: Mapping[str, Any]) -> str:
    text = f"offset {example['offset']:,}"
    if example["other"] is not None:
        text += f" (written at {example['other']:,})"
    if example["timestamp_ms"] is not None:
        text += f", {moment(example['timestamp_ms'])}"
    return f"{escape(text)}, key <code>{escape(key_text(example['key']))}</code>"


def key_text(key: object) -> str:
    """A key of a report: its text, or hexadecimal digits if it is none, cut at `CUT` characters."""
    if key is None:
        return "null"
    text = f"0x{base64.b64decode(key['base64'], validate=True).hex()}" if isinstance(key, dict) else str(key)
    return text if len(text) <= CUT else f"{text[: CUT - 1]}\u2026"


def _lag(ages: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many keys have a latest value that was not delivered, by the age of that value."""
    if not ages:
        return []
    found = []
    for one in ages:
        older = one["unseen"] - one["never"]
        parts = [Part("good", "keys: the latest value was delivered", one["keys"] - one["unseen"]),
                 Part("late", "keys: only an older value was delivered", older),
                 Part("bad", "keys: no value was delivered", one["never"])]  # fmt: skip
        label = f"over {_age(one['from_ms'])}" if one["to_ms"] is None else f"to {_age(one['to_ms'])}"
        found.append(Bar(label, parts, f"lag {_age(one['lag_ms'])}" if one["unseen"] else ""))
    note = ("Each bar has the keys whose latest value was written so long before the audit. Lag is the longest time from the value that "
            "was delivered to the latest one, or since it was written if no value was delivered.")  # fmt: skip
    colours = (("good", "latest value delivered"), ("late", "older value delivered"), ("bad", "no value delivered"))
    return ["<h2>Delivery lag by age of key</h2>", f'<p class="quiet">{escape(note)}</p>', legend(colours), bars(found)]


def _age(ms: int) -> str:
    """A duration with its largest unit only, which has room below and above a bar."""
    return " ".join(duration(ms).split()[:2])


def _map(times: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Partitions by the time of their records."""
    if not times:
        return []
    wrong = {(one["topic"], one["partition"]) for one in findings}
    behind = {(one["topic"], one["partition"]) for one in times if one["waiting"]}
    keys = sorted({(one["topic"], one["partition"]) for one in times}, key=lambda key: (key not in wrong, key not in behind, key))
    shown = sorted(keys[:MAP_ROWS_MAX])
    starts = sorted({one["start_ms"] for one in times})
    width = min(one["end_ms"] - one["start_ms"] for one in times)
    columns = (starts[-1] - starts[0]) // width + 1
    most = max(one["written"] + one["waiting"] for one in times) or 1
    rows: dict[str, list[Cell]] = {f"{topic}-{partition}": [] for topic, partition in shown}
    for one in times:
        if (name := f"{one['topic']}-{one['partition']}") in rows:
            counts = f"{one['written']:,} written, {one['delivered']:,} delivered, {one['waiting']:,} not delivered yet"
            different = (one["topic"], one["partition"]) in wrong and one["written"] != one["delivered"]
            style = "bad" if different else "late" if one["waiting"] or one["written"] > one["delivered"] else "good"
            strength = max((one["written"] + one["waiting"]) / most, 0.05)
            rows[name].append(Cell((one["start_ms"] - starts[0]) // width, style, 1.0 if different else strength,
                                   f"{name}, {moment(one['start_ms'])}: {counts}"))  # fmt: skip
    labels = {column: moment(starts[0] + column * width).removesuffix(":00 UTC") for column in range(0, columns, max(columns // 6, 1))}
    note = f"Each cell has the records of {duration(width)} by their timestamps (UTC); the more records, the stronger the colour."
    if len(keys) > len(shown):
        note += f" {len(shown)} of {amount(len(keys), 'partition')} are shown, those with findings and with lag first."
    colours = (("good", "delivered"), ("late", "some not delivered yet, or removed there"), ("bad", "a finding: the counts differ"))
    return ["<h2>Partitions by time</h2>", f'<p class="quiet">{escape(note)}</p>', legend(colours), heat_map(rows, columns, labels)]


def _audited_partitions(partitions: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for one in sorted(partitions, key=lambda one: (not _wrong(one), one["topic"], one["partition"])):
        events, gaps = one["events"], one["gaps"] or {}
        lawful = {kind: count for kind, count in events.items() if kind in LAWFUL}
        wrong = {kind: count for kind, count in events.items() if kind in WRONG}
        if gaps.get("unexplained") and "lost" not in wrong:
            wrong["lost"] = gaps["unexplained"]
        without = {name: gaps.get(name, 0) for name in ("compacted", "aborted", "control", "expired", "unexplained")}
        parts = [Part("good", "equal", one["equal"]), Part("late", "not delivered yet", one["waiting"]),
                 Part("bad", "wrong", sum(wrong.values())), Part("lawful", "different with a reason", sum(lawful.values()))]  # fmt: skip
        rows.append([
            escape(f"{one['topic']}-{one['partition']}"), share(parts, 120), escape(f"[{one['start']:,}, {one['end']:,})"),
            f"{one['written']:,}", _counts(without), f"{one['delivered']:,}", f"{one['equal']:,}", _wrong_counts(wrong), _counts(lawful),
            f"{one['waiting']:,}",
        ])  # fmt: skip
    note = ("Records and offsets without one add up to the offsets. Equal, wrong and other differences add up to the delivered records; "
            "missing and removed ones are only on the written side.")  # fmt: skip
    heads = ("partition", "", "offsets", "#records", "offsets without record", "#delivered", "#equal", "wrong", "other differences",
             "#not delivered yet")  # fmt: skip
    colours = (("good", "equal"), ("late", "not delivered yet"), ("bad", "wrong"), ("lawful", "different with a reason"))
    return ["<h2>Partitions</h2>", f'<p class="quiet">{escape(note)}</p>', legend(colours), _table(heads, rows)]


def _wrong(partition: Mapping[str, Any]) -> int:
    found = sum(count for kind, count in partition["events"].items() if kind in WRONG)
    return int(found + (partition["gaps"] or {}).get("unexplained", 0))


# --- load ---


def _load(report: Mapping[str, Any]) -> list[str]:
    partitions: Sequence[Mapping[str, Any]] = report["partitions"]
    loaded: Sequence[Mapping[str, Any]] = report["loaded"]
    reasons = ("compacted", "aborted", "control", "expired")
    lost, doubled = (sum(one[name] for one in partitions) for name in ("unexplained", "doubled"))
    rows_loaded = sum(one["rows"] for one in partitions)
    if report["ok"]:
        verdict = f"{amount(rows_loaded, 'row')} loaded, nothing lost or doubled" if loaded else "Nothing new"
    else:
        verdict = f"Something is wrong: {amount(lost, 'offset')} lost, {amount(doubled, 'row')} doubled"
    rows = []
    for one in sorted(partitions, key=lambda one: (not one["unexplained"] and not one["doubled"], one["topic"], one["partition"])):
        wrong = {"lost": one["unexplained"], "doubled": one["doubled"]}
        parts = [Part("good", "rows", one["rows"]), Part("bad", "lost or doubled", sum(wrong.values())),
                 Part("lawful", "offsets without a record", sum(one[name] for name in reasons))]  # fmt: skip
        rows.append([
            escape(f"{one['topic']}-{one['partition']}"), share(parts, 120), escape(f"[{one['start']:,}, {one['end']:,})"),
            f"{one['rows']:,}", _counts({name: one[name] for name in reasons}), _wrong_counts(wrong),
        ])  # fmt: skip
    heads = ("partition", "", "offsets", "#rows", "offsets without record", "wrong")
    others = {"unchecked": "loaded by an earlier run, cannot be checked any more", "expired": "expired before they were loaded",
              "waiting": "in open transactions, not loaded yet"}  # fmt: skip
    notes = [f"{one['topic']}-{one['partition']} [{one['start']:,}, {one['end']:,}): {text}"
             for name, text in others.items() for one in report[name]]  # fmt: skip
    tiles = [("rows", f"{rows_loaded:,}"), ("offsets", f"{sum(one['end'] - one['start'] for one in loaded):,}"),
             ("partitions", f"{len(loaded):,}")]  # fmt: skip
    return [f"Load into {report['table']}", verdict, _tiles(tiles), "<h2>Partitions</h2>", _table(heads, rows),
            *_sentences("Not loaded, or not checked", notes)]  # fmt: skip


# --- any other job ---


def _any_job(report: Mapping[str, Any]) -> list[str]:
    """Numbers and texts as a list, lists of objects as tables."""
    left_out = {"schema", "job", "txbroker", "spark", "ok"}
    simple = [(name, value) for name, value in report.items() if name not in left_out and not isinstance(value, list | dict)]
    sections = [_table(("field", "+value"), [[escape(_name(name)), escape(_text(value))] for name, value in simple])] if simple else []
    for name, value in report.items():
        if name in left_out or not isinstance(value, list | dict) or not value:
            continue
        found = value if isinstance(value, list) else [value]
        objects = [one for one in found if isinstance(one, dict)]
        sections.append(f"<h2>{escape(_name(name).capitalize())}</h2>")
        if len(objects) < len(found):
            sections += _sentences("", [_text(one) for one in found])
            continue
        columns = list(dict.fromkeys(column for one in objects for column in one))
        numbers = {column for column in columns if all(isinstance(one.get(column), int | None) for one in objects)}
        heads = [f"{'#' if column in numbers else ''}{_name(column)}" for column in columns]
        sections.append(_table(heads, [[escape(_text(one.get(column))) for column in columns] for one in objects]))
    verdict = "Done: nothing is wrong" if _is_good(report) else "The job found something wrong with the data"
    return [f"Report of {report['job']}", verdict, *sections]


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return key_text(value) if value.keys() == {"base64"} else ", ".join(f"{_name(name)} {_text(one)}" for name, one in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


# --- parts of pages ---


def _name(name: str) -> str:
    return name.replace("_", " ")


def _counts(counts: Mapping[str, int]) -> str:
    return escape(", ".join(f"{count:,} {_name(name)}" for name, count in counts.items() if count)) or "-"


def _wrong_counts(counts: Mapping[str, int]) -> str:
    return f'<span class="wrong">{_counts(counts)}</span>' if any(counts.values()) else "-"


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    found = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles]
    return f'<div class="tiles">{"".join(found)}</div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML. A head that begins with # has numbers below it, one with + long texts."""
    styles = [{"#": ' class="n"', "+": ' class="wide"'}.get(head[:1], "") for head in heads]
    head = "".join(f"<th{style}>{escape(name.lstrip('#+'))}</th>" for name, style in zip(heads, styles, strict=True))
    body = ["".join(f"<td{style}>{cell}</td>" for cell, style in zip(row, styles, strict=True)) for row in rows[:ROWS_MAX]]
    rest = f'<p class="quiet">{len(rows) - ROWS_MAX:,} more rows are in the JSON file.</p>' if len(rows) > ROWS_MAX else ""
    lines = "\n".join(f"<tr>{cells}</tr>" for cells in body)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table></div>{rest}'


def _sentences(title: str, sentences: Sequence[str]) -> list[str]:
    if not sentences:
        return []
    return [*([f"<h2>{escape(title)}</h2>"] if title else []), "<ul>", *(f"<li>{escape(one)}</li>" for one in sentences), "</ul>"]


_PAGES: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {"audit": _audit, "load": _load}
