"""The files of the public suite, with what they must hold: results of other files would be of another suite."""

import hashlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write

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
    "kernel_hub/dedispersion.npz": "fd748063a86d31a638663b9a52eceed4962377fbd92f0cf7eff8dd89fcfc8c26",
    "kernel_hub/spaces.csv": "451523c27d08fcaebb52593a77361b06256b16006cf816ea6593caea6a5abb15",
    "kernel_hub/reference_scores.csv": "7febb64aab9afe05575a82b0109cb0787097f38abef9be021a5fe6e360e682b0",
    "llm_serving/measured.csv.gz": "68828c9aff3c1a8aff2caf5cf0aa781b504d9fdb5822333b481ca76deea8a964",
    "poppler/poppler.npz": "7dbdf69846d5254d657bbbaab11c5e11a7b307a120cd717a18baa6085e629978",
    "sqlite_queries/sqlite.npz": "6c748e1848bd265e781932b08987338d2669f5363214149c1f4d87ab0b0a7bfd",
}


MOST_BYTES = 16 * 2**20  # of a file
PATIENCE_S = 60.0


def check(folder: Path, expected: dict[str, str] | None = None) -> None:
    """InvalidValue if a file is missing or is another one."""
    for name, digest in (SHA256 if expected is None else expected).items():
        file = folder / name
        if not file.is_file():
            raise InvalidValue(f"{file} is not there: docs/PUBLIC.md says what the folder holds and where it is from")
        if not _is(file.read_bytes(), digest):
            raise InvalidValue(f"{file} is not the file that this suite is about: its checksum differs")


def download(address: str, folder: Path, got: Callable[[str], None]) -> int:
    """How many files were got from below an address; those that are there are kept. `got` hears of each.

    Nothing is written that has another checksum than it must have.
    """
    if not address.startswith(("http://", "https://")):
        raise InvalidValue(f"--download needs an address that starts with http:// or https://, got {show(address)}")
    count = 0
    for name, digest in SHA256.items():
        file = folder / name
        if file.is_file() and _is(file.read_bytes(), digest):
            continue
        url = f"{address.rstrip('/')}/{name}"
        try:
            with urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310  # http or https, as checked
                content = answer.read(MOST_BYTES + 1)
        except (OSError, HTTPException) as reason:
            if isinstance(reason, HTTPError):
                reason.close()  # it is an open answer, too
            raise InvalidValue(f"{url} cannot be read: {reason}. Files that came before it are kept") from reason
        if not _is(content, digest):
            raise InvalidValue(f"{url} is not the file that this suite is about: its checksum differs; not written")
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, content)
        count += 1
        got(name)
    return count


def _is(content: bytes, digest: str) -> bool:
    return hashlib.sha256(content).hexdigest() == digest
