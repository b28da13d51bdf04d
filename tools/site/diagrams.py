"""Mermaid's `graph TD` as SVG: boxes in layers, arrows downwards, drawn here so that no script need be fetched.

It knows what the pages of this project use: `a --> b`, `a -->|"words"| b`, `a["words"]`.
"""

import re
from html import escape
from itertools import pairwise

EDGE = re.compile(r'([\w.]+)(?:\["([^"]*)"\])?\s*-->\s*(?:\|"([^"]*)"\|\s*)?([\w.]+)(?:\["([^"]*)"\])?')
LETTER, GAP, LAYER, HEIGHT = 7.9, 26, 74, 30


def svg(text: str) -> str:
    """Return the drawing as one HTML block."""
    titles: dict[str, str] = {}
    edges = []
    for one, title, words, other, its in EDGE.findall(text):
        titles[one] = title or titles.get(one, one)
        titles[other] = its or titles.get(other, other)
        edges.append((one, other, words))
    back = _backward(list(titles), edges)
    forward = [(one, other) for at, (one, other, _) in enumerate(edges) if at not in back]
    layers, ways = _with_bends(_layers(list(titles), forward), forward)
    steps = [step for way in ways.values() for step in pairwise(way)]
    place, width = _places(_ordered(layers, steps), titles)
    parts = []
    for at, (one, other, words) in enumerate(edges):
        if at in back:
            parts.append(_upwards(place, titles, one, other, words))
        else:
            parts.append(_downwards([place[waypoint] for waypoint in ways[one, other]], words))
    parts += [_box(place[name], title) for name, title in titles.items()]
    height = len(layers) * LAYER
    named = escape(", ".join(f"{titles[one]} to {titles[other]}" for one, other, _ in edges))
    shape = f'viewBox="-10 0 {width + 20:.0f} {height}" width="{width + 20:.0f}"'
    return f'<div class="diagram"><svg {shape} role="img" aria-label="{named}">{"".join(parts)}</svg></div>\n'


def _backward(names: list[str], edges: list[tuple[str, str, str]]) -> set[int]:
    """Edges that close a cycle when the graph is walked from its first box."""
    closing, state = set(), dict.fromkeys(names, 0)

    def walk(name: str) -> None:
        state[name] = 1
        for at, (one, other, _) in enumerate(edges):
            if one == name and state[other] == 1:
                closing.add(at)
            elif one == name and state[other] == 0:
                walk(other)
        state[name] = 2

    for name in names:
        if state[name] == 0:
            walk(name)
    return closing


def _layers(names: list[str], edges: list[tuple[str, str]]) -> list[list[str]]:
    """Return each box below all that point to it."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for one, other in edges:
            depth[other] = max(depth[other], depth[one] + 1)
    return [[name for name in names if depth[name] == level] for level in range(max(depth.values()) + 1)]


def _with_bends(
    layers: list[list[str]], edges: list[tuple[str, str]]
) -> tuple[list[list[str]], dict[tuple[str, str], list[str]]]:
    """Return a place in every layer that a long arrow passes, so that it goes around boxes; and each arrow's way."""
    level = {name: depth for depth, layer in enumerate(layers) for name in layer}
    full, ways = [list(layer) for layer in layers], {}
    for one, other in edges:
        bends = [f"{one}>{other}>{depth}" for depth in range(level[one] + 1, level[other])]
        for depth, bend in enumerate(bends, start=level[one] + 1):
            full[depth].append(bend)
        ways[one, other] = [one, *bends, other]
    return full, ways


def _ordered(layers: list[list[str]], edges: list[tuple[str, str]]) -> list[list[str]]:
    """Boxes near the middle of their neighbours, so that few arrows cross."""
    for sweep in range(24):
        where = {
            name: at / max(len(layer) - 1, 1) if len(layer) > 1 else 0.5
            for layer in layers
            for at, name in enumerate(layer)
        }
        for layer in layers:
            near = {
                name: [where[one] for one, other in edges if other == name]
                + [where[other] for one, other in edges if one == name and sweep % 2]
                for name in layer
            }
            layer.sort(key=lambda name: sum(near[name]) / len(near[name]) if near[name] else where[name])
    return layers


def _places(layers: list[list[str]], titles: dict[str, str]) -> tuple[dict[str, tuple[float, float]], float]:
    wide = {name: _wide(titles[name]) if name in titles else 4.0 for layer in layers for name in layer}
    sizes = [sum(wide[name] for name in layer) + GAP * (len(layer) - 1) for layer in layers]
    total = max(*sizes, 300.0)
    place = {}
    for level, layer in enumerate(layers):
        slack = (total - sizes[level]) / (len(layer) + 1)
        x = slack
        for name in layer:
            place[name] = (x + wide[name] / 2, level * LAYER + 8 + HEIGHT / 2)
            x += wide[name] + GAP + slack
    return place, total


def _wide(title: str) -> float:
    return len(title) * LETTER + 18


def _box(centre: tuple[float, float], title: str) -> str:
    width, (x, y) = _wide(title), centre
    box = f'<rect x="{x - width / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{width:.1f}" height="{HEIGHT}" rx="5"/>'
    return f'{box}<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{escape(title)}</text>'


def _downwards(way: list[tuple[float, float]], words: str) -> str:
    """Return an arrow from the bottom of a box to the top of another, through the bends between."""
    (x, y), (end, last) = way[0], way[-1]
    points = [(x, y + HEIGHT / 2), *way[1:-1], (end, last - HEIGHT / 2 - 6)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        half = (y1 - y0) / 2
        path += f"C{x0:.1f} {y0 + half:.1f} {x1:.1f} {y1 - half:.1f} {x1:.1f} {y1:.1f}"
    (x0, y0), (x1, y1) = points[:2]
    return _arrow(path, f"M{end:.1f} {last - HEIGHT / 2:.1f}l-4 -8h8z", words, ((x0 + x1) / 2, (y0 + y1) / 2 + 4))


def _upwards(place: dict[str, tuple[float, float]], titles: dict[str, str], one: str, other: str, words: str) -> str:
    """Return an arrow back up, around the right side."""
    (x0, y0), (x1, y1) = place[one], place[other]
    x0, x1 = x0 + _wide(titles[one]) / 2, x1 + _wide(titles[other]) / 2
    out = max(x0, x1) + 60
    path = f"M{x0:.1f} {y0:.1f}C{out:.1f} {y0:.1f} {out:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return _arrow(path, f"M{x1:.1f} {y1:.1f}l9 -4v8z", words, ((x0 + x1) / 8 + out * 0.75, (y0 + y1) / 2))


def _arrow(path: str, head: str, words: str, middle: tuple[float, float]) -> str:
    at = f'x="{middle[0]:.1f}" y="{middle[1]:.1f}"'
    label = f'<text class="words" {at} text-anchor="middle">{escape(words)}</text>' if words else ""
    return f'<path class="edge" d="{path}"/><path class="head" d="{head}"/>{label}'
