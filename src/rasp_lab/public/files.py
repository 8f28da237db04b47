"""The files of the public suite, with what they must hold: results of other files would be of another suite."""

import hashlib
from pathlib import Path

from rasp_tuner.errors import InvalidValue

SHA256 = {
    "dlisa/batik.npz": "01470652080207f1f07c83e0bbcea2d935aa72f860542ab9cf5f6d2d93a214cf",
    "dlisa/dconvert.npz": "bc3bf75ffcb14fc37e128707b8ebba41ed14be7f236b420e18e6322878402e6e",
    "dlisa/h2.npz": "ddde63d1a3b901c5d4e5109a33dde1d5963614d2e633990f47ed55af9b099e11",
    "dlisa/jump3r.npz": "f436d3e728353fb64a25aee0c156971238cba4acda25100284745acc196ea9b4",
    "dlisa/kanzi.npz": "823bb4ab65368d72ca9a1ca2db500603ae1fd56da80b8dd304ebcf4313d94029",
    "dlisa/lrzip.npz": "9a1441db9e19c57417f9e3efb5dad1c5dde8220c40751d97cf4ebd5ea24a9624",
    "dlisa/x264.npz": "e802e8cd17d1ada0fef606c7cfe623a074eaa076839c0f72a2f913b48f969524",
    "dlisa/xz.npz": "0f4fdee03aa64e4afc53346e1779a31f8488292ed5bb61152957e9048531fe18",
    "dlisa/z3.npz": "5295067ff6205af2619fd8a52b582e205247714f33ed9a7c2bfbe02814dcc60a",
    "dlisa/printed.csv": "577c23d5ed73ea52c3758ab63ba31d5658fe901ec682a174475777d56a12d76a",
    "poppler/poppler.npz": "7dbdf69846d5254d657bbbaab11c5e11a7b307a120cd717a18baa6085e629978",
    "sqlite_queries/sqlite.npz": "6c748e1848bd265e781932b08987338d2669f5363214149c1f4d87ab0b0a7bfd",
}


def check(folder: Path, expected: dict[str, str] | None = None) -> None:
    """InvalidValue if a file is missing or is another one."""
    for name, digest in (SHA256 if expected is None else expected).items():
        file = folder / name
        if not file.is_file():
            raise InvalidValue(f"{file} is not there: docs/PUBLIC.md says what the folder holds and where it is from")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise InvalidValue(f"{file} is not the file that this suite is about: its checksum differs")
