"""The status of a root as one page of HTML that loads nothing from elsewhere: for a browser, an e-mail, a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape

from pravega_spark.quantities import counted
from pravega_spark.status import RootStatus
from pravega_spark.status_texts import (
    CONSUMER_HEADINGS,
    CONTAINER_HEADINGS,
    STREAM_HEADINGS,
    consumer_texts,
    container_texts,
    stream_texts,
)

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #888; --bad: #c62828; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.25rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 1.75rem 0 .4rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); } .bad { color: var(--bad); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem .3rem 0; text-align: left; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; } td { font-variant-numeric: tabular-nums; }
"""


def status_page(status: RootStatus) -> str:
    """The page. All names are escaped."""
    moment = datetime.fromtimestamp(status.moment, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [
        f"<h1>{escape(status.url)}</h1>",
        f'<p class="soft">{counted(len(status.streams), "stream")} at {moment}</p>',
        *(f'<p class="bad">{escape(problem)}</p>' for problem in status.problems),
        _table("Streams", STREAM_HEADINGS, (stream_texts(each, status.moment) for each in status.streams)),
        _table("Consumers", CONSUMER_HEADINGS, map(consumer_texts, status.consumers)),
        _table("Containers", CONTAINER_HEADINGS, (container_texts(each, status.moment) for each in status.containers)),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(status.url)}</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    if not body:
        return f'<h2>{title}</h2><p class="soft">none</p>'
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    return f'<h2>{title}</h2><div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
