import numpy as np
import pytest

from rasp_tuner.errors import InvalidValue
from rasp_tuner.screening.log import read

ROWS = "qps,codec,pool,kind,p99,fps\n1,a,4,x,10,5\n2,b,8,y,20,4\n3,a,6,x,,4\n4,c,5,y,40,1\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(ROWS)
    return path


def test_numbers_words_and_gaps(log):
    found = read(log, ["qps", "codec"], {"p99": 1.0}, ["pool", "kind"])
    assert found.names == ("qps", "codec=a", "codec=b", "codec=c")
    assert found.contexts.tolist() == [[1, 1, 0, 0], [2, 0, 1, 0], [4, 0, 0, 1]]
    assert found.points.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.25, 0.0, 1.0]]
    assert found.left_out == 1


def test_a_metric_to_be_raised_counts_against_the_loss_and_scales_do_not_matter(log):
    low = read(log, ["qps"], {"p99": 1.0}, ["pool"]).losses
    both = read(log, ["qps"], {"p99": 1.0, "fps": -1.0}, ["pool"]).losses
    assert np.all(np.diff(low) > 0.0)
    assert np.all(np.diff(both) > 0.0)
    assert both[-1] > low[-1]


@pytest.mark.parametrize(
    ("context", "metrics", "params", "said"),
    [
        (["load"], ["p99"], ["pool"], r"lacks the columns \['load'\]"),
        ([], ["p99"], ["pool"], "context must name columns"),
        (["qps"], ["codec"], ["pool"], "'codec' of .* must hold finite numbers, got 'a'"),
        (["qps"], ["p99"], ["qps"], "not two of them"),
        (["qps"], ["p99"], ["pool", "pool"], "params must name columns"),
    ],
)
def test_mistakes_are_named(log, context, metrics, params, said):
    with pytest.raises(InvalidValue, match=said):
        read(log, context, dict.fromkeys(metrics, 1.0), params)


def test_free_text_and_empty_logs_are_refused(log):
    log.write_text("id,m,p\n" + "".join(f"word{i},1,2\n" for i in range(60)))
    with pytest.raises(InvalidValue, match="at most 50 different words, got 60"):
        read(log, ["id"], {"m": 1.0}, ["p"])
    log.write_text("id,m,p\n,1,2\n")
    with pytest.raises(InvalidValue, match="no row with a value in each"):
        read(log, ["id"], {"m": 1.0}, ["p"])
    with pytest.raises(InvalidValue, match="readable CSV file"):
        read(log.parent, ["id"], {"m": 1.0}, ["p"])
