import numpy as np
import pytest

from rasp_tuner.context_report.log import read
from rasp_tuner.errors import InvalidValue

ROWS = (
    "qps,codec,pool,kind,p99,fps,twice,twice,holes\n1,a,4,x,10,5,1,1,1\n2,b,8,y,20,4,1,1,inf\n3,a,6,x,,4,1,1,2\n"
    "4,c,5,y,40,1,1,1,3\n"
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(ROWS)
    return path


def test_numbers_words_and_gaps(log):
    found = read(log, ["qps", "codec"], {"p99": 1.0}, ["pool", "kind"])
    assert found.names == ("qps", "codec", "codec", "codec")
    assert found.contexts.tolist() == [[1, 1, 0, 0], [2, 0, 1, 0], [4, 0, 0, 1]]
    assert found.points.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.25, 1.0]]  # of two words one column is enough
    assert found.left_out == 1


def test_a_metric_to_be_raised_counts_against_the_loss_and_scales_do_not_matter(log):
    low = read(log, ["qps"], {"p99": 1.0}, ["pool"]).losses
    both = read(log, ["qps"], {"p99": 1.0, "fps": -1.0}, ["pool"]).losses
    assert np.all(np.diff(low) > 0.0)
    assert np.all(np.diff(both) > 0.0)
    assert both[-1] > low[-1]


def test_na_is_a_gap_among_numbers_and_a_word_among_words(log):
    log.write_text("qps,zip,p,m\n1,none,1,1\nNA,gzip,2,2\n3,zstd,3,NaN\n4,none,4,4\n")
    found = read(log, ["qps", "zip"], {"m": 1.0}, ["p"])
    assert found.names == ("qps", "zip")
    assert found.contexts.tolist() == [[1, 1], [4, 1]]
    assert found.left_out == 2


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffqps,p,m\n1,2,3\n4,5,6\n",
        "qps;p;m\n1;2;3\n4;5;6\n",
        "qps\tp\tm\n1\t2\t3\n4\t5\t6\n",
        ' qps , "p",m,"a, b"\n1,2,3,x\n\n4,5,6,x,too,long\n7\n',
    ],
)
def test_marks_separators_quotes_spaces_and_ragged_rows(log, text):
    log.write_text(text, encoding="utf-8")
    found = read(log, ["qps"], {"m": 1.0}, ["p"])
    assert found.contexts.tolist() == [[1], [4]]
    assert found.points.tolist() == [[0], [1]]


def test_huge_metrics_do_not_overflow(log):
    log.write_text("qps,p,m\n1,2,1e308\n2,3,-1e308\n")
    assert read(log, ["qps"], {"m": 1.0}, ["p"]).losses.tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    ("context", "metrics", "params", "said"),
    [
        (["load"], ["p99"], ["pool"], r"lacks the columns \['load'\]"),
        ([], ["p99"], ["pool"], "context must name columns"),
        (["qps"], ["codec"], ["pool"], "'codec' of .* must hold finite numbers, got 'a'"),
        (["qps"], ["p99"], ["qps"], "not two of them"),
        (["qps"], ["p99"], ["pool", "pool"], "params must name columns"),
        (["twice"], ["p99"], ["pool"], r"name each column once; these are there twice: \['twice'\]"),
        (["holes"], ["p99"], ["pool"], "'holes' of .* must hold finite numbers, got 'inf'; an empty field"),
    ],
)
def test_mistakes_are_named(log, context, metrics, params, said):
    with pytest.raises(InvalidValue, match=said):
        read(log, context, dict.fromkeys(metrics, 1.0), params)


def test_very_many_words_are_hashed(log):
    log.write_text("id,m,p\n" + "".join(f"word{i % 60},1,2\n" for i in range(120)))
    found = read(log, ["id"], {"m": 1.0}, ["p"])
    assert found.names == ("id",) * found.contexts.shape[1]
    assert found.contexts.shape[1] < 20
    assert len(np.unique(found.contexts, axis=0)) == 60


def test_empty_logs_are_refused(log):
    log.write_text("id,m,p\n,1,2\n")
    with pytest.raises(InvalidValue, match="no row with a value in each"):
        read(log, ["id"], {"m": 1.0}, ["p"])
    log.write_text("")
    with pytest.raises(InvalidValue, match="must begin with a line that names its columns"):
        read(log, ["id"], {"m": 1.0}, ["p"])
    with pytest.raises(InvalidValue, match="readable CSV file"):
        read(log.parent, ["id"], {"m": 1.0}, ["p"])
