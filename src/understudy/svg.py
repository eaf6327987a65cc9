"""Charts as hand-made SVG: nothing to download, sharp on paper, readable without colour.

The stand-in is always a blue bar or dot, the real table a dark orange line or diamond: they differ in form and colour.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from markupsafe import Markup, escape

WIDTH = 340
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#3a424b}.value{fill:#59636e}.standin{fill:#5fa8d3}"
    ".noise{stroke:#1b3c53;stroke-width:1}.axis{stroke:#8b95a1;stroke-width:1}.rule{stroke:#e6eaee;stroke-width:1}"
)
_BAR, _GAP = 15, 5
_LABEL_ROOM = 128.0


@dataclass(frozen=True)
class Chart:
    """A drawing that stands alone: notebooks show it, and `save` writes it as an .svg file.

    Attributes:
        svg: the drawing.
    """

    svg: str

    @classmethod
    def standalone(cls, drawn: Markup) -> Chart:
        """Add to a chart of a page the styles that the page would have."""
        head, mark, rest = str(drawn).partition(">")
        head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        return cls(f"{head}{mark}<style>{_STYLE}</style>{rest}")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the drawing to a file."""
        Path(path).write_text(self.svg + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        return "<Chart>"

    def _repr_html_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Bar:
    """One value of a distribution; shares between 0 and 1.

    Attributes:
        label: its name.
        share: the stand-in's share.
        noise: two standard deviations of the noise, as a share; 0 when unknown.
        real: the real share, where the reader may know it.
    """

    label: str
    share: float
    noise: float = 0.0
    real: float | None = None


def draw_distribution(title: str, bars: Sequence[Bar], *, ordered: bool, edges: Sequence[str] | None = None) -> Markup:
    """Return a column's distribution: bars with labels for a few values, a histogram for many ordered ones.

    Args:
        title: for readers who cannot see it.
        bars: the values.
        ordered: whether they have an order.
        edges: where the bars of a histogram begin and the last one ends; by default the bars have labels of their own.
    """
    if ordered and (len(bars) > 12 or edges is not None):
        return _histogram(title, bars, edges)
    return _bars(title, bars)


def percent(share: float) -> str:
    """Return a share in words that fit: 12 %, 3.4 %, 0.05 %.

    >>> percent(0.1234), percent(0.0005), percent(0.0)
    ('12.3 %', '0.05 %', '0 %')
    """
    value = 100 * share
    if value == 0:
        return "0 %"
    return f"{value:.1f} %" if abs(value) >= 1 else f"{value:.2f} %" if abs(value) >= 0.01 else "< 0.01 %"


def _find_top(bars: Sequence[Bar]) -> float:
    return max([*(bar.share + bar.noise for bar in bars), *(bar.real or 0.0 for bar in bars), 1e-9])


def _bars(title: str, bars: Sequence[Bar]) -> Markup:
    height = len(bars) * (_BAR + _GAP) + 4
    names = [_shorten_label(bar.label) for bar in bars]
    label = round(max(_label_width(name) for name in names) + 10)
    room = WIDTH - label - 52
    scale = room / _find_top(bars)
    marks = []
    for place, bar in enumerate(bars):
        y = 2 + place * (_BAR + _GAP)
        end = label + bar.share * scale
        marks.append(_text(label - 7, y + 11.5, names[place], "end"))
        marks.append(
            Markup('<rect class="standin" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
                label, y, _n(max(bar.share * scale, 0.5)), _BAR, _describe_bar(bar)
            )
        )
        reach = end
        if bar.noise:
            low, high = max(label, end - bar.noise * scale), min(end + bar.noise * scale, WIDTH - 46)
            marks.append(_line(low, y + _BAR / 2, high, y + _BAR / 2, "noise"))
            reach = max(reach, high)
        if bar.real is not None:
            x = label + bar.real * scale
            marks.append(_line(x, y - 1.5, x, y + _BAR + 1.5, "real"))
            reach = max(reach, x)
        marks.append(_text(min(reach + 6, WIDTH - 44), y + 11.5, percent(bar.share), "start", "value"))
    marks.append(_line(label, 0, label, height, "axis"))
    return _svg(title, WIDTH, height, marks)


def choose_ticks(edges: Sequence[str], most: int = 5, apart: float = 0.0) -> list[int]:
    """Choose the edges that get a label: both ends, and between them round ones at even distances.

    Args:
        edges: where the bins begin and the last one ends, or what they are called.
        most: the largest number of labels.
        apart: how many edges the others are away from both ends, whose labels do not stick out of the axis.

    >>> edges = "0 2 5 10 22 47 100 220 470 1000 2200 4700 10000 22000 50000".split()
    >>> [edges[place] for place in choose_ticks(edges)]
    ['0', '10', '100', '1000', '50000']
    >>> choose_ticks([f"{hour:02}:00" for hour in range(25)]), choose_ticks([str(day) for day in range(61)], 4)
    ([0, 6, 12, 18, 24], [0, 20, 40, 60])
    """
    last = len(edges) - 1
    best, chosen = math.inf, list[int]()
    for step in range(max(1, -(-last // most)), last // 2 + 1) if most > 2 else ():
        for start in range(max(1, round(0.7 * step)), round(1.4 * step) + 1):
            places = list(range(start, last, step))[: most - 2]
            rough = sum(_roughness(edges[place]) for place in places) / len(places)
            badness = rough + most - len(places) + 0.6 * (start != step)
            ends = places[0], last - places[-1]
            if badness < best and min(ends) >= apart and 0.6 * step <= ends[1] <= 1.7 * step:
                best, chosen = badness, places
    return [0, *chosen, last]


def _roughness(words: str) -> float:
    """Return the number of non-zero figures, less for a last 5, and one more if the label is no power of ten."""
    if words in ("06:00", "12:00", "18:00") or words.endswith("-01-01"):
        return 0.5 if words.endswith("0-01-01") else 1.0
    figures = [letter for letter in words if letter not in "0.,:-"]
    return len(figures) - 0.5 * (figures[1:2] == ["5"]) + (figures not in ([], ["1"]))


def round_labels(edges: Sequence[str]) -> list[str]:
    """Leave out what nobody sees on an axis: decimals of large numbers, seconds and times of day that are all zero.

    >>> round_labels(["1.03", "1400.03"]), round_labels(["00:00:00", "12:00:00", "23:59:59"])
    (['1.03', '1400'], ['00:00', '12:00', '23:59'])
    >>> round_labels(["2023-01-31 00:00:00", "2023-02-28 23:59:59"])
    ['2023-01-31', '2023-02-28']
    """
    for zeros in (" 00:00:00", ":00"):
        if all(edge.endswith(zeros) and len(edge) > 5 for edge in edges[:-1]) and len(edges[-1]) == len(edges[0]):
            return [edge[: -len(zeros)] for edge in edges]
    found = []
    for edge in edges:
        whole, point, decimals = edge.partition(".")
        found.append(whole if point and len(whole.lstrip("-")) > 2 and decimals.isdigit() else edge)
    return found


def place_round_numbers(edges: Sequence[str], width: float) -> list[tuple[float, str]] | None:
    """Place round numbers on an axis of bins; None if the edges are no numbers.

    Args:
        edges: where the bins begin and the last one ends; all bins are drawn equally wide.
        width: of the axis, in pixels; all labels fit beside each other.

    Returns:
        Places in bins from the left, and labels.

    >>> [words for _, words in place_round_numbers("0 0.63 15.8 388 2000".split(), 330)]
    ['0', '1', '10', '100', '2000']
    >>> place_round_numbers("0 12 24 36 48".split(), 330)
    [(0.0, '0'), (0.8333333333333334, '10'), (1.6666666666666665, '20'), (2.5, '30'), (3.3333333333333335, '40')]
    """
    try:
        values = [float(edge.replace(",", "")) for edge in edges]
    except ValueError:
        return None
    low, middle, high = values[0], values[len(values) // 2], values[-1]
    if not all(math.isfinite(value) for value in values) or not low < high:
        return None
    grows = high > 0 and (middle - low) < 0.3 * (high - low)
    chosen = _choose_powers(values, width) if grows else _choose_multiples(values, width)
    return [(_find_place(values, value, grows), _number(value, high)) for value in chosen]


def _choose_multiples(edges: Sequence[float], width: float) -> list[float]:
    """Return the multiples of 1, 2 or 5 times a power of ten whose labels fit."""
    low, high = edges[0], edges[-1]
    ten = math.floor(math.log10((high - low) / 6))
    for step in (factor * 10.0**power for power in (ten, ten + 1, ten + 2) for factor in (1, 2, 5)):
        chosen = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if len(chosen) <= 7 and _fits(edges, chosen, width):
            return chosen
    return []


def _choose_powers(edges: Sequence[float], width: float) -> list[float]:
    """Return the ends, if they are round, and the powers of ten that fit between them; if these are few, more."""
    low, high, first = edges[0], edges[-1], min(value for value in edges if value > 0)
    tens = range(math.ceil(math.log10(high)), math.floor(math.log10(first)) - 1, -1)
    chosen = sorted({value for value in (low, high) if _roughness(_number(value)) <= 2})

    def list_values(factors: Sequence[int], *, at_least: float) -> list[float]:
        found = [factor * 10.0**ten for ten in tens for factor in factors]
        found = [value for value in found if at_least <= value <= high]
        return [value for value in (*found, *(-value for value in found)) if value >= low and value not in chosen]

    for value in list_values((1,), at_least=first):
        if _fits(edges, more := sorted([*chosen, value]), width):
            chosen = more
    least = min((value for value in chosen if value > 0), default=first)
    for factors in ((2, 5), (3,)):
        more = sorted([*chosen, *list_values(factors, at_least=least)])
        if len(chosen) < 4 and _fits(edges, more, width):
            chosen = more
    return chosen


def _fits(edges: Sequence[float], values: Sequence[float], width: float) -> bool:
    """Return whether the labels of these values stand apart on an axis of this width; those at its ends stay on it."""
    reach = -math.inf
    for value in values:
        wide = _label_width(_number(value, edges[-1]))
        at = _find_place(edges, value, edges[0] >= 0) / (len(edges) - 1) * width
        start = min(max(at - wide / 2, 0.0), width - wide)
        if start < reach + 6:
            return False
        reach = start + wide
    return True


def _find_place(edges: Sequence[float], value: float, grows: bool) -> float:
    """Return where a value lies, in bins from the left: by ratio if bins grow and this one begins above 0."""
    place = min(bisect_right(edges, value), len(edges) - 1) - 1
    low, high = edges[place], edges[place + 1]
    if high <= low:
        return float(place)
    return place + (math.log(value / low) / math.log(high / low) if grows and low > 0 else (value - low) / (high - low))


def _number(value: float, largest: float = 0.0) -> str:
    """Write a number of an axis; with marks of thousands if its largest one has five digits (2020 may be a year)."""
    return f"{value:,.0f}" if abs(value) >= 1000 and max(largest, abs(value)) >= 10_000 else f"{value:.6g}"


def _label_axis(bars: Sequence[Bar], edges: Sequence[str] | None, width: float) -> list[tuple[float, str]]:
    """Return the labels below a histogram and their places, in bars from the left."""
    if edges is not None and (found := place_round_numbers(edges, width)) is not None:
        return found
    labels = [bar.label for bar in bars] if edges is None else round_labels(edges)
    longest = max(_label_width(labels[place]) for place in (0, len(labels) // 2, len(labels) - 1))
    apart = (1.5 * longest + 6) / width * len(bars)
    ticks = choose_ticks(labels, max(2, min(5, int(width / (longest + 16)))), apart)
    return [(place + 0.5 * (edges is None), labels[place]) for place in ticks]


def _histogram(title: str, bars: Sequence[Bar], edges: Sequence[str] | None) -> Markup:
    height, base, left = 132, 108, 4.0
    step = (WIDTH - 2 * left) / len(bars)
    scale = (base - 16) / _find_top(bars)
    gap = 1.0 if step > 5 else 0.0
    marks = []
    for place, bar in enumerate(bars):
        x = left + place * step
        tall = max(bar.share * scale, 0.4 if bar.share > 0 else 0.0)
        marks.append(
            Markup('<rect class="standin" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
                _n(x), _n(base - tall), _n(max(step - gap, 0.5)), _n(tall), _describe_bar(bar)
            )
        )
        if bar.noise and step > 5:
            middle = x + (step - gap) / 2
            low, high = max(bar.share - bar.noise, 0.0), bar.share + bar.noise
            marks.append(_line(middle, base - low * scale, middle, base - high * scale, "noise"))
    if any(bar.real is not None for bar in bars):
        points = []
        for place, bar in enumerate(bars):
            y = _n(base - (bar.real or 0.0) * scale)
            points += [f"{_n(left + place * step)},{y}", f"{_n(left + (place + 1) * step)},{y}"]
        marks.append(Markup('<polyline class="real" points="{}"/>').format(" ".join(points)))
    marks.append(_line(left, base, WIDTH - left, base, "axis"))
    for at, words in _label_axis(bars, edges, WIDTH - 2 * left):
        x = left + step * at
        anchor = "start" if at < 0.6 else "end" if at > len(bars) - 0.6 else "middle"
        marks.append(_line(x, base, x, base + 4, "axis"))
        marks.append(_text({"start": left, "middle": x, "end": WIDTH - left}[anchor], 124, words, anchor))
    marks.append(_text(left, 10, f"highest: {percent(max(bar.share for bar in bars))}", "start", "value"))
    return _svg(title, WIDTH, height, marks)


def draw_heatmap(title: str, names: Sequence[str], values: Sequence[Sequence[float]]) -> Markup:
    """Return a triangle of associations between 0 and 1: the darker, the stronger."""
    cell = 30 if len(names) <= 12 else 22 if len(names) <= 18 else 17
    left, top = 118, 6
    size = cell * (len(names) - 1)
    width, height = left + size + 70, top + size + 74
    marks = []
    for row in range(1, len(names)):
        marks.append(_text(left - 6, top + (row - 1) * cell + cell / 2 + 4, _cut_text(names[row], 19), "end"))
        for column in range(row):
            value = values[row][column]
            x, y = left + column * cell, top + (row - 1) * cell
            tip = f"{names[row]} and {names[column]}: {value:.2f}"
            marks.append(
                Markup(
                    '<rect class="cell" x="{}" y="{}" width="{}" height="{}" fill="{}"><title>{}</title></rect>'
                ).format(x, y, cell - 1, cell - 1, choose_shade(value), tip)
            )
            if cell >= 22 and value >= 0.095:
                kind = "oncell dark" if value > 0.5 else "oncell"
                marks.append(
                    _text(
                        x + (cell - 1) / 2,
                        y + cell / 2 + 3.5,
                        "1" if value >= 0.95 else f"{value:.1f}"[1:],
                        "middle",
                        kind,
                    )
                )
    for column in range(len(names) - 1):
        across, below = left + column * cell + cell / 2 - 3, float(top + size + 10)
        marks.append(
            Markup('<text x="{}" y="{}" text-anchor="start" transform="rotate(45 {} {})">{}</text>').format(
                _n(across), _n(below), _n(across), _n(below), _cut_text(names[column], 14)
            )
        )
    right = left + max(size - 96, 60)
    marks.append(_text(right - 4, top + 10, "0", "end"))
    for step in range(5):  # the upper right of the triangle is free
        marks.append(
            Markup('<rect class="cell" x="{}" y="{}" width="18" height="12" fill="{}"/>').format(
                right + 18 * step, top, choose_shade(step / 4)
            )
        )
    marks.append(_text(right + 94, top + 10, "1", "start"))
    return _svg(title, max(width, right + 110), height, marks)


def choose_shade(value: float) -> str:
    """Return a colour from white to dark blue; only lightness carries the value, which suits all colour vision."""
    stops = [(255, 255, 255), (198, 219, 239), (107, 174, 214), (33, 113, 181), (8, 48, 107)]
    place = min(max(value, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(stops[low], stops[low + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def draw_graph(title: str, names: Sequence[str], edges: Sequence[tuple[int, int]]) -> Markup:
    """Draw columns on a circle, joined where they were measured together; more than 30 lines as a table of dots.

    The table has only columns that were measured with another.
    """
    joined = sorted({place for edge in edges for place in edge})
    if len(edges) > 30:
        return _dots(title, [names[place] for place in joined], [(joined.index(a), joined.index(b)) for a, b in edges])
    radius = min(150.0, 60.0 + 7.0 * len(names))
    middle_x, middle_y = radius + 130, radius + 26
    places = []
    for number in range(len(names)):
        angle = 2 * math.pi * number / max(len(names), 1) - math.pi / 2
        places.append((middle_x + radius * math.cos(angle), middle_y + radius * math.sin(angle), angle))
    marks = []
    for one, other in edges:
        (x1, y1, _), (x2, y2, _) = places[one], places[other]
        bend = f"M{_n(x1)} {_n(y1)} Q{_n((x1 + x2) / 2 * 0.6 + middle_x * 0.4)} "
        bend += f"{_n((y1 + y2) / 2 * 0.6 + middle_y * 0.4)} {_n(x2)} {_n(y2)}"
        marks.append(
            Markup('<path class="edge" d="{}"><title>{}</title></path>').format(bend, f"{names[one]}, {names[other]}")
        )
    for name, (x, y, angle) in zip(names, places, strict=True):
        side = "middle" if abs(math.cos(angle)) < 0.2 else "start" if math.cos(angle) > 0 else "end"
        out_x, out_y = x + 11 * math.cos(angle), y + 13 * math.sin(angle) + 4
        marks.append(Markup('<circle class="node" cx="{}" cy="{}" r="5.5"/>').format(_n(x), _n(y)))
        marks.append(_text(out_x, out_y, _cut_text(name, 18), side))
    return _svg(title, 2 * middle_x, 2 * middle_y, marks)


def _dots(title: str, names: Sequence[str], edges: Sequence[tuple[int, int]]) -> Markup:
    """Return a table with a row and a column for each name, and a dot where the two were measured together."""
    cell, left, top = 16, 130, 4
    size = cell * len(names)
    marks = []
    for place, name in enumerate(names):
        at = top + place * cell + cell / 2
        marks.append(_text(left - 6, at + 4, _cut_text(name, 19), "end"))
        marks.append(_line(left, at, left + place * cell + cell / 2, at, "guide"))
        across = left + place * cell + cell / 2
        marks.append(_line(across, at, across, top + size, "guide"))
        below = float(top + size + 8)
        marks.append(
            Markup('<text x="{}" y="{}" text-anchor="start" transform="rotate(45 {} {})">{}</text>').format(
                _n(across - 3), _n(below), _n(across - 3), _n(below), _cut_text(name, 14)
            )
        )
    for one, other in edges:
        row, column = max(one, other), min(one, other)
        marks.append(
            Markup('<circle class="node" cx="{}" cy="{}" r="4.5"><title>{}</title></circle>').format(
                _n(left + column * cell + cell / 2), _n(top + row * cell + cell / 2), f"{names[one]}, {names[other]}"
            )
        )
    return _svg(title, left + size + 70, top + size + 76, marks)


def draw_scale(title: str, value: float, halves: float, independent: float, best: float) -> Markup:
    """Draw one score between the references: the best value at the left end of the line."""
    span = max(abs(x - best) for x in (value, halves, independent)) or 1.0
    left, right, y = 10.0, 290.0, 18.0

    def place(x: float) -> float:
        return left + (right - left) * (abs(x - best) / span)

    square = _n(place(halves) - 4.5), _n(y - 4.5)
    marks = [
        _line(left, y, right, y, "axis"),
        _line(left, y - 5, left, y + 5, "axis"),
        Markup('<path class="reference" d="M{} {} l6 10 h-12 z"/>').format(_n(place(independent)), _n(y - 6)),
        Markup('<rect class="reference" x="{}" y="{}" width="9" height="9"/>').format(*square),
        Markup('<circle class="dot" cx="{}" cy="{}" r="6.5"/>').format(_n(place(value)), _n(y)),
    ]
    return _svg(title, 300, 36, marks)


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a chart of trade-offs.

    Attributes:
        kind: what it is, which decides how it is drawn: "claim", "theory", "seen" or "chance".
        x: shares of false positives, rising.
        y: shares of true positives.
    """

    kind: str
    x: Sequence[float]
    y: Sequence[float]


def draw_tradeoff(title: str, curves: Sequence[Curve], *, most: tuple[float, float] = (1.0, 1.0)) -> Markup:
    """Draw true positives by false positives; `most` is where the axes end."""
    left, top, size = 46.0, 8.0, 250.0
    marks = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + part * size, top + (1 - part) * size
        marks += [_line(left, y, left + size, y, "rule"), _line(x, top, x, top + size, "rule")]
        marks.append(_text(left - 6, y + 4, f"{100 * part * most[1]:.3g} %", "end", "value"))
        marks.append(_text(x, top + size + 15, f"{100 * part * most[0]:.3g} %", "middle", "value"))
    for curve in curves:
        points = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if x <= most[0] and y <= most[1]]
        drawn = " ".join(f"{_n(left + size * x / most[0])},{_n(top + size * (1 - y / most[1]))}" for x, y in points)
        marks.append(Markup('<polyline class="curve {}" points="{}"/>').format(curve.kind, drawn))
    marks.append(_text(left + size / 2, top + size + 32, "false positives", "middle"))
    return _svg(title, left + size + 24, top + size + 40, marks)


# -- Lines and points of several series, which differ in colour, dashes and marks.


@dataclass(frozen=True)
class Series:
    """The values of one series.

    Attributes:
        label: its name.
        points: x, y, and the least and the largest y of each point.
    """

    label: str
    points: Sequence[tuple[float, float, float, float]]


_COLOURS = ("#0072b2", "#b34700", "#007a5a", "#8e4585", "#59636e", "#9a7d00", "#c2185b", "#2f3f9e")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


def choose_colour(place: int) -> str:
    """Return the colour of the series at this place; after eight they repeat, with other dashes and marks."""
    return _COLOURS[place % len(_COLOURS)]


def draw_key(place: int) -> Markup:
    """Return a piece of the line of the series at this place, for a key beside a chart."""
    return Markup('<svg width="30" height="12" aria-hidden="true">{}{}</svg>').format(
        _stroke([(0, 6), (30, 6)], place), _mark(15, 6, place, "")
    )


def draw_lines(title: str, series: Sequence[Series], *, x_words: str, y_words: str, keyed: bool = False) -> Markup:
    """Draw several series with bars from the least to the largest; wide axes are logarithmic.

    Args:
        title: for readers who cannot see it.
        series: the lines.
        x_words: what the horizontal axis shows.
        y_words: what the vertical axis shows.
        keyed: whether the chart names its series; a page has a key for all of its charts.
    """
    return _plane(title, series, x_words, y_words, joined=True, keyed=keyed)


def draw_points(title: str, series: Sequence[Series], front: Sequence[int], *, x_words: str, y_words: str) -> Markup:
    """Return a point for each series; those of the front, which no other beats in both, are joined."""
    return _plane(title, series, x_words, y_words, joined=False, front=front)


def boxes(title: str, groups: Sequence[tuple[str, Sequence[float]]], *, x_words: str, at: float) -> Markup:
    """Draw a box for each group of positive values: quartiles, median, and a line from least to largest.

    Args:
        title: for readers who cannot see it.
        groups: a label and its values.
        x_words: what the axis shows.
        at: a value that is marked by a line across all boxes.
    """
    width, left, right, row, top = 460.0, _LABEL_ROOM + 12, 16.0, 26.0, 10.0
    below = top + row * len(groups)
    across = _Axis.over([at, *(value for _, values in groups for value in values)], left, width - right)
    marks = []
    for value, words in across.ticks():
        x = across.place(value)
        marks += [_line(x, top, x, below, "rule"), _text(x, below + 16, words, "middle", "value")]
    marks.append(_line(across.place(at), top, across.place(at), below, "axis"))
    for place, (label, values) in enumerate(groups):
        y, ordered = top + row * (place + 0.5), sorted(values)
        low, first, middle, third, high = (across.place(_quantile(ordered, part / 4)) for part in range(5))
        words = f"{label}: {ordered[0]:.3g} to {ordered[-1]:.3g}, median {_quantile(ordered, 0.5):.3g}"
        box = Markup('<rect class="standin" x="{}" y="{}" width="{}" height="12"><title>{}</title></rect>')
        marks += [_text(left - 8, y + 4, _shorten_label(label), "end"), _line(low, y, high, y, "noise")]
        marks.append(box.format(_n(first), _n(y - 6), _n(max(third - first, 1.0)), words))
        marks.append(_line(middle, y - 6, middle, y + 6, "noise"))
    marks.append(_text(width / 2, below + 34, x_words, "middle"))
    return _svg(title, width, below + 42, marks)


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Return the value below which this part of ordered values lies, between neighbours in proportion."""
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def _plane(
    title: str,
    series: Sequence[Series],
    x_words: str,
    y_words: str,
    *,
    joined: bool,
    front: Sequence[int] = (),
    keyed: bool = False,
) -> Markup:
    width, height, left, right, top, below = 460.0, 300.0, 58.0, 16.0, 10.0, 44.0
    every = [point for one in series for point in one.points]
    up = _Axis.over([y for _, *ys in every for y in ys], height - below, top)
    left += 6.0 * max(0, max((len(words) for _, words in up.ticks()), default=0) - 5)  # room for long numbers
    across = _Axis.over([x for x, *_ in every], left, width - right)
    marks = []
    for value, words in across.ticks():
        x = across.place(value)
        marks += [_line(x, top, x, height - below, "rule"), _text(x, height - below + 16, words, "middle", "value")]
    for value, words in up.ticks():
        y = up.place(value)
        marks += [_line(left, y, width - right, y, "rule"), _text(left - 6, y + 4, words, "end", "value")]
    marks.append(_text((left + width - right) / 2, height - 8, x_words, "middle"))
    spot = f"translate(12 {_n((top + height - below) / 2)}) rotate(-90)"
    marks.append(Markup('<text transform="{}" text-anchor="middle">{}</text>').format(spot, y_words))
    shift = 3.0 if len(series) > 1 and joined else 0.0
    if front:
        ends = sorted((across.place(x), up.place(y)) for place in front for x, y, *_ in series[place].points)
        drawn = " ".join(f"{_n(x)},{_n(y)}" for x, y in ends)
        marks.append(
            Markup('<polyline points="{}" fill="none" stroke="#8b95a1" stroke-width="5" opacity=".45"/>').format(drawn)
        )
    for place, one in enumerate(series):
        off = shift * (place - (len(series) - 1) / 2) / max(len(series) - 1, 1)
        spots = [(across.place(x) + off, up.place(y)) for x, y, *_ in one.points]
        if joined:
            marks.append(_stroke(spots, place))
        for (x, y), (_, value, low, high) in zip(spots, one.points, strict=True):
            bar = Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}" stroke-width="1.2"/>')
            marks.append(bar.format(_n(x), _n(up.place(low)), _n(x), _n(up.place(high)), choose_colour(place)))
            marks.append(_mark(x, y, place, f"{one.label}: {value:.4g} ({low:.4g} to {high:.4g})"))
    along, down = left, height + 10
    for place, one in enumerate(series if keyed else ()):
        room = 30 + _label_width(one.label)
        if along + room > width and along > left:
            along, down = left, down + 18
        marks += [_stroke([(along, down), (along + 22, down)], place), _mark(along + 11, down, place, "")]
        marks.append(_text(along + 28, down + 4, one.label, "start"))
        along += room + 14
    return _svg(title, width, down + 12 if keyed else height, marks)


@dataclass(frozen=True)
class _Axis:
    """An axis between two places of a chart, logarithmic where positive values span a factor of five and more."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        low, high = min(values, default=0.0), max(values, default=1.0)
        if low > 0 and high >= 5 * low:
            return cls(low / 1.15, high * 1.15, start, end, True)
        room = max(0.06 * (high - low), 0.02 * abs(high)) or 1.0  # values that are nearly equal look so
        return cls(0.0 if 0 <= low < 0.5 * high else low - room, high + room, start, end, False)

    def place(self, value: float) -> float:
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values within the axis, and their words."""
        if self.logarithmic:
            tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if self.high / self.low > 200 else (1, 3) if self.high / self.low > 30 else (1, 2, 5)
            found = [step * 10.0**ten for ten in tens for step in steps]
        else:
            rough = (self.high - self.low) / 5
            step = 10.0 ** math.floor(math.log10(rough))
            step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= rough)
            found = [step * number for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [(value, f"{value:.6g}") for value in found if self.low <= value <= self.high]


def _stroke(spots: Sequence[tuple[float, float]], place: int) -> Markup:
    dash = _DASHES[place // len(_COLOURS) % len(_DASHES)]
    drawn = " ".join(f"{_n(x)},{_n(y)}" for x, y in spots)
    return Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="1.6" stroke-dasharray="{}"/>').format(
        drawn, choose_colour(place), dash
    )


def _mark(x: float, y: float, place: int, words: str) -> Markup:
    """Return a circle, square, triangle or diamond, so that series differ without colour."""
    shapes = ("M{0} {1}m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0", "M{0} {1}m-3.2 -3.2h6.4v6.4h-6.4z",
              "M{0} {1}m0 -4.2l4 7.2h-8z", "M{0} {1}m0 -4.4l4.4 4.4l-4.4 4.4l-4.4 -4.4z")  # fmt: skip
    path = shapes[place % len(shapes)].format(_n(x), _n(y))
    tip = Markup("<title>{}</title>").format(words) if words else ""
    fill = "#fff" if place // len(_COLOURS) % 2 else choose_colour(place)
    return Markup('<path d="{}" fill="{}" stroke="{}" stroke-width="1.2">{}</path>').format(
        path, fill, choose_colour(place), tip
    )


def _describe_bar(bar: Bar) -> str:
    words = f"{bar.label}: stand-in {percent(bar.share)}"
    if bar.noise:
        words += f", noise ± {percent(bar.noise)}"
    return words + (f", real {percent(bar.real)}" if bar.real is not None else "")


def _svg(title: str, width: float, height: float, marks: Sequence[Markup]) -> Markup:
    head = Markup('<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">').format(
        title, _n(width), _n(height), _n(width), _n(height)
    )
    return head + Markup("").join(marks) + Markup("</svg>")


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        _n(x), _n(y), anchor, Markup(' class="{}"').format(kind) if kind else "", escape(words)
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, _n(x1), _n(y1), _n(x2), _n(y2))


def _label_width(words: str) -> float:
    """Return about how many pixels a label takes."""
    return sum(7.8 if letter.isupper() or letter in "mwMW%" else 6.0 for letter in words)


def _shorten_label(words: str) -> str:
    """Return a label cut to the room it has."""
    most = len(words)
    while most > 4 and _label_width(_cut_text(words, most)) > _LABEL_ROOM:
        most -= 1
    return _cut_text(words, most)


def _cut_text(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def _n(number: float) -> str:
    """Return a coordinate, the same on every machine."""
    return f"{number:.1f}".rstrip("0").rstrip(".")
