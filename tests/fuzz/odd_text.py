"""Sound JSON and TOML with odd values, names and places: what the fuzzers of text files change."""

import copy
import json
from collections.abc import Iterator

from fuzzing import mutated
from hypothesis import strategies as st

DEEP = 50_000
SHARED = ["0", "-1", "1", "2", "0.5", "-0.0", "1e308", "1e-320", "9007199254740993", "9" * 25, "-" + "9" * 5000]
SHARED += ['""', '"x"', '"none"', '"auto"', '"paper"', '"native"', '"../x"', r'"\u001b[2J"', r'"\u2028\u202e\u0007"']
SHARED += [f'"{"y" * 3000}"', '"9999999999"', "true", "false", "[]", "[[]]", "[[[[1]]]]", "[1, 2]", "[3, 4, 5]"]
SHARED += [
    '["er", "er"]',
    '[0.5, "x"]',
    "[1e308, 1e308]",
    "[9223372036854775807]",
    "[2147483648]",
    "2147483648",
    "[-1]",
    "[true, false]",
]
IN_JSON = [*SHARED, "null", "NaN", "-Infinity", "1e999", r'"\ud800"', r'"\udcff\u0000"', "{}", '{"a": 1}', '{"": null}']
IN_JSON += [r'{"\ud800": 1, "\u001b": 2}', '{"a": {"b": {"c": [{}]}}}', "[null]", '["x"]', "[" * DEEP + "]" * DEEP]
IN_JSON += ['{"a":' * n + "1" + "}" * n for n in (30, 200, 500, 900)] + ["[" * n + "]" * n for n in (30, 500, 900)]
IN_JSON += ["[" + "0," * 3000 + "0]", f"[[{'1e100,' * 9}-1e100]]"]
IN_TOML = [
    *SHARED,
    "nan",
    "-inf",
    "0x" + "f" * 40,
    "0x" + "f" * 5000,
    "1979-05-27T07:32:00Z",
    "07:32:00",
    "'''\n\n'''",
    "{}",
    "{ a = 1 }",
]
IN_TOML += ["{ er = { lr = [0.1, nan] } }", "{ derpp = { } }", "{ a.b.c = [{}] }", "[{}]", "[{ method = 'er' }]"]
IN_TOML += [
    r'"\u0000"',
    "[" * DEEP + "]" * DEEP,
    "[" * 60 + "]" * 60,
    str([*range(60)]),
    str([0.1 * i for i in range(40)]),
]
NAMES = ["", "x", "name", "seed", "k", "\x1b[2J", "a.b", "é", "z" * 300, "__class__", "ü\u2028"]
WAYS = ("value", "value", "value", "drop", "rename", "twice", "add")


def places(plain, above=()) -> Iterator[tuple]:
    """The way to every value below the top, in lists to the first two."""
    for key in plain if isinstance(plain, dict) else range(min(len(plain), 2)) if isinstance(plain, list) else ():
        yield (*above, key)
        yield from places(plain[key], (*above, key))


def altered_json(*bases) -> st.SearchStrategy[bytes]:
    """Plain data with a few changes, as JSON; now and then with bytes changed instead."""
    texts = [json.dumps(base).encode() for base in bases]
    change = st.tuples(st.sampled_from(WAYS), st.integers(0, 1 << 16), st.sampled_from(IN_JSON), st.sampled_from(NAMES))
    made = st.builds(_altered, st.sampled_from(bases), st.lists(change, min_size=1, max_size=3))
    return st.one_of(made, made, made, mutated(*texts))


def _altered(base, changes) -> bytes:
    plain, raw = copy.deepcopy(base), {}

    def odd(text):
        """A word that stands for a spelling until all is written."""
        mark = f"@{len(raw)}@"
        raw[f'"{mark}"'] = text
        return mark

    for way, at, value, name in changes:
        ways = list(places(plain))
        if not ways:
            break
        *above, last = ways[at % len(ways)]
        below = plain
        for key in above:
            below = below[key]
        if way == "value":
            below[last] = odd(value)
        elif way == "drop":
            del below[last]
        elif isinstance(below, list):
            below.insert(last, odd(value) if way == "add" else below[last])
        elif way == "rename":
            below[name] = below.pop(last)
        else:
            below[odd(json.dumps(last if way == "twice" else name))] = odd(value)
    text = json.dumps(plain)
    for mark, spelling in raw.items():
        text = text.replace(mark, spelling)
    return text.encode()


def altered_toml(*bases: str) -> st.SearchStrategy[bytes]:
    """Lines of TOML with a few changes; now and then with bytes changed instead."""
    known = sorted({line.partition(" = ")[0] for base in bases for line in base.splitlines() if " = " in line})
    names = st.sampled_from(
        [*known, "options.er.lr", "net_options.width", "select.seeds", '"\\u001b"', '""', "[x]", "é"]
    )
    change = st.tuples(st.sampled_from(WAYS), st.integers(0, 1 << 16), st.sampled_from(IN_TOML), names)
    made = st.builds(_altered_lines, st.sampled_from(bases), st.lists(change, min_size=1, max_size=4))
    return st.one_of(made, made, made, mutated(*(base.encode() for base in bases)))


def _altered_lines(base, changes) -> bytes:
    lines = base.splitlines()
    for way, place, value, name in changes:
        at = place % len(lines)
        old, sign, rest = lines[at].partition(" = ")
        if way == "drop" and len(lines) > 1:
            del lines[at]
        elif way == "twice":
            lines.insert(at, lines[at])
        elif way == "add" or not sign:
            lines.insert(at, f"{name} = {value}")
        elif way == "rename":
            lines[at] = f"{name} = {rest}"
        else:
            lines[at] = f"{old} = {value}"
    return "\n".join(lines).encode()
