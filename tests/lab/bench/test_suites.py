from rasp_lab.bench.runner import suites
from rasp_lab.bench.runner.suites import SWEEPS
from rasp_tuner.paper import PAPER


def test_every_constant_of_appendix_c_is_swept_around_the_papers_value():
    assert set(SWEEPS) == {"top_k", "temperature", "novelty_threshold", "doubt_share", "stay", "memory_size"}
    for name, values in SWEEPS.items():
        assert PAPER[name] in values
        assert len(set(values)) >= 3


def test_some_memory_is_small_enough_to_be_filled():
    assert min(SWEEPS["memory_size"]) < 25


def test_seeds_may_begin_anywhere_but_those_of_worlds_are_of_their_half():
    made = suites.cells("beyond", ["static"], 2, first_seed=1000)
    assert {cell.seed for cell in made} == {1000, 1001}
    assert suites.cells("worlds", ["static"], 2, first_seed=1000) == suites.cells("worlds", ["static"], 2)
