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
from harm import hosts, shows_something

from odedm.core.registry import METHODS, title
from odedm.paper.items import SHIPPED
from odedm.recipes.recommendations import recipes
from odedm.report.statistics import estimate, paired
from odedm.report.wording import format_interval, format_mean, number
from odedm.results.packed import read_packed

RESULTS = ROOT / "docs" / "results"
SETTINGS = ("data", "method", "updates", "stream_loss", "predict", "views")
FULL_RECIPE = {"updates": 6, "views": "strong", "stream_loss": "asymmetric", "predict": "nearest-mean"}
PAYS = ROOT / "docs" / "explanation" / "where-it-pays.md"
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


@pytest.mark.parametrize("page", ["leaderboard.md", "explanation/no-harm.md"])
def test_tables_of_pages_are_those_of_their_command(page):
    """After a change to tables or results: put what the command in the comment prints between the two comments."""
    command, rest = read(page).split("<!-- odedm report ")[1].split(" -->\n", 1)
    words = [ROOT / word if word.endswith(".gz") else word for word in command.split()]
    assert odedm("report", *words).strip() == rest.split("<!-- end of table -->")[0].strip()


def test_the_changes_on_the_page_of_equal_tuning_are_those_of_its_runs():
    scores = defaultdict(dict)
    for run in runs("equal-tuning"):
        plan = run.experiment
        side = plan["memory"]["name"] == "odedm"
        scores[plan["data"], title(METHODS, plan["method"]), side][plan["seed"]] = run.acc_last
    text = read("explanation/equal-tuning.md")
    for (data, method, side), dual in scores.items():
        if side:
            change = paired(dual, scores[data, method, False])
            words = f"{number(change.estimate.mean, sign=True)} {format_interval(change.interval)}"
            section = text.split(f"\n## {data}\n")[1].split("\n## ")[0]
            (row,) = [line for line in section.splitlines() if line.startswith(f"| {method} |")]
            assert words in row.rsplit("|", 2)[1], (data, method)


def rows_below(heading, head):
    """Cells of the rows of a table of either page, by the heading above it and the beginning of its head."""
    both = "\n".join(page.read_text(encoding="utf-8") for page in (PAYS, BEHIND_IT))
    text = both.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = text.split(f"| {head} |", 1)[1].splitlines()[2:]
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
    found, said = scores("readings-fashion-mini"), rows_below("How a host meets the long-term rows", "method | alone")
    assert {host for host, *_ in said} == {*HOSTS, "VR-MCL", "POCL"}
    for host, *cells in said:
        assert cells[:4] == by_reading(found, host)
        (random,) = (own for name, own in found.items() if name.startswith(f"{host} · ODEDM") and "random" in name)
        (alone,) = (own for name, own in found.items() if name.split(" · ")[0] == host and "ODEDM" not in name)
        assert cells[5] == change(random, alone, count=False)


def test_readings_of_the_later_methods_are_those_of_the_scores():
    found, said = scores("readings-later-fashion-mini"), rows_below("The later methods", "method | alone")
    assert len(said) == 8
    for host, *cells in said:
        assert cells == by_reading(found, host)


def test_readings_on_cifar_are_those_of_the_scores():
    found = scores("readings-cifar")
    said = rows_below("How a host meets the long-term rows", "method | CIFAR-10, λ = 200: alone")
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


def test_what_whole_cifar_says_strictly_inside_the_budget_is_what_its_scores_show():
    found, page = scores("choices-cifar"), " ".join(PAYS.read_text(encoding="utf-8").split())

    def over_alone(place, k, choice, candidates):
        how = f"{place} · {k} · {choice} · candidates={candidates} · short_policy=reservoir"
        return change(found[f"DER++ · ODEDM · {how}"], found[f"DER++ · reservoir · {place}"])

    large, small = (("cifar100 · λ=500", "k=3"), 5), (("cifar10 · λ=200", "k=6"), 10)
    assert [over_alone(*large[0], choice, large[1]) for choice in ("sinkhorn", "random")] == ["+1.3 ± 0.7 (3)"] * 2
    assert "Sinkhorn is 1.3 ± 0.7 over DER++ alone, in three of three seeds, and so are random rows" in page
    assert over_alone(*small[0], "sinkhorn", small[1]) == "−2.9 ± 0.8 (0)"
    assert "*behind* DER++ alone there, by 2.9 ± 0.8, in three of three seeds" in page


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
    found, page = of_the_ledger(500), PAYS.read_text(encoding="utf-8")
    for place, *cells in rows_below(PAPERS, "λ = 500 | ρ = 25 %"):
        host, where = place.split(", ")
        data, setting = (*where.lower().replace("-1", "1").split(), "standard")[:2]
        words, clear = changes_of(found, host, data, setting, shares)
        assert cells == words
        bold = [f"**{cell}**" if so else cell for cell, so in zip(words, clear, strict=True)]
        assert f"| {place} | {' | '.join(bold)} |" in page, "bold where the interval leaves zero out"


def test_what_one_seed_does_to_changes_at_500_rows_is_what_the_ledger_shows():
    found, text = of_the_ledger(500), " ".join(PAYS.read_text(encoding="utf-8").split())
    cells = [
        changes_of(found, "DER++", data, setting, [rho])
        for data in ("cifar10", "cifar100")
        for setting in ("standard", "imbalanced")
        for rho in (0.25, 0.5, 0.75)
    ]
    lower = [float(words[0].split("[")[1].split(",")[0].replace("−", "-")) for words, _ in cells]
    assert (sum(clear[0] for _, clear in cells), sum(low >= -1 for low in lower)) == (2, 7)
    assert "a gain in two cells of twelve, a loss in none, and no harm, by the rule above, in seven" in text
    for setting in ("standard", "imbalanced"):
        plain = found["DER++", "cifar10", setting, None]
        others = [own for seed, own in plain.items() if seed != 1]
        assert f"{number(plain[1])} where the others have {min(others):.0f} to {max(others):.0f}" in text
        duals = [found["DER++", "cifar10", setting, rho] for rho in (0.25, 0.5, 0.75)]
        left = [number(mean(dual[seed] - plain[seed] for seed in plain if seed != 1), sign=True) for dual in duals]
        assert "{}, {} and {}".format(*left) in text


def test_odedm_has_the_papers_reading_on_the_leaderboard_as_it_says():
    found = defaultdict(dict)
    for run in runs("leaderboard", "confirm"):
        plan, memory = run.experiment, run.experiment["memory"]
        if memory["name"] == "odedm":
            assert (memory["replay"], memory["gamma_rule"], memory["rho"]) == ("auxiliary", "fixed", 0.25)
        if (
            plan["updates"] == 1
            and plan["weight_average"] is None
            and plan["tasks"] == {"cifar10": 5}.get(plan["data"], 10)
        ):
            found[plan["method"], plan["data"], memory["name"]][plan["seed"]] = run.acc_last
    text = " ".join(page.read_text(encoding="utf-8") for page in (PAYS, BEHIND_IT))
    text = " ".join(text.split())
    for method, data in (("er", "cifar10"), ("er-ace", "cifar10"), ("er-ace", "cifar100")):
        each = paired(found[method, data, "odedm"], found[method, data, "reservoir"])
        assert f"{number(each.estimate.mean, sign=True)} {format_interval(each.interval)}" in text


def test_what_odedm_adds_to_the_recipe_with_averaged_weights_is_what_the_runs_show():
    found = defaultdict(dict)
    for run in runs("leaderboard"):
        plan = run.experiment
        recipe = plan["updates"] == 6 and plan["views"] == "strong" and plan["predict"] == "nearest-mean"
        if (
            recipe
            and plan["weight_average"]
            and plan["stream_loss"] == {"er-ace": None}.get(plan["method"], "asymmetric")
        ):
            found[plan["method"], plan["data"], plan["memory"]["name"]][plan["seed"]] = run.acc_last
    words = {}
    for method, data in (("derpp", "cifar100"), ("er-ace", "cifar10"), ("er-ace", "cifar100")):
        each = paired(found[method, data, "odedm"], found[method, data, "reservoir"])
        assert each.estimate.n == 3
        words[method, data] = f"{number(each.estimate.mean, sign=True)} {format_interval(each.interval)}"
    text = " ".join(PAYS.read_text(encoding="utf-8").split())
    assert f"{words['derpp', 'cifar100']} over three seeds" in text
    both = f"{words['er-ace', 'cifar10']} on CIFAR-10, {words['er-ace', 'cifar100']} on CIFAR-100"
    assert f"with ER-ACE over three ({both})" in text
    held_out, recipe = (
        scores("averages-cifar100"),
        "nearest-mean · asymmetric · 6 updates · strong · weights averaged by 0.987",
    )
    own, dual = (
        format_mean(estimate(held_out[f"DER++ · {name} · {recipe}"].values())) for name in ("reservoir", "ODEDM")
    )
    assert f"as on held-out rows ({own} and {dual}, two seeds)" in text


def test_fresh_seeds_beside_what_held_out_rows_chose_are_those_of_the_page_on_harm():
    text = " ".join(BEHIND_IT.read_text(encoding="utf-8").split())
    boards = hosts(runs("no-harm"))
    er, icarl = (boards["cifar10", 200][name] for name in ("er", "icarl"))
    said = []
    for host in (er, icarl):
        each = host.change(host.default(), "sinkhorn")
        assert each.estimate.n == 10
        said.append(f"{number(each.estimate.mean, sign=True)} {format_interval(each.interval)}")
    assert f"`union` {said[0]} over ten" in text
    assert f"Ten others on its test rows do not say so: {said[1]}" in text
    der = boards["cifar100", 500]["der"]
    gained = der.change(der.default(), "sinkhorn")
    assert sorted(gained.by_seed) == [*range(10, 16)]
    assert f"it gained {number(gained.estimate.mean)} by it (seeds 10 to 15)" in text


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


def test_what_is_said_of_harm_on_small_pictures_is_what_its_runs_show():
    (board,) = hosts(runs("no-harm-fashion-mini")).values()
    text = " ".join(PAYS.read_text(encoding="utf-8").split("Ten other seeds")[1].split("\n\n")[0].split())
    for host in board.values():
        each = host.change(host.default(), "sinkhorn")
        assert re.search(rf"{re.escape(host.name)} \(?{re.escape(number(each.estimate.mean, sign=True))}[ ,)]", text)
    for name in ("derpp", "refresh"):
        worse = paired(*(board[name].kept["auxiliary", "fixed"][which] for which in ("random", "sinkhorn")))
        assert f"{number(worse.estimate.mean)} {format_interval(worse.interval)}" in text


def test_what_is_said_of_harm_to_the_later_methods_is_what_its_runs_show():
    (board,) = hosts(runs("no-harm-later")).values()
    text = " ".join(PAYS.read_text(encoding="utf-8").split("\nEight later methods")[1].split("\n\n")[0].split())
    assert len(board) == 8
    for host in board.values():
        each, choice = host.change(host.default(), "sinkhorn"), host.choice(host.default())
        assert re.search(rf"{re.escape(host.name)} \(?{re.escape(number(each.estimate.mean, sign=True))}[ ,)]", text)
        worth = f"{host.name} ({number(choice.estimate.mean, sign=True)} {format_interval(choice.interval)})"
        assert (worth in text) == (choice.interval[0] > 0)
    with_first = runs("no-harm-later", "no-harm-first-look")
    scr = hosts(run for run in with_first if run.experiment["method"] == "scr").popitem()[1]["scr"]
    lost = scr.change(("auxiliary", "fixed"), "sinkhorn")
    assert f"{number(lost.estimate.mean, sign=True)} {format_interval(lost.interval)} on test rows" in read(
        "appendix/memories-measured.md"
    )


@pytest.mark.parametrize(("place", "name"), [(("cifar10", 200), "CIFAR-10"), (("cifar100", 500), "CIFAR-100")])
def test_what_is_said_of_harm_on_cifar_is_what_its_runs_show(place, name):
    board = hosts(runs("no-harm"))[place]
    text = " ".join(PAYS.read_text(encoding="utf-8").split(f"\n**{name}, λ = {place[1]}")[1].split("\n\n")[0].split())
    for host in board.values():
        each, choice = host.change(host.default(), "sinkhorn"), host.choice(host.default())
        said = f"{host.name} ({number(each.estimate.mean, sign=True)})"
        assert (said in text) == (shows_something(each))
        worth = f"{number(choice.estimate.mean, sign=True)} {format_interval(choice.interval)}"
        chosen = re.search(rf"\b{re.escape(f'{host.name} ({worth}')}[,;)]", text.split("better than random rows")[1])
        assert bool(chosen) == (choice.interval[0] > 0)
    if place[0] == "cifar10":
        refresh = board["refresh"]
        (control,) = (each["random"] for each in refresh.kept.values())
        others = [worth for seed, worth in refresh.choice(refresh.default()).by_seed.items() if seed != 10]
        assert (
            f"{number(mean(others), sign=True)} without seed 10, in which random rows ended at {number(control[10])}"
            in text
        )
    else:
        names = ("der", "derpp", "refresh")
        later = [board[name].choice(board[name].default()).by_seed[15] > 0 for name in names]
        assert later == [False, False, True]
        assert "seed 15, the one that came later, says it again for refresh alone" in text


def test_eleven_seeds_of_derpp_on_cifar100_are_one_experiment_and_gain_what_is_said():
    found, plans = defaultdict(dict), defaultdict(set)
    for run in runs("table1", "no-harm"):
        plan, memory = run.experiment, run.experiment["memory"]
        if (plan["method"], plan["data"], plan["imbalance"]) != ("derpp", "cifar100", "standard"):
            continue
        ours = memory["name"] == "odedm" and (memory["k"], memory["distance"]) == (1, "sinkhorn")
        if memory["capacity"] == 500 and (ours or memory["name"] == "reservoir"):
            found[ours][plan["seed"]] = run.acc_last
            plans[ours].add(repr(sorted((key, repr(value)) for key, value in plan.items() if key != "seed")))
    assert [len(each) for each in plans.values()] == [1, 1]
    change = paired(found[True], found[False])
    better = sum(each > 0 for each in change.by_seed.values())
    assert (change.estimate.n, better) == (11, 8)
    gain = f"{number(change.estimate.mean, sign=True)} {format_interval(change.interval)}"
    assert f"over all eleven it gains **{gain}**, in eight of them" in PAYS.read_text(encoding="utf-8")


def test_seeds_beside_the_planned_ones_are_said_where_they_speak_against_a_gain():
    text = " ".join(PAYS.read_text(encoding="utf-8").split())

    def words(each, n):
        assert each.estimate.n == n
        return f"{number(each.estimate.mean, sign=True)} {format_interval(each.interval)}"

    board, ledger = hosts(runs("no-harm"))["cifar10", 200], of_the_ledger(200)
    said = {}
    for name, place in (("derpp", "DER++"), ("refresh", "DER++refresh"), ("fdr", "FDR")):
        host, (dual, own) = board[name], (ledger[place, "cifar10", "standard", rho] for rho in (0.25, None))
        every = paired(host.kept["auxiliary", "fixed"]["sinkhorn"] | dual, host.own | own)
        said[name] = words(paired(dual, own), 5), words(every, 15), number(min(every.by_seed.values()), sign=True)
    assert "DER++ changed by {0}, in one seed by {2}, and over all fifteen by **{1}**".format(*said["derpp"]) in text
    looked_at = hosts(runs("no-harm-first-look"))["cifar10", 200]["derpp"]
    again = looked_at.change(("auxiliary", "fixed"), "sinkhorn").by_seed.values()
    assert f"seeds 0 to 2, run once more by a later commit, gained {number(min(again))} to {number(max(again))}" in text
    assert f"refresh ({said['refresh'][1]}) and FDR ({said['fdr'][1]}) keep theirs" in text
    first = hosts(runs("no-harm", "no-harm-first-look"))["cifar100", 500]
    gain = words(first["der"].change(first["der"].default(), "sinkhorn"), 8)
    der, derpp, refresh = (words(first[name].choice(first[name].default()), 8) for name in ("der", "derpp", "refresh"))
    assert f"DER's gain ({gain}) and what choosing is worth to it ({der}) are not shown" in text
    assert f"what it is worth to DER++ ({derpp}) and refresh ({refresh}) stands" in text


def test_what_averages_give_each_host_is_what_the_runs_show():
    found = defaultdict(dict)
    for run in runs("no-harm-fashion-mini", "no-harm-averaged"):
        plan, memory = run.experiment, run.experiment["memory"]
        if memory["name"] != "odedm":
            found[plan["method"], plan["weight_average"] is not None][plan["seed"]] = run.acc_last
    text = " ".join(read("how-to/ingredients.md").split("Ten other seeds")[1].split("\n\n")[0].split())
    for method in ("er", "der", "derpp", "refresh", "fdr", "vrmcl"):
        change = estimate([found[method, True][seed] - own for seed, own in found[method, False].items()])
        assert change.n == 10
        assert f"{title(METHODS, method)} {number(change.mean, sign=True)} ± {number(change.error)}" in text
    assert f"from {number(stdev(found['er', False].values()))} to {number(stdev(found['er', True].values()))}" in text


def test_what_changes_on_the_way_is_what_the_runs_show():
    found = defaultdict(dict)
    for run in runs("no-harm", "no-harm-fashion-mini"):
        plan, memory = run.experiment, run.experiment["memory"]
        if plan["seed"] >= 10 and memory.get("distance", "sinkhorn") == "sinkhorn":
            after = [mean(row) for row in run.class_il]
            found[title(METHODS, plan["method"]), plan["data"], memory["name"] == "odedm"][plan["seed"]] = after
    for name, seeds, step in (("fashion-mini", 10, 1), ("CIFAR-10", 10, 1), ("CIFAR-100", 6, 2)):
        for host, *cells in rows_below("On the way, task by task", f"{name}, after task"):
            own, dual = (found[host, name.lower().replace("-1", "1"), which] for which in (False, True))
            assert len(own) == len(dual) == seeds
            for task, said in enumerate(cells):
                change = estimate([dual[seed][1 + step * task] - own[seed][1 + step * task] for seed in own])
                assert said == f"{number(change.mean, sign=True)} ± {number(change.error)}", (host, name, task)


def test_seeds_that_fall_on_the_newest_task_are_named_with_what_the_others_have():
    text = " ".join(BEHIND_IT.read_text(encoding="utf-8").split("\n## Single seeds")[1].split())
    found, last_tasks = defaultdict(dict), {}
    for run in runs("no-harm"):
        plan, memory = run.experiment, run.experiment["memory"]
        if plan["data"] == "cifar10" and plan["seed"] >= 10 and memory.get("distance") == "sinkhorn":
            found[plan["method"]][plan["seed"]] = (run.class_il[-1][-1], run.acc_last)
            if plan["method"] == "der":
                last_tasks[plan["seed"]] = run.class_il[-1]
    for method, seed, words in (("icarl", 11, "{} on the newest task and ends at {}"), ("er", 10, "{} and {}")):
        own = found[method].pop(seed)
        newest, last = ([other[place] for other in found[method].values()] for place in (0, 1))
        said = words.format(*map(number, own))
        others = rf"{min(newest):.0f} to {max(newest):.0f} and {min(last):.0f} to {max(last):.0f}"
        assert re.search(rf"seed {seed} has {said} where (its other seeds|they) have {others}", text), (method, others)
    newest, last = found["der"].pop(14)
    assert f"{number(newest)} on the newest task and has forgotten the others, {number(last)} in all" in text
    worst = [number(found["der"].pop(seed)[1]) for seed in (17, 19)]
    others = [last for _, last in found["der"].values()]
    assert f"end at {' and '.join(worst)}, below DER alone" in text
    left = [sorted(last_tasks[seed], reverse=True) for seed in (17, 19)]
    assert (
        "one has {} on the newest task, the other {} on the third".format(*(number(best) for best, *_ in left)) in text
    )
    assert max(second for _, second, *_ in left) < 14
    assert f"seven others have {min(others):.0f} to {max(others):.0f}" in text


def test_what_the_head_gives_beside_an_average_is_what_the_runs_show():
    text = " ".join(read("how-to/ingredients.md").split())
    newest, last = defaultdict(list), defaultdict(list)
    for run in runs("leaderboard"):
        plan = run.experiment
        recipe = plan["method"] == "derpp" and plan["updates"] == 6 and plan["views"] == "strong"
        if recipe and plan["weight_average"] and plan["stream_loss"] == "asymmetric":
            newest[plan["data"], plan["predict"]].append(run.class_il[-1][-1])
            last[plan["data"], plan["predict"]].append(run.acc_last)
    assert f"({format_mean(estimate(last['cifar100', None]))})" in text
    assert f"{format_mean(estimate(last['cifar10', None]))} over fifty batches on test rows" in text
    head, means = ([f"{f(newest['cifar100', way]):.0f}" for f in (min, max)] for way in (None, "nearest-mean"))
    assert f"newest task has {' to '.join(head)} of 100 right, by nearest means {' to '.join(means)}" in text
    assert f"by the head {format_mean(estimate(last['cifar100', None]))}" in recipes()["best"].cases[2].measured


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
    text = " ".join(PAYS.read_text(encoding="utf-8").split("**Scarcer still, it pays.**")[1].split("\n\n")[0].split())
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
    found, page = scores("recipe-choice-fashion-mini"), read("how-to/ingredients.md")
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
    lines = read("how-to/ingredients.md").split(f"{head}\n")[1].splitlines()[1:]
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
