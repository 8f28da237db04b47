"""What pytest collects: modules without an example are not imported to look for one."""

from pathlib import Path

SOURCE = Path(__file__).parent / "src"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of `src`, only files with an example: the others load torch, Ray and Optuna, in every worker."""
    if collection_path.suffix == ".py" and collection_path.is_relative_to(SOURCE):
        return True if ">>>" not in collection_path.read_text(encoding="utf-8") else None
    return None
