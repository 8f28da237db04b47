import json

import numpy as np
import pytest

from rasp_tuner import AlreadyAnswered, ExpiredSuggestion, Explanation, InvalidValue, SnapshotError, UnknownSuggestion
from rasp_tuner.records.ledger import Answered, Ledger

WHY = Explanation(source="default")


def issue(ledger, count=1):
    return [ledger.issue(np.zeros(1), np.zeros(2), WHY) for _ in range(count)]


def test_ids_count_upwards():
    ledger = Ledger(10)
    assert issue(ledger, 3) == ["s0", "s1", "s2"]


def test_answers_are_taken_once():
    ledger = Ledger(10)
    (id,) = issue(ledger)
    ledger.waiting(id)
    ledger.answer(id, WHY)
    with pytest.raises(AlreadyAnswered, match="'s0' was answered before"):
        ledger.waiting(id)


@pytest.mark.parametrize("id", ["s1", "x", "", "s-1", "s00", "S0", "s0 ", "s\u0660", "s" + "9" * 5000, "s1.0"])
def test_ids_never_issued_are_unknown(id):
    ledger = Ledger(10)
    issue(ledger)
    with pytest.raises(UnknownSuggestion, match="was issued by this tuner") as caught:
        ledger.waiting(id)
    assert not isinstance(caught.value, ExpiredSuggestion)


@pytest.mark.parametrize("id", [None, 0, 1.5, b"s0", ["s0"], {"id": "s0"}])
def test_ids_of_another_type_are_refused_with_the_right_code(id):
    with pytest.raises(InvalidValue, match=r"use tuner.tell\(s.id, ...\)"):
        Ledger(10).waiting(id)


def test_the_oldest_pending_record_is_dropped_beyond_the_limit():
    ledger = Ledger(3)
    issue(ledger, 5)
    assert list(ledger.pending) == ["s2", "s3", "s4"]
    with pytest.raises(ExpiredSuggestion, match="'s0' is no longer on record"):
        ledger.waiting("s0")


def test_answered_records_are_bounded_too():
    ledger = Ledger(3)
    for _ in range(10):
        (id,) = issue(ledger)
        ledger.answer(id, WHY)
    assert list(ledger.answered) == ["s7", "s8", "s9"]
    with pytest.raises(ExpiredSuggestion, match="'s1'"):
        ledger.explain("s1")


def test_it_rebuilds_from_its_own_record():
    ledger = Ledger(5)
    for i in range(4):
        ledger.issue(np.array([float(i)]), np.array([i / 10, i / 20]), Explanation("hint", (1, 0), (0.7, 0.3)))
    ledger.answer("s1", Explanation("hint", path="slow", reason="why", error=0.25))
    ledger.answer("s2", Explanation("hint", path="fast", error=0.5, ran={"pool": 8, "codec": None}))
    arrays = ledger.state(dim=2, context_dim=1)
    again = Ledger.rebuild(json.loads(json.dumps(ledger.to_json())), arrays, 2, 1)
    assert again.to_json() == ledger.to_json()
    assert again.answered == ledger.answered
    assert again.pending["s3"].point.tolist() == [0.3, 0.15]
    assert issue(again) == ["s4"]


class Counted:
    """Reasons that know how often somebody asked for them."""

    asked = 0

    def explanation(self):
        self.asked += 1
        return WHY


def test_an_explanation_is_made_once_and_only_if_somebody_asks():
    ledger, why = Ledger(5), Counted()
    id = ledger.issue(np.zeros(1), np.zeros(2), why)
    ledger.answer(id, Answered(why, 0.5, "fast", "nothing unusual"))
    assert why.asked == 0
    assert ledger.explain(id) == Explanation("default", path="fast", reason="nothing unusual", error=0.5)
    ledger.copy().to_json()
    ledger.explain(id)
    assert why.asked == 1


def test_what_ran_is_given_as_a_copy():
    ledger = Ledger(5)
    (id,) = issue(ledger)
    ledger.answer(id, Explanation("hint", path="fast", error=0.5, ran={"pool": 8}))
    ledger.explain(id).ran["pool"] = 9
    assert ledger.explain(id).ran == {"pool": 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data, _: data.update(size=0), "ledger.size must be a whole number from 1"),
        (lambda data, _: data.update(issued=-1), "ledger.issued must be a whole number"),
        (lambda data, _: data["pending"].append(data["pending"][0]), "must have every id once"),
        (lambda data, _: data["answered"].append(["s1", data["answered"][0][1]]), "wait and were answered"),
        (lambda data, _: data["pending"][0].__setitem__(0, "s9"), "below s2, got 's9'"),
        (lambda data, _: data["pending"][0].__setitem__(0, 7), "below s2, got 7"),
        (lambda data, _: data.update(size=1, pending=data["pending"] * 2), "a list of at most 1"),
        (lambda data, _: data["pending"][0][1].pop("ran"), "must have the fields"),
        (lambda data, _: data["pending"][0][1].update(predicted="x"), "predicted must be a finite number"),
        (lambda data, _: data["pending"][0][1].update(slots=[-1]), "slots must be a whole number from 0"),
        (lambda data, _: data["pending"][0][1].update(path="quick"), "path is of another kind: 'quick'"),
        (lambda _, arrays: arrays.update(points=np.full((1, 2), 1.5)), "'points' must hold numbers from 0 to 1"),
        (lambda _, arrays: arrays.update(contexts=np.zeros((2, 1))), "'contexts' must have the shape"),
    ],
)
def test_a_record_that_no_ledger_would_write_is_refused(change, message):
    ledger = Ledger(5)
    issue(ledger, 2)
    ledger.answer("s0", Explanation("hint", path="fast", error=0.5))
    data, arrays = json.loads(json.dumps(ledger.to_json())), ledger.state(dim=2, context_dim=1)
    change(data, arrays)
    with pytest.raises((InvalidValue, SnapshotError), match=message):
        Ledger.rebuild(data, arrays, 2, 1)
