from serving import STUDY, running, steps


def test_the_chart_of_the_default_is_what_the_gain_of_each_step_was_counted_against(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY).raise_for_status()
        steps(client, 40)
        series = client.get("/v1/studies/web/history?points=1024").json()["series"]
    error, gain, level = (
        dict(zip(series[name]["step"], series[name]["mean"], strict=True))
        for name in ("error", "gain", "default:p99_ms")
    )
    assert len(gain) > 35
    assert gain[0] == 0.0  # the default ran, and nothing was known of it
    assert level.keys() == gain.keys()
    assert all(abs(level[step] - error[step] - gain[step]) < 1e-9 for step in level if gain[step] != 0.0)
