from serving import STUDY, running, steps


def test_the_default_level_is_the_belief_wherever_a_gain_is_judged_and_nothing_elsewhere(sqlite, monkeypatch):
    monkeypatch.setattr("rasp_tuner.service.study.history.GAIN_EACH_STEP_UNTIL", 8)
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        steps(client, 40)  # beyond the first eight only some steps are judged
        series = client.get("/v1/studies/web/history?points=1024").json()["series"]
    error = dict(zip(series["error"]["step"], series["error"]["mean"], strict=True))
    gain = dict(zip(series["gain"]["step"], series["gain"]["mean"], strict=True))
    level = dict(zip(series["default:p99_ms"]["step"], series["default:p99_ms"]["mean"], strict=True))
    assert 8 < len(gain) < 40
    assert gain[0] == 0.0  # the default ran, and nothing was known of it
    assert gain.keys() - {0, 1} <= level.keys() <= gain.keys() - {0}  # from two runs on
    ran_default = [step for step in level if gain[step] == 0.0]
    assert all(abs(level[step] - error[step] - gain[step]) < 1e-9 for step in level if step not in ran_default)
