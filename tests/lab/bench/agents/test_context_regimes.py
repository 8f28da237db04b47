"""Regimes are found from contexts alone: as many as there are, whatever the units, and few where there are none."""

import numpy as np
import pytest

from rasp_lab.bench import domains
from rasp_lab.bench.agents.context_regimes import MAX_REGIMES, ContextRegimes


def follow(contexts):
    """The regimes after a stream of contexts [T, d_c], and the regime [T] that each context went to."""
    regimes, names, labels = ContextRegimes(contexts.shape[1]), [], []
    for step, context in enumerate(contexts):
        index, gone = regimes.add(context)
        if index == len(names):
            names.append(step)  # a name that stays when others are merged
        labels.append(names[index])
        if gone is not None:
            del names[gone]
    return regimes, np.array(labels)


def stream(name, horizon, seed):
    domain = domains.create(name)
    omegas = domain.build_sequence(horizon, seed)
    return np.array([domain.context_fn(omega) for omega in omegas]), np.array(
        [domain.regime(omega) for omega in omegas]
    )


@pytest.mark.parametrize(
    ("name", "horizon", "least", "most"),
    [
        ("1_LLM_Inference", 100, 3, 3),
        ("2_AutoML_HPO", 400, 4, 4),
        ("3_Robot_ISP_Tuning", 100, 4, 5),
        ("4_Wafer_Etching_Drift", 1000, 1, 3),  # wear grows smoothly
        ("5_Switching_LQR", 300, 2, 2),  # contexts repeat exactly
        ("6_Smooth_Quadratic", 300, 1, 2),  # a fresh context at every step
        ("7_Regime_Switch_Simple", 100, 2, 2),  # a symbol that means nothing changes at random
        ("8_Server_Flash_Crowd", 100, 2, 5),
        ("9_Real_Trace_Replay", 300, 1, 3),  # smooth
        ("A1_Adversarial_Context", 300, 1, 1),
        ("H1_Recurring_Regimes", 100, 4, 5),
        ("H1_Recurring_Regimes", 1000, 4, 5),
    ],
)
def test_there_are_as_many_regimes_as_the_domain_has(name, horizon, least, most):
    for seed in range(3):
        contexts, truth = stream(name, horizon, seed)
        regimes, found = follow(contexts)
        assert least <= len(regimes) <= most, seed
        pure = sum(np.bincount(truth[found == label]).max() for label in set(found.tolist()))
        assert pure >= 0.95 * horizon, seed


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 100.0)])
def test_units_do_not_matter(scale, shift):
    contexts, _ = stream("H1_Recurring_Regimes", 200, 0)
    usual, other = follow(contexts)[1], follow(scale * contexts + shift)[1]
    np.testing.assert_array_equal(usual, other)


def test_contexts_that_repeat_exactly_are_told_apart_however_near_they_are():
    contexts = np.repeat([[1.0, 5.0], [1.001, 5.0], [1.0, 5.0]], 20, axis=0)
    regimes, found = follow(contexts)
    assert len(regimes) == 2
    assert found.tolist() == [0] * 20 + [20] * 20 + [0] * 20


def test_a_context_that_never_moves_or_has_no_coordinates_is_one_regime():
    assert len(follow(np.full((50, 3), 0.1))[0]) == 1
    assert len(follow(np.zeros((50, 0)))[0]) == 1


def test_the_number_of_regimes_is_bounded():
    contexts = np.repeat(np.arange(2.0 * MAX_REGIMES) ** 3, 5)[:, None]
    assert len(follow(contexts)[0]) <= MAX_REGIMES


def test_looking_for_a_regime_changes_nothing():
    contexts, _ = stream("H1_Recurring_Regimes", 60, 0)
    regimes, _ = follow(contexts[:40])
    before = regimes.centres.copy()
    first = [regimes.nearest(context) for context in contexts[40:]]
    assert first == [regimes.nearest(context) for context in contexts[40:]]
    np.testing.assert_array_equal(regimes.centres, before)
