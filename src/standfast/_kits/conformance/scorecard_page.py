"""Self-contained HTML page of a scorecard: no script, nothing loaded from elsewhere, every text escaped.

Its content comes from a store and from errors of its server, so it is not trusted: it is escaped here, and the page's
own policy forbids everything but its style, should that ever fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from standfast._kits.conformance.results import BROKEN, KEPT, LEFT_OUT, NOT_APPLICABLE, NOT_CLAIMED, NOT_RUN
from standfast._kits.contract.clauses import CLAUSES, PARTS, sort_key

_KINDS = {KEPT: "kept", BROKEN: "broken", NOT_APPLICABLE: "none", NOT_CLAIMED: "unclaimed", NOT_RUN: "none"}

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --kept: #1a7f37; --broken: #c62828; --other: #6b6b6b; }}
@media (prefers-color-scheme: dark) {{ :root {{ --kept: #4cc267; --broken: #ff7b72; --other: #a0a0a0; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }}
tr.part th {{ padding-top: 1.5rem; font-size: 1.1rem; }}
dt {{ font-weight: 600; float: left; clear: left; min-width: 8rem; }}
dd {{ margin: 0 0 0 8.5rem; overflow-wrap: anywhere; }}
.kept {{ color: var(--kept); }} .broken {{ color: var(--broken); font-weight: 700; }}
.none, .unclaimed {{ color: var(--other); }}
summary {{ cursor: pointer; }} li, p {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
"""


def page(data: Mapping[str, Any], title: str, facts: Mapping[str, str]) -> str:
    """The whole page of what `Scorecard.data` gives; `facts` are shown above the table, in their order."""
    out = [_HEAD.format(title=escape(title))]
    if facts:
        out.append("<dl>")
        out += [f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()]
        out.append("</dl>")
    out += [f"<p>{escape(name)}: {_summarize(column)}</p>" for name, column in data.items()]
    out += _table(data)
    out += ["</main>", "</body>", "</html>"]
    return "\n".join(out) + "\n"


def _summarize(column: Mapping[str, Any]) -> str:
    """Count the clauses of each value, in words."""
    counts = dict.fromkeys(_KINDS, 0)
    for entry in column.values():
        counts[entry["value"]] += 1
    said = [f"<strong>{counts[KEPT]} of {len(column)} clauses kept</strong>"]
    said += [
        f'<span class="{_KINDS[value]}">{counts[value]} {value}</span>'
        for value in (BROKEN, NOT_APPLICABLE, NOT_CLAIMED, NOT_RUN)
        if counts[value]
    ]
    return ", ".join(said)


def _table(data: Mapping[str, Any]) -> Iterator[str]:
    yield "<table>"
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in data)
    yield f'<thead><tr><th scope="col">clause</th>{names}</tr></thead>'
    yield "<tbody>"
    part = ""
    for clause_id in sorted({one for column in data.values() for one in column}, key=sort_key):
        if clause_id[0] != part:
            part = clause_id[0]
            heading = f"{part}. {PARTS.get(part, '')}"
            yield f'<tr class="part"><th scope="rowgroup" colspan="{len(data) + 1}">{escape(heading)}</th></tr>'
        known = CLAUSES.get(clause_id)
        name = f"<strong>{escape(clause_id)}</strong>"
        if known is not None:
            name = f"<details><summary>{name} {escape(known.title)}</summary><p>{escape(known.text)}</p></details>"
        cells = "".join(f"<td>{_cell(column.get(clause_id))}</td>" for column in data.values())
        yield f'<tr><th scope="row">{name}</th>{cells}</tr>'
    yield "</tbody>"
    yield "</table>"


def _cell(entry: Mapping[str, Any] | None) -> str:
    """Format a value, and the outcomes of its checks."""
    if entry is None:
        return f'<span class="none">{NOT_RUN}</span>'
    checks = entry["checks"]
    made = sum(one["value"] != LEFT_OUT for one in checks)
    words = entry["value"] + (f" ({made} of {len(checks)} checks)" if entry["value"] in (KEPT, BROKEN) else "")
    label = f'<span class="{_KINDS[entry["value"]]}">{escape(words)}</span>'
    if not checks:
        return f"{label}<br>{escape(entry['reason'])}" if entry["reason"] else label
    lines = "".join(_line(one) for one in checks)
    opened = " open" if entry["value"] == BROKEN else ""
    return f"<details{opened}><summary>{label}</summary><ul>{lines}</ul></details>"


def _line(check: Mapping[str, str]) -> str:
    seen = f": {escape(check['detail'])}" if check["detail"] else ""
    kind = _KINDS.get(check["value"], "none")
    name = escape(check["check"].replace("_", " "))
    return f'<li><span class="{kind}">{escape(check["value"])}</span> {name}{seen}</li>'
