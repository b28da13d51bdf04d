"""Pages say what the files of results hold: those that a tool writes as a whole, tables by hand cell by cell."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from functools import cache
from statistics import mean, stdev

import pytest
from beside import ROOT
from commands import odedm

from odedm.core.registry import METHODS, title
from odedm.paper.items import SHIPPED
from odedm.recipes.recommendations import recipes
from odedm.report.statistics import estimate, paired
from odedm.report.wording import format_interval, format_mean, number
from odedm.results.packed import read_packed

RESULTS = ROOT / "docs" / "results"
SETTINGS = ("data", "method", "updates", "stream_loss", "predict", "views")
FULL_RECIPE = {"updates": 6, "views": "strong", "stream_loss": "asymmetric", "predict": "nearest-mean"}
BEHIND_IT = ROOT / "docs" / "appendix" / "memories-measured.md"
PAPERS = "With the paper's constants, on CIFAR-10 and CIFAR-100"
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="only in a checkout")


@cache
def packed(name):
    folder = SHIPPED if name == "table1" else RESULTS
    return tuple(run.result for run in read_packed(folder / f"{name}.jsonl.gz"))


def runs(*names):
    return [run for name in names for run in packed(name)]


def read(page):
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["results/leaderboard.md", "results/no-harm.md"])
def test_tables_of_pages_are_those_of_their_command(page):
    """After a change to tables or results: put what the command in the comment prints between the two comments."""
    command, rest = read(page).split("<!-- odedm report ")[1].split(" -->\n", 1)
    words = [ROOT / word if word.endswith(".gz") else word for word in command.split()]
    assert odedm("report", *words).strip() == rest.split("<!-- end of table -->")[0].strip()


def rows_below(heading, head):
    """Cells of the rows of a table of the page, by the heading above it and the beginning of its head."""
    text = BEHIND_IT.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [*text.split(f"| {head} |", 1)[1].splitlines()[2:], ""]
    body = lines[: lines.index("")]
    return [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in body]


def scores(name):
    """Held-out accuracy by configuration and seed."""
    found = defaultdict(dict)
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["runs"]][int(row["seed"])] = float(row["held_out_acc"])
    return found


def change(found, own, *, count=True):
    """A change of held-out accuracy as the page has it."""
    each = paired(found, own)
    if each is None:
        return "–"
    words = f"{number(each.estimate.mean, sign=True)} ± {each.estimate.error:.1f}"
    return words + (f" ({sum(one > 0 for one in each.by_seed.values())})" if count else "")


def by_reading(found, host, *place):
    """Alone and by three readings with prototypes."""
    ours = {
        name: own for name, own in found.items() if name.split(" · ")[0] == host and set(place) <= {*name.split(" · ")}
    }
    (alone,) = (own for name, own in ours.items() if "ODEDM" not in name)

    def of(reading, *, share=False):
        wanted = [
            own
            for name, own in ours.items()
            if f"{reading} replay" in name and "random" not in name and ("gamma_rule=share" in name) == share
        ]
        return change(wanted[0] if wanted else {}, alone)

    return [number(estimate(alone.values()).mean), of("auxiliary"), of("auxiliary", share=True), of("union")]


HOSTS = {"ER", "DER", "DER++", "DER++refresh", "FDR", "iCaRL", "PuriDivER"}


def test_readings_on_small_pictures_are_those_of_the_scores():
    found, said = scores("readings-fashion-mini"), rows_below("How a method meets long-term rows", "method | alone")
    assert {host for host, *_ in said} == {*HOSTS, "VR-MCL", "POCL"}
    for host, *cells in said:
        assert cells[:4] == by_reading(found, host)
        (random,) = (own for name, own in found.items() if name.startswith(f"{host} · ODEDM") and "random" in name)
        (alone,) = (own for name, own in found.items() if name.split(" · ")[0] == host and "ODEDM" not in name)
        assert cells[5] == change(random, alone, count=False)


def test_readings_of_the_later_methods_are_those_of_the_scores():
    found, said = scores("readings-later-fashion-mini"), rows_below("Later methods", "method | alone")
    assert len(said) == 8
    for host, *cells in said:
        assert cells == by_reading(found, host)


def test_readings_on_cifar_are_those_of_the_scores():
    found = scores("readings-cifar")
    said = rows_below("How a method meets long-term rows", "method | CIFAR-10, λ = 200: alone")
    assert {host for host, *_ in said} >= HOSTS
    for host, *cells in said:
        both = [by_reading(found, host, *place) for place in (("cifar10", "λ=200"), ("cifar100", "λ=500"))]
        assert cells == [*both[0], *both[1]]


def test_choices_of_rows_are_those_of_the_scores():
    found = scores("choices-fashion-mini")
    said = rows_below("Which rows to keep for good", "| over DER++ alone")
    alone = found["DER++ · reservoir"]

    def of(choice, more="candidates=task · short_policy=reservoir"):
        return found[f"DER++ · ODEDM · {choice} · {more}"]

    again, balanced = (
        "candidates=task · choose_again · short_policy=reservoir",
        "candidates=task · short_policy=balanced-reservoir",
    )
    inside = "candidates=10 · short_policy=reservoir"
    wanted = [(of(choice), of("random")) for choice in ("sinkhorn", "l2", "herding")] + [(of("random"), {})]
    wanted += [(of("sinkhorn", how), of("random", how)) for how in (again, balanced, inside)]
    wanted += [(found["DER++ · balanced-reservoir"], {})]
    assert [[cell for cell in row[1:] if cell] for row in said] == [
        [change(own, alone, count=False), *([change(own, control, count=False)] if control else [])]
        for own, control in wanted
    ]


def test_choices_where_rows_are_scarce_are_those_of_the_scores():
    found, usual = scores("choices-narrow-cifar100"), "candidates=task · short_policy=reservoir"
    again, balanced = usual.replace(" · short", " · choose_again · short"), usual.replace("=res", "=balanced-res")
    inside = usual.replace("task", "6")
    wanted = [(choice, usual) for choice in ("sinkhorn", "herding", "l2", "random")]
    wanted += [("sinkhorn", how) for how in (again, balanced, inside)]
    for (choice, how), (_, acc, over) in zip(
        wanted, rows_below("Which rows to keep for good", "tenth of CIFAR-100"), strict=True
    ):
        own, control = (found[f"DER++ · ODEDM · {name} · {how}"] for name in (choice, "random"))
        assert sorted(own) == [1000, 1001, 1002, 1003, 1004, 1005]
        assert acc == format_mean(estimate(own.values()))
        assert over == ("" if choice == "random" else change(own, control))


def test_choices_on_whole_cifar_are_those_of_the_scores():
    found, usual = scores("choices-cifar"), "candidates=task · short_policy=reservoir"
    again, balanced = usual.replace(" · short", " · choose_again · short"), usual.replace("=res", "=balanced-res")
    places = ("cifar10 · λ=200", "k=6", "10"), ("cifar100 · λ=500", "k=3", "5")
    said = rows_below("Which rows to keep for good", "whole CIFAR")
    for column, (place, k, inside) in enumerate(places):
        own = {name: found[f"DER++ · {name} · {place}"] for name in ("reservoir", "balanced-reservoir")}
        wanted = [(own["reservoir"], {})]
        for choice, how in (
            *((each, usual) for each in ("sinkhorn", "herding", "l2", "random")),
            *((each, again) for each in ("sinkhorn", "herding")),
            *(("sinkhorn", how) for how in (balanced, usual.replace("task", inside))),
        ):
            kept, control = (found[f"DER++ · ODEDM · {place} · {k} · {name} · {how}"] for name in (choice, "random"))
            wanted.append((kept, {} if choice == "random" else control))
        wanted.append((own["balanced-reservoir"], {}))
        cells = [row[1 + 2 * column : 3 + 2 * column] for row in said]
        assert cells == [
            [format_mean(estimate(kept.values())), change(kept, control) if control else ""] for kept, control in wanted
        ]


def of_the_ledger(capacity):
    """Accuracy by host, data, setting and ρ, None without ODEDM, and by seed."""
    found = defaultdict(dict)
    for run in runs("table1"):
        plan, memory = run.experiment, run.experiment["memory"]
        if memory["capacity"] == capacity:
            rho = memory["rho"] if memory["name"] == "odedm" else None
            found[title(METHODS, plan["method"]), plan["data"], plan["imbalance"], rho][plan["seed"]] = run.acc_last
    return found


def changes_of(found, host, data, setting, shares):
    """The cells of a row of changes, and which of them leave zero out."""
    each = [paired(found[host, data, setting, rho], found[host, data, setting, None]) for rho in shares]
    words = [f"{number(one.estimate.mean, sign=True)} {format_interval(one.interval)}" for one in each]
    return words, [one.interval[0] > 0 or one.interval[1] < 0 for one in each]


def test_changes_on_cifar_are_those_of_the_ledger():
    found, shares = of_the_ledger(200), (0.25, 0.5, 0.75)
    (only,) = {rho for _, data, _, rho in found if data == "cifar100" and rho is not None}
    for host, *cells in rows_below(PAPERS, "method | CIFAR-10, k = 6"):
        wide = changes_of(found, host, "cifar10", "standard", shares)[0]
        assert cells == wide + changes_of(found, host, "cifar100", "standard", [only])[0]
    found, page = of_the_ledger(500), BEHIND_IT.read_text(encoding="utf-8")
    for place, *cells in rows_below(PAPERS, "λ = 500 | ρ = 25 %"):
        host, where = place.split(", ")
        data, setting = (*where.lower().replace("-1", "1").split(), "standard")[:2]
        words, clear = changes_of(found, host, data, setting, shares)
        assert cells == words
        bold = [f"**{cell}**" if so else cell for cell, so in zip(words, clear, strict=True)]
        assert f"| {place} | {' | '.join(bold)} |" in page, "bold where the interval leaves zero out"


def test_the_recipes_numbers_are_those_of_the_leaderboard():
    found = defaultdict(dict)
    for run in runs("leaderboard"):
        plan = run.experiment
        if plan["method"] == "derpp" and plan["weight_average"] is None:
            found[plan["data"], plan["updates"] > 1, plan["memory"]["name"]][plan["seed"]] = run.acc_last
    said = rows_below("With the recipe, which moves more", "| plain reservoir")
    places = [(data, strong) for data in ("cifar10", "cifar100") for strong in (False, True)]
    for (data, strong), (_, *cells) in zip(places, said, strict=True):
        plain, dual = (found[data, strong, memory] for memory in ("reservoir", "odedm"))
        each = paired(dual, plain)
        assert cells[0] == format_mean(estimate(plain.values()))
        assert cells[1].removesuffix(" (four seeds)") == format_mean(estimate(dual.values()))
        assert cells[2] == f"{number(each.estimate.mean, sign=True)} {format_interval(each.interval)}"


@pytest.mark.parametrize(("place", "data", "memory"), [(2, "cifar100", "odedm"), (3, "cifar10", "reservoir")])
def test_what_a_recipe_says_was_measured_is_what_its_runs_gave(place, data, memory):
    case = recipes()["best"].cases[place]
    own = {**case.settings, "data": data}
    found = defaultdict(dict)
    for run in runs("leaderboard", "confirm"):
        plan = run.experiment
        average = {"auto": {0.987, 0.974}, 50: {0.98}}[own["weight_average"]]
        recipe = plan["weight_average"] in average and all(plan[key] == own[key] for key in SETTINGS)
        plain = plan["weight_average"] is None and plan["updates"] == 1 and plan["memory"]["name"] == "reservoir"
        plain = plain and plan["method"] == "derpp"
        if plan["data"] == data and plan["seed"] <= 12 and (plain or (recipe and plan["memory"]["name"] == memory)):
            found[plan["imbalance"], plan["tasks"], recipe][plan["seed"]] = run.acc_last
    assert [sorted(each) for each in found.values()] == [[10, 11, 12]] * 4
    for each in found.values():
        assert format_mean(estimate(each.values())) in case.measured
    full, alone = (mean(found["standard", {"cifar10": 5, "cifar100": 10}[data], recipe].values()) for recipe in (1, 0))
    for text in (read("how-to/ingredients.md"), (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"{number(full)} where (DER\+\+|it)\s+has {number(alone)}", text)


def test_what_averages_give_each_host_is_what_the_runs_show():
    found = defaultdict(dict)
    for run in runs("no-harm-fashion-mini", "no-harm-averaged"):
        plan, memory = run.experiment, run.experiment["memory"]
        if memory["name"] != "odedm":
            found[plan["method"], plan["weight_average"] is not None][plan["seed"]] = run.acc_last
    text = " ".join(read("appendix/tricks-measured.md").split("Ten other seeds")[1].split("\n\n")[0].split())
    for method in ("er", "der", "derpp", "refresh", "fdr", "vrmcl"):
        change = estimate([found[method, True][seed] - own for seed, own in found[method, False].items()])
        assert change.n == 10
        assert f"{title(METHODS, method)} {number(change.mean, sign=True)} ± {number(change.error)}" in text
    assert f"from {number(stdev(found['er', False].values()))} to {number(stdev(found['er', True].values()))}" in text


DEMO = {
    "DER · reservoir": ("der", "reservoir"),
    "DER · ODEDM": ("der", "auxiliary", "share"),
    "DER++ · reservoir": ("derpp", "reservoir"),
    "DER++ · ODEDM": ("derpp", "auxiliary"),
    "recipe `best`: DER++ · reservoir, 3 updates, averaged weights": ("derpp", "reservoir", "3 updates"),
    "DER++ · reservoir, β = .5": ("derpp", "reservoir"),
    "DER++ · reservoir, β = 1.5": ("derpp", "reservoir", "β=1.5"),
    "DER++ · ODEDM, auxiliary": ("derpp", "auxiliary"),
    "DER++ · ODEDM, union": ("derpp", "union"),
    "DER++ · ODEDM, auxiliary, L2, no DAC": ("derpp", "auxiliary", "l2"),
    "DER · ODEDM, auxiliary by share, its default": ("der", "auxiliary", "share"),
    "DER · ODEDM, auxiliary, γ = 1": ("der", "auxiliary"),
    "DER · ODEDM, union": ("der", "union"),
    "ER · reservoir (lr .03)": ("er", "reservoir"),
    "ER · ODEDM, union, its default (lr .03)": ("er", "union"),
    "ER · ODEDM, auxiliary (lr .03)": ("er", "auxiliary"),
}


def what(plan):
    """A run of the demo or of its controls, as `DEMO` has it."""
    memory = plan["memory"]
    marks = [plan["method"], memory.get("replay", memory["name"])]
    marks += ["share"] if memory.get("gamma_rule") == "share" else []
    marks += ["l2"] if memory.get("distance") == "l2" else []
    marks += ["β=1.5"] if plan["options"].get("beta") == 1.5 else []
    return (*marks, "3 updates") if plan["updates"] == 3 else tuple(marks)


def test_the_demos_page_has_the_numbers_of_its_runs_and_controls():
    found = defaultdict(dict)
    for run in runs("demo"):
        found[what(run.experiment)][run.experiment["seed"]] = run
    page = read("explanation/demo.md")
    table = [
        [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if "±" in line and line.startswith("|")
    ]
    assert [row[0] for row in table] == list(DEMO)
    assert set(found) == set(DEMO.values())

    def by_seed(key, metric):
        return {seed: getattr(run, metric) for seed, run in found[key].items()}

    def gain(key, host, metric):
        each = paired(by_seed(key, metric), by_seed((host, "reservoir"), metric))
        return f"{number(each.estimate.mean, sign=True)} {format_interval(each.interval)}"

    for name, *cells in table:
        own = found[DEMO[name]]
        assert sorted(own) == [*range(6)]
        levels = ("acc_last", "acc_mean", "task_il_last", "forgetting")
        assert cells[:4] == [format_mean(estimate(by_seed(DEMO[name], metric).values())) for metric in levels], name
        if cells[4:] and cells[5]:
            assert cells[5:] == [gain(DEMO[name], DEMO[name][0], metric) for metric in ("acc_last", "task_il_last")]
    for key in (("derpp", "reservoir", "3 updates"), ("derpp", "reservoir")):
        assert format_mean(estimate(by_seed(key, "acc_last").values())) in recipes()["best"].cases[0].measured
    words = " ".join(page.split())
    for key, host in ((("der", "auxiliary"), "der"), (("er", "union"), "er"), (("er", "auxiliary"), "er")):
        assert gain(key, host, "acc_last") in words


def test_what_scarce_rows_gain_is_that_of_the_scores():
    plain, dual, control, more = scores("scarce-narrow-cifar100").values()
    text = " ".join(BEHIND_IT.read_text(encoding="utf-8").split("**Scarcer still.**")[1].split("\n\n")[0].split())
    change = estimate([dual[seed] - own for seed, own in plain.items()])
    assert min(dual[seed] - own for seed, own in plain.items()) > 0
    words = [format_mean(estimate(each.values())) for each in (plain, dual, control)]
    assert [word in text for word in (*words, f"**{number(change.mean, sign=True)} ± {number(change.error)}")] == [
        True
    ] * 4
    over = estimate([dual[seed] - own for seed, own in more.items()])
    assert min(dual[seed] - own for seed, own in more.items()) > 0
    has = f"has {format_mean(estimate(more.values()))}"
    assert f"{has}, so that {number(over.mean, sign=True)} ± {number(over.error)} points" in text
    evidence = recipes()["best"].cases[2].evidence
    assert f"({number(mean(dual.values()))} against {number(mean(plain.values()))})" in evidence


def test_the_recipe_by_rows_of_memory_is_that_of_the_scores():
    found, page = scores("recipe-choice-fashion-mini"), read("appendix/tricks-measured.md")
    lines = page.split("| λ | averaged weights |")[1].splitlines()[2:]
    ways = [
        ("reservoir", "weights averaged"),
        ("ODEDM", "weights averaged"),
        ("reservoir", "nearest"),
        ("ODEDM", "nearest"),
    ]
    seen = 0
    for line in lines[: lines.index("")]:
        rows, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        for cell, (memory, way) in zip(cells, ways, strict=True):
            own = [each for name, each in found.items() if {memory, f"λ={rows}"} < {*name.split(" · ")} and way in name]
            assert [format_mean(estimate(each.values())) for each in own] == ([cell] if cell else [])
            seen += len(own)
    assert seen == len(found) == 14


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("averages-fashion-mini", "| | last weights | 0.9 | 0.95 | 0.97 | 0.98 | 0.99 |"),
        ("averages-narrow-cifar10", "| | last weights | 0.9 | 0.95 | 0.98 | 0.99 |"),
        ("averages-cifar10", "| | last weights | 0.95 | 0.98 | 0.994 |"),
        ("averages-cifar100", "| | last weights | 0.95 | 0.987 |"),
    ],
)
def test_averages_of_weights_are_those_of_the_scores(name, head):
    found = {}
    for runs, own in scores(name).items():
        words, _, left = runs.partition(" · weights averaged by ")
        found[frozenset(words.split(" · ")), left or "last weights"] = format_mean(estimate(own.values()))
    said, columns = {}, head.strip("| ").split(" | ")
    lines = read("appendix/tricks-measured.md").split(f"{head}\n")[1].splitlines()[1:]
    for line in lines[: lines.index("")]:
        row, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        words = {*row.replace("nearest mean", "nearest-mean").replace(" · ", ", ").split(", ")}
        words |= set() if "ODEDM" in words else {"reservoir"}
        said |= {(frozenset(words), left): cell.strip("*") for left, cell in zip(columns, cells, strict=True) if cell}
    assert said == found


def test_what_queries_in_bfloat16_change_is_what_the_runs_show():
    text = " ".join(read("appendix/performance-measured.md").split("\nQueries of VR-MCL")[1].split("\n\n")[0].split())
    found = defaultdict(dict)
    for run in runs("query-precision"):
        plan = run.experiment
        found[plan["method"], plan["options"]["query_precision"]][plan["seed"]] = run.acc_last
    for method, seeds in (("vrmcl", "ten"), ("pocl", "eight")):
        half, same = found[method, "bf16"], found[method, "same"]
        change = paired(half, same)
        means = [format_mean(estimate([own[seed] for seed in change.by_seed])) for own in (half, same)]
        assert f"{means[0]} against {means[1]} with {title(METHODS, method)}" in text
        moved = change.estimate
        assert f"{number(moved.mean, sign=True)} ± {number(moved.error)} over {seeds}" in text


def test_what_scr_and_onpro_reach_is_what_their_runs_show():
    found = defaultdict(list)
    for run in runs("published"):
        plan = run.experiment
        found[plan["method"], plan["data"], plan["memory"]["capacity"], plan["net"]].append(run.acc_last)
    slim = [
        *(("scr", "cifar10", capacity, "resnet18-slim") for capacity in (200, 500)),
        *(("scr", "cifar100", capacity, "resnet18-slim") for capacity in (1000, 2000)),
    ]
    whole = [("scr", "cifar10", 200, "resnet18"), ("scr", "cifar100", 500, "resnet18")]
    page = read("methods/scr.md")
    for kind in slim:
        assert f"| {kind[2]} | {format_mean(estimate(found[kind]))} | {len(found[kind])} |" in page
    for kind in whole:
        assert f"| {kind[2]} | {number(found[kind][0])} | 1 |" in page
    page = read("methods/onpro.md")
    for data, capacity in (("cifar10", 200), ("cifar100", 500)):
        (own,) = found["onpro", data, capacity, "resnet18"]
        assert f"λ = {capacity} | {number(own)} |" in page
    recipe = defaultdict(list)
    for run in runs("leaderboard"):
        plan = run.experiment
        own = plan["method"] == "derpp" and plan["weight_average"] and plan["memory"]["name"] == "reservoir"
        if own and all(plan[key] == value for key, value in FULL_RECIPE.items()):
            recipe[plan["data"]].append(run.acc_last)
    assert f"which has {number(mean(recipe['cifar10']))} and {number(mean(recipe['cifar100']))} there" in page
    assert (
        f"with a reservoir for ODEDM {format_mean(estimate(recipe['cifar100']))}" in recipes()["best"].cases[2].measured
    )
