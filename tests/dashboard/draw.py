#!/usr/bin/env python3
"""Draws docs/dashboard.svg from what a real Prometheus has answered:

    ADDON_SIGNER_DASHBOARD_DATA=/tmp/data.json .ci/run cluster
    tests/dashboard/draw.py /tmp/data.json >docs/dashboard.svg

Grafana draws more; this shows which panels there are, and what they look like with data.
"""
import html
import json
import sys

CELL, ROW, GAP = 42, 26, 8
COLOURS = ["#2b6cb0", "#c05621", "#2f855a", "#b83280", "#6b46c1", "#975a16", "#2c7a7b", "#c53030", "#4a5568"]


def text(x, y, said, size=11, weight="normal", colour="#2d3748", anchor="start"):
    said = html.escape(said)
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
            f'text-anchor="{anchor}">{said}</text>')


def number(value, unit):
    for limit, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if unit == "s" and value >= limit:
            return f"{value / limit:.1f} {word}"
    if unit == "s":
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.1f} s"
    if unit == "percentunit":
        return f"{value * 100:.1f} %"
    for limit, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f} {word}"
    return f"{value:.3g}"


def legend(target, metric):
    said = target["legendFormat"]
    for name, value in metric.items():
        said = said.replace("{{" + name + "}}", value)
    return said


def lines(panel):
    """Each series: its legend and its points, without what is no number."""
    for target in panel["targets"]:
        for series in target["series"]:
            points = [(float(at), float(value)) for at, value in series["values"] if value != "NaN"]
            if points:
                yield legend(target, series["metric"]), series["metric"], points


def graph(panel, x, y, width, height, unit):
    drawn = list(lines(panel))
    highest = max(value for _, _, points in drawn for _, value in points)
    top = highest or 1
    first = min(at for _, _, points in drawn for at, _ in points)
    last = max(at for _, _, points in drawn for at, _ in points)
    plot = height - 66
    yield text(x + 8, y + 38, number(highest, unit), 9, colour="#718096")
    yield f'<path d="M{x + 8} {y + 40 + plot}h{width - 16}" stroke="#cbd5e0"/>'
    for index, (said, _, points) in enumerate(drawn[:9]):
        place = [(x + 8 + (at - first) / ((last - first) or 1) * (width - 16), y + 40 + plot - value / top * plot)
                 for at, value in points]
        path = " ".join(f"{a:.0f},{b:.0f}" for a, b in place)
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[index]}" stroke-width="1.5"/>'
    shown = [(said[:24], COLOURS[index]) for index, (said, _, _) in enumerate(drawn[:3]) if said.strip()]
    if len(drawn) > 3:
        shown.append((f"and {len(drawn) - 3} more", "#718096"))
    words = "".join(f'<tspan fill="{colour}" dx="6">{html.escape(said)}</tspan>' for said, colour in shown)
    yield f'<text x="{x + 2}" y="{y + height - 8}" font-size="9">{words}</text>'


def table(panel, x, y, unit):
    for index, (_, metric, points) in enumerate(list(lines(panel))[:6]):
        row = "  ".join(metric.values())
        value = "" if unit == "short" else number(points[-1][1], unit)
        yield text(x + 8, y + 44 + 20 * index, f"{row}   {value}", 10)


def draw(panel):
    grid, unit = panel["gridPos"], panel["fieldConfig"]["defaults"]["unit"]
    x, y, width, height = grid["x"] * CELL, grid["y"] * ROW, grid["w"] * CELL - GAP, grid["h"] * ROW - GAP
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#fff" stroke="#cbd5e0" rx="3"/>'
    yield text(x + 8, y + 18, panel["title"], 11, "bold")
    if panel["type"] == "stat":
        value = list(lines(panel))[0][2][-1][1]
        yield text(x + width / 2, y + height / 2 + 18, number(value, unit), 24, "bold", "#2b6cb0", "middle")
    elif panel["type"] == "table":
        yield from table(panel, x, y, unit)
    else:
        yield from graph(panel, x, y, width, height, unit)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 -4 {24 * CELL + 8} {height + 8}" '
          'font-family="sans-serif"><rect x="-4" y="-4" width="100%" height="100%" fill="#edf2f7"/>')
    for panel in panels:
        print("".join(draw(panel)))
    print("</svg>")


if __name__ == "__main__":
    main()
