"""RaspSearch: the same as a tuner's own loop, in Ray Tune's calls and in a real Ray; nothing lost at the edges."""

import logging
import math
import re
import sys
import warnings
from importlib import import_module

import pytest
from page_blocks import block

from rasp_tuner import Categorical, Float, Int, InvalidSpace, InvalidValue, Metric, MissingExtra, PowerOfTwo, Tuner
from tests.later import Later

tune = Later("ray.tune", "an extra of its own: pip install 'rasp-tuner[ray-tune]'")
ray, ray_tune = Later("ray"), Later("rasp_tuner.integrations.ray_tune")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves sockets and files to the collector

KNOBS = {
    "opt/a": Float(0.1, 10, log=True), "opt/b": Int(2, 10, step=2), "c": Categorical(["u", "v", "w"])
}  # fmt: skip
LOADS = [step * 7 % 5 / 2 for step in range(25)]


def ray_knobs():
    """The same, in Ray's words, and a constant."""
    return {
        "opt": {"a": tune.loguniform(0.1, 10), "b": tune.qrandint(2, 10, 2)},
        "c": tune.choice(["u", "v", "w"]),
        "epochs": 3,
    }


def loss(config):
    a, b = config["opt"]["a"], config["opt"]["b"]
    return (math.log(a) - config["context"]["load"]) ** 2 + 0.1 * abs(b - 4) + (config["c"] == "u")


def searcher(space=None, **settings):
    search = ray_tune.RaspSearch(**{"context": ["load"], "seed": 7, **settings})
    search.set_search_properties("loss", "min", space or ray_knobs())
    return search


def step(search, trial, load, **end):
    """One trial, as Ray's loop makes it; what it came to, unless `end` says how it ended."""
    search.context({"load": load})
    config = search.suggest(trial)
    search.on_trial_complete(trial, **(end or {"result": {"loss": loss(config), "done": True}}))
    return config


def native(loads=LOADS, told=lambda tuner, id, value: tuner.tell(id, {"loss": value}), **settings):
    """A tuner's own loop."""
    tuner, asked = Tuner(KNOBS, {"loss": "min"}, ["load"], seed=7, **settings), []
    for load in loads:
        suggestion = tuner.ask({"load": load})
        asked.append(ray_tune.nested(suggestion.params) | {"context": {"load": load}})
        told(tuner, suggestion.id, loss(asked[-1]))
    return tuner, asked


def test_the_same_calls_give_the_same_suggestions_and_the_same_tuner():
    search = searcher()
    configs = [step(search, f"t{i}", load) for i, load in enumerate(LOADS)]
    tuner, asked = native()
    assert configs == asked
    assert search.tuner.to_bytes() == tuner.to_bytes()
    assert search.recommend({"load": 1.0}) == ray_tune.nested(tuner.recommend({"load": 1.0}))


def test_a_default_is_the_first_suggestion_and_settings_are_the_tuners_own():
    default = {"opt": {"a": 1.5}, "c": "w"}  # b starts in the middle of its range
    search = searcher(default=default, guard=0.2)
    configs = [step(search, f"t{i}", load) for i, load in enumerate(LOADS[:5])]
    assert configs[0]["opt"] == {"a": 1.5, "b": 6}
    whole = {"opt/a": 1.5, "opt/b": 6, "c": "w"}
    assert search.tuner.to_bytes() == native(LOADS[:5], default=whole, guard=0.2)[0].to_bytes()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"error": True}, "error"),
        ({"result": {"loss": math.nan}}, "loss is nan"),
        ({"result": {"loss": math.inf}}, "loss is inf"),
        ({"result": {"loss": "much"}}, "no number"),
        ({"result": {"other": 1.0}}, "no 'loss'"),
    ],
)
def test_trials_that_fail(end, reason):
    search = searcher()
    for i, load in enumerate(LOADS[:4]):
        step(search, f"t{i}", load, **(end if i == 2 else {}))
    row = search.tuner.history()[2]
    assert row["failed"]
    assert reason in row["failure"]
    assert search.tuner.learned == 4


def test_errors_can_be_ignored_and_trials_that_never_ran_teach_nothing():
    search = searcher(failed="ignore")
    step(search, "one", 1.0, error=True)
    step(search, "two", 1.0, result=None)
    assert search.tuner.learned == 0
    step(search, "three", 1.0)
    assert search.tuner.learned == 1


def test_a_trial_nobody_knows_here_is_learned_from_its_config(caplog):
    search = searcher()
    flat = {"config/opt/a": 2.0, "config/opt/b": 4, "config/c": "v", "config/context/load": 1.0, "loss": 0.5}
    search.on_trial_complete("restarted", flat)
    assert search.tuner.history()[0]["params"] == {"opt/a": 2.0, "opt/b": 4, "c": "v"}
    assert search.tuner.history()[0]["context"] == {"load": 1.0}
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        search.on_trial_complete("odd", {"loss": 0.5})
    assert "trial odd of Ray Tune was not learned" in caplog.text
    assert search.tuner.learned == 1


def test_a_search_that_is_restored_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole, first = searcher(), searcher()
    for i, load in enumerate(LOADS[:2]):
        assert step(whole, f"t{i}", load) == step(first, f"t{i}", load)
    running = whole.suggest("running")
    assert first.suggest("running") == running
    first.save(tmp_path / "search.pkl")
    assert (tmp_path / "search.pkl").read_bytes().startswith(b"RASPTUNE")  # nothing is pickled
    assert Tuner.load(tmp_path / "search.pkl").learned == 2
    again = ray_tune.RaspSearch(context=["load"], seed=7)  # as Ray does, without a space
    again.restore(tmp_path / "search.pkl")
    for search in (whole, again):
        search.on_trial_complete("running", {"loss": loss(running)})
    for i, load in enumerate(LOADS[3:]):
        assert step(whole, f"u{i}", load) == step(again, f"u{i}", load)
    assert whole.tuner.to_bytes() == again.tuner.to_bytes()


def test_choices_that_a_file_cannot_hold_come_with_the_space(tmp_path):
    space = {"f": tune.choice([math.sin, math.cos]), "x": tune.uniform(0, 1)}
    search = searcher(space)
    search.context({"load": 1.0})
    search.suggest("t")
    search.save(tmp_path / "search")
    again = ray_tune.RaspSearch(context=["load"], seed=7)
    again.context({"load": 1.0})
    again.restore(tmp_path / "search")
    with pytest.raises(InvalidSpace, match="give param_space to"):
        again.suggest("u")
    again.on_trial_complete("t", {"loss": 1.0})
    again.set_search_properties("loss", "min", space)
    assert again.suggest("u")["f"] in (math.sin, math.cos)
    assert again.tuner.learned == 1


def test_what_was_learned_of_another_space_is_refused(tmp_path):
    search = searcher()
    step(search, "t", 1.0)
    search.save(tmp_path / "search")
    with pytest.raises(InvalidSpace, match="another space"):
        searcher({"x": tune.uniform(0, 1)}).restore(tmp_path / "search")
    with pytest.raises(InvalidSpace, match="another space"):
        search.set_search_properties("loss", "min", {"x": tune.uniform(0, 1)})
    with pytest.raises(InvalidSpace, match="another metrics"):
        search.set_search_properties("other", "min", ray_knobs())


def test_the_next_run_goes_on_with_what_this_one_learned():
    search = searcher()
    for i, load in enumerate(LOADS[:5]):
        step(search, f"t{i}", load)
    assert search.set_search_properties("loss", "min", ray_knobs())
    assert search.tuner.learned == 5


def test_a_search_travels_with_rays_tuner():
    search = searcher()
    for i, load in enumerate(LOADS[:5]):
        step(search, f"t{i}", load)
    search.context(lambda: {"load": 1.0})
    copy = ray.cloudpickle.loads(ray.cloudpickle.dumps(search))
    assert copy.suggest("t") == search.suggest("t")


def test_a_context_is_asked_for_every_trial():
    contexts = iter([{"load": 1}, None, {"load": 2.5}])
    search = searcher()
    search.context(lambda: next(contexts))
    configs = [search.suggest(f"t{i}") for i in range(3)]
    assert [None if config is None else config["context"] for config in configs] == [{"load": 1}, None, {"load": 2.5}]
    with search.context({"load": 0.5}):
        assert search.suggest("with")["context"] == {"load": 0.5}
    with pytest.raises(StopIteration):
        search.suggest("end")


def test_a_wrong_context_is_refused_and_nothing_is_lost():
    search = searcher()
    with pytest.raises(InvalidValue, match=r"trial t: .*context.*search\.context"):
        search.suggest("t")
    with pytest.raises(InvalidValue, match="load"):
        search.context({"speed": 1})
    assert step(search, "t", 1.0)["context"] == {"load": 1.0}
    assert "context" not in searcher(context=None).suggest("t")


def test_a_limit_on_concurrency_holds():
    search = searcher()
    search.context({"load": 1.0})
    limited = tune.search.ConcurrencyLimiter(search, max_concurrent=2)
    assert [limited.suggest(f"t{i}") is not None for i in range(3)] == [True, True, False]
    limited.on_trial_complete("t0", {"loss": 1.0})
    assert limited.suggest("t3") is not None
    assert search.tuner.learned == 1


def test_constants_of_a_space_that_is_given_to_the_search_reach_the_trial():
    space = {"epochs": 3, "opt": {"name": "adam", "lr": tune.uniform(0, 1)}}
    search = ray_tune.RaspSearch(space, "loss", "min", context=["load"])
    search.set_search_properties("loss", "min", {})  # of a tune.Tuner without a space
    search.context({"load": 1.0})
    config = ray.cloudpickle.loads(ray.cloudpickle.dumps(search)).suggest("a")
    assert (config["epochs"], config["opt"]["name"], config["context"]) == (3, "adam", {"load": 1.0})


def test_several_metrics_with_weights_and_limits():
    metrics = {"loss": Metric("min"), "eval/cost": Metric("min", max=5)}
    search = ray_tune.RaspSearch(ray_knobs(), metrics=metrics, seed=7)
    assert search.metric == ["loss", "eval/cost"]
    config = search.suggest("t")
    search.on_trial_complete("t", {"loss": 1.0, "eval/cost": 4.0})
    assert search.tuner.history()[0]["metrics"] == {"loss": 1.0, "eval/cost": 4.0}
    assert set(config) == {"opt", "c", "epochs"}


def test_knobs_of_this_library_may_stand_in_the_space():
    search = searcher(
        {"size": PowerOfTwo(1, 64), "wal": Int(1, 9, when={"mode": "w"}), "mode": Categorical(["r", "w"])}
    )
    search.context({"load": 1.0})
    configs = [search.suggest(f"t{i}") for i in range(5)]
    assert all(config["size"] in {1, 2, 4, 8, 16, 32, 64} for config in configs)
    assert all((config["wal"] is None) == (config["mode"] == "r") for config in configs)
    for i in range(5):
        search.on_trial_complete(f"t{i}", {"loss": 1.0})
    assert search.tuner.learned == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"space": ["x"]}, "space"),
        ({"mode": "least"}, "mode"),
        ({"metric": "loss", "metrics": {"loss": "min"}}, "either"),
        ({"metrics": ["loss"]}, "metrics"),
        ({"context": "load"}, "context"),
        ({"failed": "retry"}, "failed"),
        ({"default": 5}, "default"),
        ({"preset": "fast"}, "preset"),
        ({"shield": object()}, "shield"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(settings, message):
    with pytest.raises(InvalidSpace, match=message):
        ray_tune.RaspSearch(**settings)


def test_a_search_says_what_is_missing():
    with pytest.raises(InvalidSpace, match="needs a space"):
        ray_tune.RaspSearch().suggest("t")
    search = ray_tune.RaspSearch(ray_knobs())
    with pytest.raises(InvalidSpace, match="needs metric and mode"):
        search.suggest("t")
    assert search.set_search_properties("loss", "min", {"epochs": 3}) is False
    assert search.suggest("t")["opt"]


def test_without_ray_tune_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.tune.search", None)
    monkeypatch.delitem(sys.modules, "rasp_tuner.integrations.ray_tune", raising=False)
    with pytest.raises(MissingExtra, match=r"rasp-tuner\[ray-tune\]"):
        import_module("rasp_tuner.integrations.ray_tune")


@pytest.fixture(scope="module")
def local_ray(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        yield tmp_path_factory.mktemp("results")
        ray.shutdown()


@pytest.mark.nightly
def test_the_ten_lines_of_the_page(local_ray, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(local_ray))  # where Ray puts results
    exec(block("RAY_TUNE.md"), {"__name__": "__main__"})  # noqa: S102
    assert re.search(r"\[(39|40|41), 4\]\n$", capsys.readouterr().out)  # trials end in any order


@pytest.mark.nightly
def test_errors_are_learned_and_an_experiment_is_restored(local_ray, tmp_path):
    mended = tmp_path / "mended"

    def run(config):
        if config["context"]["load"] == 2 and not mended.exists():
            raise RuntimeError("crashed")
        return {"loss": (config["net"]["x"] - config["context"]["load"] / 4) ** 2}

    loads = iter(range(3))
    search = ray_tune.RaspSearch(context=["load"], seed=7)
    search.context(lambda: {"load": next(loads)})
    found = tune.Tuner(
        run,
        param_space={"net": {"x": tune.uniform(0, 1)}, "epochs": 2},
        tune_config=tune.TuneConfig(metric="loss", mode="min", search_alg=search, num_samples=3, reuse_actors=True),
        run_config=tune.RunConfig(name="restored", storage_path=str(local_ray), verbose=0),
    ).fit()
    assert found.num_errors == 1
    assert sorted(row["context"]["load"] for row in search.tuner.history()) == [0, 1, 2]
    assert [row["context"]["load"] for row in search.tuner.history() if row["failed"]] == [2]
    mended.touch()
    folder = local_ray / "restored"
    again = tune.Tuner.restore(str(folder), run, restart_errored=True).fit()
    assert again.num_errors == 0
    (state,) = {max(folder.glob("searcher-state-*"))}
    learned = Tuner.load(state).history()
    assert [row["failed"] for row in learned].count(True) == 1
    assert (learned[-1]["context"], learned[-1]["failed"], len(learned)) == ({"load": 2}, False, 4)


@pytest.mark.nightly
def test_a_ruinous_trial_ends_at_its_stop(local_ray):
    costs = {"a": 1.0, "b": 10.0, "c": 0.5}

    def trainable(config):
        from ray import tune

        for part in range(1, 31):
            tune.report({"cost": costs[config["plan"]] * part / 30})

    found = tune.Tuner(
        trainable,
        param_space={"plan": tune.choice(list(costs))},
        tune_config=tune.TuneConfig(
            metric="cost",
            mode="min",
            num_samples=2,  # the default, and what is ruinous
            max_concurrent_trials=1,
            search_alg=ray_tune.RaspSearch(default={"plan": "a"}, seed=0),
            scheduler=ray_tune.RaspScheduler(),
        ),
        run_config=tune.RunConfig(name="stopped", storage_path=str(local_ray), verbose=0),
    ).fit()
    ended = {result.config["plan"]: result.metrics["training_iteration"] for result in found}
    assert ended["a"] == 30
    assert ended["b"] < 9
