"""How a method meets ODEDM's long-term rows: by the method where nobody says, and as a weight or a reading says."""

import re
from dataclasses import replace

import pytest
from beside import ROOT
from sampling import KEEPING, QUICK

import odedm
from odedm import ODEDM, DualMemory, Experiment, Learner, Native, NoMemory, Prototypes, Reservoir, UsageError, blobs
from odedm.cli.generated_options import memory_from
from odedm.core.choices import GAMMA_RULES, REPLAYS
from odedm.core.registry import METHODS
from odedm.core.stored_names import stored_name
from odedm.learner.config import LearnerConfig
from odedm.memory.live_state import capture
from odedm.memory.settings import memory_from_dict, memory_to_dict
from odedm.methods.er import ER
from odedm.recipes.demo import demo
from odedm.report.labels import group_names
from odedm.studies.spec import parse
from odedm.testing.contracts import same_weights
from odedm.training.experiment import content_key
from odedm.training.preparation import prepare
from odedm.training.replay import MODES, MemoryReplay, mode_of, replay_options, resolve_replay_mode

VECTORS = blobs(per_class=16)


def own(method):
    return MODES.get(stored_name(METHODS[method].load()), ("auxiliary", "fixed"))


class Plain(odedm.Method):
    """A method of a user's."""


class DarkOfTheirs(METHODS["der"].load()):
    """One that is DER but for something."""


class WithATerm(odedm.Method):
    """One that says what its term on long-term rows is."""

    def long_term_loss(self, rows, replay):
        return 2 * super().long_term_loss(rows, replay)


class ReplayOfTheirs(METHODS["er"].load()):
    """One that is ER but for something."""


def test_a_method_of_a_users_has_the_mode_of_er_or_of_the_method_that_it_extends():
    assert mode_of(Plain) == mode_of(ReplayOfTheirs) == mode_of(METHODS["er"].load()) == ("union", "fixed")
    assert mode_of(WithATerm) == ("auxiliary", "fixed")
    assert mode_of(DarkOfTheirs) == mode_of(METHODS["der"].load()) == ("auxiliary", "share")
    assert resolve_replay_mode(ODEDM(20, replay="auxiliary"), Plain).replay == "auxiliary"
    assert resolve_replay_mode(ODEDM(20, gamma=0.5), Plain).replay == "auxiliary"


def prepared(memory, method="er", data=VECTORS):
    return prepare(Experiment(memory, method, data=data.name, device="cpu"), data).experiment


def trained(memory, method, **more):
    how = {"batch": 8, "device": "cpu", "options": QUICK.get(method, {}), **more}
    return odedm.train(VECTORS, method=method, memory=memory, **how)


@pytest.mark.parametrize("method", KEEPING)
def test_the_default_is_the_methods_own_and_one_run_has_one_description(method):
    reading, rule = own(method)
    assert reading in REPLAYS
    assert rule in GAMMA_RULES
    plain = prepared(ODEDM(20, k=1), method)
    assert plain == prepared(ODEDM(20, k=1, replay="auto"), method)
    weight = {} if reading == "union" else {"gamma": 1.0, "gamma_rule": rule}
    assert plain == prepared(ODEDM(20, k=1, replay=reading, **weight), method)
    assert content_key(plain.describe()) == content_key(prepared(plain.memory, method).describe())


def test_the_page_says_of_every_method_which_it_is():
    lines = (ROOT / "docs" / "consolidation.md").read_text().split("| method | `auto` stands for |")[1].splitlines()
    said = {}
    for line in lines[2 : lines.index("")]:
        names, reading, _ = (cell.strip() for cell in line.strip("|").split("|"))
        rule = "share" if "share" in reading else "fixed"
        said |= {name.strip(): (re.match("`([a-z]+)`", reading)[1], rule) for name in names.split(", ")}
    titles = {METHODS[name].title or name: name for name in KEEPING}
    assert said.pop("a method of your own") == mode_of(Plain)
    assert said == {title: own(name) for title, name in titles.items()}


@pytest.mark.parametrize("method", ["er", "der", "icarl", "vrmcl"])
@pytest.mark.parametrize("given", [{"gamma": 1.0}, {"gamma": 0.0}, {"gamma_rule": "share"}, {"gamma_rule": "fixed"}])
def test_a_weight_that_is_given_asks_for_the_auxiliary_term(method, given):
    memory = prepared(ODEDM(20, k=1, **given), method).memory
    wanted = {"gamma": 1.0, "gamma_rule": "fixed", **given}
    assert replay_options(memory) == {"mode": "auxiliary", **wanted}


@pytest.mark.parametrize("reading", REPLAYS)
@pytest.mark.parametrize("gamma", [None, 0.5])
def test_a_reading_that_is_named_stays(reading, gamma):
    given = None if reading == "union" else gamma
    for method in ("er", "der", "icarl"):
        memory = prepared(ODEDM(20, k=1, replay=reading, gamma=given), method).memory
        assert replay_options(memory) == {"mode": reading, "gamma": given or 1.0, "gamma_rule": "fixed"}


def test_memories_without_a_long_term_part_have_no_reading():
    for memory in (Reservoir(20), Native(20), NoMemory()):
        assert resolve_replay_mode(memory, ER) is memory
    with pytest.raises(RuntimeError, match="no replay mode 'auto'"):
        MemoryReplay(None, None, mode="auto", draw=1, gamma=1.0, rng=None)


def test_a_reading_without_the_term_has_one_description():
    plain = resolve_replay_mode(ODEDM(20, replay="union"), ER)
    assert plain == resolve_replay_mode(ODEDM(20), ER)
    stored = memory_to_dict(plain)
    assert (stored["gamma"], stored["gamma_rule"]) == (1.0, "fixed"), "as files had it when a weight of 1 was taken"
    assert plain == memory_from_dict(stored)


WEIGHTS = [{"gamma": 0.5}, {"gamma": 0.0}, {"gamma": 1.0}, {"gamma_rule": "share"}, {"gamma_rule": "fixed"}]


@pytest.mark.parametrize("given", WEIGHTS, ids=str)
def test_a_weight_beside_a_reading_without_the_term_is_refused_but_in_files_of_before(given):
    (name,) = given
    said = f"^{name} is for the auxiliary term, and the replay mode 'union' has none; {given[name]!r} was given"
    with pytest.raises(UsageError, match=said):
        memory_from({"replay": "union", **given})
    with pytest.raises(UsageError, match=said):
        ODEDM.paper(20, replay="union", **given)
    with pytest.raises(UsageError, match=said):
        ODEDM(20, replay="union", **given)
    with pytest.raises(UsageError, match=said):
        replace(ODEDM(20, **given), replay="union")
    with pytest.raises(UsageError, match=f"Grid 1 of the study 'study': {said[1:]}"):
        parse(f"replay = ['auxiliary', 'union']\n{name} = {given[name]!r}").experiments()
    kept = ODEDM(20, k=1, replay="union")
    before = {**memory_to_dict(kept), **given}
    assert memory_from_dict(before) == kept
    assert resolve_replay_mode(memory_from({}, before), ER) == kept
    with pytest.raises(UsageError, match=f"{name} must be|Unknown rule for gamma"):
        memory_from_dict({**before, name: "nonsense"})


@pytest.mark.parametrize("method", ["er", "der", "derpp"])
def test_a_resolved_memory_goes_back_to_the_methods_own_reading(method):
    there = prepared(ODEDM(20, k=1, gamma=0.5), "er").memory
    back = replace(there, replay="auto", gamma=None, gamma_rule=None)
    assert replay_options(prepared(back, method).memory) == replay_options(prepared(ODEDM(20, k=1), method).memory)


@pytest.mark.parametrize("given", [None, 3, ["union"], {"union": 1}, True])
def test_a_reading_that_is_no_name_is_refused_with_the_names_that_there_are(given):
    with pytest.raises(UsageError, match="replay must be a name, one of auto, auxiliary, union, both; .* was given"):
        ODEDM(20, replay=given)


@pytest.mark.parametrize("given", ["3", "true", "{ union = 1 }", "['union', 3]", "[[1]]"])
def test_so_it_is_in_a_study(given):
    with pytest.raises(UsageError, match="'replay' must be a name, one of auto, auxiliary"):
        parse(f'name = "mine"\nmethod = "er"\ncapacity = 20\nreplay = {given}').experiments()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gamma": 0.5}, "--set memory.gamma=0.5"),
        ({"gamma": 1}, "--set memory.gamma=1.0"),
        ({"gamma_rule": "share"}, "--set memory.gamma_rule=share"),
        ({"gamma_rule": "fixed"}, "--set memory.gamma_rule=fixed"),
        ({"gamma": 0.5, "replay": "auxiliary"}, "--set memory.gamma=0.5"),
    ],
)
def test_gdumb_refuses_a_weight_that_would_do_nothing(given, said):
    with pytest.raises(
        UsageError, match=rf"GDumb takes no weight of a long-term term \(.*{said}\), because .* Leave it out"
    ):
        prepared(ODEDM(20, k=1, **given), "gdumb")
    assert prepared(ODEDM.paper(20, k=1), "gdumb").memory.gamma == 1.0


def test_gem_reads_all_rows_in_every_reading_and_gdumb_fits_them():
    union, weightless = (trained(ODEDM(20, k=1, **more), "gem") for more in ({}, {"gamma": 0.0}))
    assert weightless.result.experiment["memory"]["replay"] == "auxiliary"
    assert same_weights(union, weightless), "what is forbidden comes from both parts, whatever the reading"
    assert not same_weights(union, trained(ODEDM(20, k=1, gamma=1.0), "gem")), "the term belongs to the loss"
    one, other = (trained(ODEDM(20, k=1, replay=reading), "gdumb") for reading in ("union", "both"))
    assert same_weights(one, other)


@pytest.mark.parametrize("method", ["agem", "mir", "aser", "cope", "scr", "pocl", "vrmcl"])
def test_long_term_rows_are_in_the_draws_of_union(method):
    union, weightless = (
        trained(ODEDM(20, k=1, **more), method) for more in ({"replay": "union"}, {"replay": "auxiliary", "gamma": 0.0})
    )
    assert not same_weights(union, weightless)


@pytest.mark.parametrize("method", ["er", "der", "derpp"])
@pytest.mark.parametrize("memory", [40, ODEDM(40, rho=0.5)], ids=["a number", "a memory"])
def test_a_learner_reads_by_its_method(method, memory):
    plan = LearnerConfig.of(Learner(method, memory=memory).get_params())
    reading, rule = own(method)
    assert replay_options(plan.memory) == {"mode": reading, "gamma": 1.0, "gamma_rule": rule}


def test_a_saved_learner_keeps_its_reading(tmp_path):
    learner = Learner("er", memory=ODEDM(20, k=1, replay="auxiliary"), net="mlp", batch=8, patience=8)
    learner.partial_fit(VECTORS.image, VECTORS.label)
    again = Learner.load(learner.save(tmp_path / "learner.safetensors"))
    memory = again._fitted.engine.plan.memory
    assert replay_options(memory) == {
        "mode": "auxiliary",
        "gamma": 1.0,
        "gamma_rule": "fixed",
    }


def test_a_live_memory_has_no_reading_and_takes_a_state_with_one():
    memory = odedm.DualMemory.from_config(ODEDM(10, k=1, selection=Prototypes(space="pixels")), seed=3)
    memory.add(VECTORS.image[:30], VECTORS.label[:30])
    state = capture(memory)
    state["memory"] |= {"replay": "auxiliary", "gamma": 1.0}
    again = DualMemory(10, k=1, selection=Prototypes(space="pixels"))
    again.load_state_dict(state)
    assert len(again) == len(memory)
    with pytest.raises(UsageError, match="other settings"):
        DualMemory(10, k=2, selection=Prototypes(space="pixels")).load_state_dict(state)


def test_stored_memories_mean_what_they_say():
    before = memory_to_dict(prepared(ODEDM(20, k=1, replay="auxiliary")).memory)
    assert (before["replay"], before["gamma"]) == ("auxiliary", 1.0)
    kept = memory_from_dict(before)
    assert replay_options(resolve_replay_mode(kept, ER)) == {"mode": "auxiliary", "gamma": 1.0, "gamma_rule": "fixed"}
    with pytest.raises(UsageError, match="lacks 'replay'"):
        memory_from_dict({name: value for name, value in before.items() if name != "replay"})


def test_the_papers_memory_by_union_has_no_weight_that_nobody_gave():
    assert replay_options(ODEDM.paper(20, replay="both"))["gamma"] == 1.0
    assert ODEDM.paper(20, replay="union").gamma is None


def test_the_papers_reading_and_the_recipes_stay_by_their_names():
    for memory in (ODEDM.paper(200), odedm.recipe("best", capacity=500, classes=100, colour=True).memory):
        for method in ("er", "icarl"):
            assert replay_options(resolve_replay_mode(memory, METHODS[method].load())) == {
                "mode": "auxiliary",
                "gamma": 1.0,
                "gamma_rule": "fixed",
            }


def test_the_demo_shows_the_default():
    duals = [plan.memory for plan in demo(1) if isinstance(plan.memory, ODEDM) and plan.updates == 1]
    assert duals == [ODEDM(100, rho=0.25)] * 2


def test_the_command_line_takes_a_weight_for_a_wish_and_refuses_one_without_a_term():
    assert memory_from({"gamma": 0.5}) == ODEDM(gamma=0.5)
    assert memory_from({"gamma": 0.5, "replay": "both"}).gamma == 0.5
    union = memory_to_dict(prepared(ODEDM(20, k=1, replay="union")).memory)
    with pytest.raises(UsageError, match=r"gamma_rule is for the auxiliary term, and the replay mode 'union'"):
        memory_from({"gamma_rule": "share"}, union)
    weighed = memory_to_dict(ODEDM(20, k=1, replay="both", gamma=0.5, gamma_rule="share"))
    assert memory_from({"replay": "union"}, weighed) == ODEDM(20, k=1, replay="union")
    again = memory_from({"replay": "auto"}, union)
    assert (again.replay, again.gamma, again.gamma_rule) == ("auto", None, None)


def flat(method, reading, **more):
    return {"method": method, "memory.name": "odedm", "memory.replay": reading, "memory.gamma_rule": "fixed", **more}


def test_labels_name_the_replay_mode_wherever_runs_differ_in_it():
    alike = [flat("er", "auxiliary"), flat("der", "auxiliary")]
    assert [label for _, _, label in group_names(alike)] == ["ER · ODEDM", "DER · ODEDM"]
    by_method = [flat("er", "union"), flat("der", "auxiliary")]
    assert [label for _, _, label in group_names(by_method)] == [
        "ER · ODEDM · union replay",
        "DER · ODEDM · auxiliary replay",
    ]
    chosen = [flat("er", "union"), flat("er", "auxiliary"), flat("der", "auxiliary")]
    assert [label for _, _, label in group_names(chosen)] == [
        "ER · ODEDM · union replay",
        "ER · ODEDM · auxiliary replay",
        "DER · ODEDM · auxiliary replay",
    ]
