import gzip

import pytest

from rasp_tuner import InvalidValue
from rasp_tuner.files.csv_file import read_csv


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("packed", [False, True])
def test_files_as_people_have_them(tmp_path, delimiter, start, packed):
    content = start + delimiter.join(["a", " b "]).encode() + b"\r\n1" + delimiter.encode() + b" two\n\n3\n"
    path = tmp_path / "log.csv"
    path.write_bytes(gzip.compress(content) if packed else content)
    file = read_csv(path)
    assert file.header == ["a", "b"]
    assert file.rows == [(2, ["1", "two"]), (4, ["3"])]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x1f\x8bnot gzip", None], ids=["no text", "damaged", "missing"])
def test_what_cannot_be_read_is_named(tmp_path, content):
    path = tmp_path / "log.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValue, match=r"log\.csv must be a readable CSV file"):
        read_csv(path)
