"""The models of answers have the fields of the library's own classes, no more and no fewer."""

import dataclasses

from rasp_tuner import Float, Tuner, answer_models, types
from rasp_tuner.gain.versus_default import Gain, VersusDefault
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.service.http import schemas

GAIN = Gain("share", 0.18, 0.12, 0.23)


def test_models_have_the_fields_of_what_they_describe():
    tuner = Tuner({"x": Float(0, 1)}, {"ms": "min"}, default={"x": 0.5})
    versus = VersusDefault(9, 1, 0, GAIN, {"ms": GAIN}).to_json()
    pairs = {
        answer_models.GainAnswer: GAIN.to_json(),
        answer_models.VersusDefaultAnswer: versus,
        answer_models.BudgetAnswer: dataclasses.asdict(types.Budget(0.02, 1, 0.0, 0.0, 1.0)),
        answer_models.MarginAnswer: dataclasses.asdict(types.Margin(1.0, 1.0, 2.0, 0.9)),
        answer_models.ExpectedAnswer: Expected(1.0, 0.5, 1.5)._asdict(),
        answer_models.WhatIfAnswer: {**tuner.what_if().to_json(), "words": ""},
        answer_models.ForecastAnswer: tuner.what_if().to_json()["given"],
    }
    for model, told in pairs.items():
        assert set(model.model_fields) == set(told), model.__name__
        model.model_validate(told)


def test_the_view_of_a_study_has_them():
    assert schemas.StudyView.model_fields["versus_default"].annotation == answer_models.VersusDefaultAnswer | None
    assert schemas.StudyView.model_fields["budget_report"].annotation == answer_models.BudgetAnswer | None
