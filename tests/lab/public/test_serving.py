"""A model that nobody has measured, on three made-up ones."""

import numpy as np
import pytest

from rasp_lab.public import protocols, serving
from rasp_lab.public.cells import Cell

MODELS = ("a/small", "b/large", "b/larger")  # of conftest.py


def test_repeats_are_averaged_and_small_contexts_left_out(folder):
    data = serving.serving(folder, serving.TPOT)
    assert data.table.cost.shape == (6, 9)
    first = dict(zip(data.table.contexts, data.table.cost, strict=True))["a/small h100 1024.0 128.0 4.0"]
    assert np.isclose(first, 4.0).any()  # of 2 and 6
    assert "trtllm|sglang|vllm" not in data.table.knobs  # nobody has run sglang
    assert [len(data.of(model)) for model in MODELS] == [2, 2, 2]
    assert sorted(data.of(MODELS[0]) + data.not_of(MODELS[0])) == list(range(6))


def test_an_objective_that_was_not_measured_is_no_cell(folder):
    assert np.isnan(serving.serving(folder, serving.TOKENS).table.cost).sum() == 0
    assert serving.serving(folder, serving.TOKENS).table.cost.shape == (6, 8)  # GPUs of the pools are not known


def test_half_keep_the_limit_and_what_breaks_it_counts_as_the_worst(folder):
    data = serving.serving(folder, serving.TPOT)
    for at in range(6):
        kept, ratio = data.late[at] <= 1.0, data.ratio(at)
        assert kept.sum() in (5, 6)
        assert ratio[kept].min() == 1.0
        assert (ratio[~kept] == data.table.cost[at].max() / data.table.least[at]).all()


@pytest.mark.parametrize("agent", serving.AGENTS)
def test_looks_are_measured_there_and_more_of_them_are_no_worse(folder, agent, monkeypatch):
    asked = []
    made = serving.AGENTS[agent]

    def watched(data, model, seed):
        found = made(data, model, seed)
        ask = found.ask
        found.ask = lambda open_rows: asked.append((open_rows.sum(), row := ask(open_rows), open_rows[row])) or row
        return found

    monkeypatch.setitem(serving.AGENTS, agent, watched)
    rows = protocols.run(Cell("serving", MODELS[1], agent, 0), folder)
    assert [row["objective"] for row in rows] == [serving.TPOT] * 2 + [serving.TOKENS] * 2
    looks = [open_rows for open_rows, _, _ in asked]
    assert max(looks) == 9
    assert all(is_open for _, _, is_open in asked)
    for row in rows:
        assert row["ratio 5"] <= row["ratio 3"]
        assert row["ratio 5"] >= 1.0
        assert row["kept 5"] == 1.0  # five of eight or nine were looked at


def test_ours_knows_the_other_models(folder):
    """All models are alike but for their level: nothing has to be looked at."""
    rows = protocols.run(Cell("serving", MODELS[2], "RASP", 0), folder)
    assert all(row["ratio 0"] == row["ratio 3"] == 1.0 for row in rows)


def test_what_is_held_out_is_not_told(folder):
    """Costs of the model that is held out change nothing before it is looked at."""
    data = serving.serving(folder, serving.TPOT)
    held = data.of(MODELS[0])
    cost = data.table.cost.copy()
    cost[held] = cost[held][:, ::-1]
    other = data._replace(table=serving.Table(**{**vars(data.table), "cost": cost}))
    for make in serving.AGENTS.values():
        chosen = []
        for one in (data, other):
            agent = make(one, MODELS[0], 0)
            agent.enter(held[0])
            chosen.append(agent.choose(one.measured(held[0])))
        assert chosen[0] == chosen[1]
