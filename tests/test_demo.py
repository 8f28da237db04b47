import numpy as np

from rasp_tuner import demo


def test_seeds_reproduce():
    a, b = demo.play("random search", 3, 40), demo.play("random search", 3, 40)
    assert np.array_equal(a.regret, b.regret)
    assert not np.array_equal(a.regret, demo.play("random search", 4, 40).regret)


def test_all_agents_face_the_same_contexts_and_noise(monkeypatch):
    seen = {}
    for name, params in (("low", {"pool": 1, "timeout_s": 0.1, "batching": 0.0}), ("best", demo.BEST[0])):
        contexts, losses = seen.setdefault(name, ([], []))
        spy = (lambda context, c=contexts, p=params: c.append(context.tolist()) or p, losses.append)
        monkeypatch.setitem(demo.AGENTS, name, lambda _seed, spy=spy: spy)
        regret = demo.play(name, 7, 30).regret
        losses[:] = [loss - r for loss, r in zip(losses, regret, strict=True)]  # what is left is noise
    assert seen["low"][0] == seen["best"][0]
    assert np.allclose(seen["low"][1], seen["best"][1])
    assert np.std(seen["low"][1]) > 0.001


def test_regret_is_zero_at_the_best_settings_and_positive_elsewhere(monkeypatch):
    clock = iter(range(100))
    oracle = (lambda _context: demo.BEST[demo.regime(next(clock))], lambda _loss: None)
    monkeypatch.setitem(demo.AGENTS, "oracle", lambda _seed: oracle)
    assert demo.play("oracle", 0, 100).regret.max() < 1e-20
    assert demo.play("never change anything", 0, 100).regret.min() > 0.01


def test_regimes_recur():
    assert [demo.regime(step) for step in (0, 24, 25, 49, 50, 75)] == [0, 0, 1, 1, 0, 1]


def test_the_verdict_follows_the_numbers():
    rows = [{"agent": "random search", "ratio": 2.0}, {"agent": "RASP-Tuner, preset paper", "ratio": 0.5}]
    assert demo.verdict(rows) == "The paper's stack beats never changing anything: 0.50 times its regret."
    rows[1]["ratio"] = 1.5
    assert "LOSES to never changing anything: 1.50 times its regret (less than random search's)" in demo.verdict(rows)
    rows[1]["ratio"] = 2.5
    assert "(no less than random search's)" in demo.verdict(rows)
