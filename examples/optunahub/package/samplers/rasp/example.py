"""Cache sizes for day and night: `python example.py` prints the best known for each."""

from math import log

import optuna
import optunahub


def objective(trial: optuna.Trial) -> float:
    best = 40 if trial.user_attrs["context"]["qps"] == 900 else 4
    return 20 + 10 * log(trial.suggest_float("cache_gb", 1, 64, log=True) / best) ** 2


sampler = optunahub.load_module(package="samplers/rasp").RaspSampler(context=["qps"], seed=0)
study = optuna.create_study(sampler=sampler)
for hour in range(96):
    study.enqueue_trial({}, user_attrs={"context": {"qps": 900 if hour % 24 >= 12 else 100}})
study.optimize(objective, n_trials=96)
print({qps: sampler.recommend({"qps": qps}) for qps in (900, 100)})
