"""The `rasp` command; also `python -m rasp_tuner`."""

import sys


def main() -> None:
    """Run the commands, or say which extra they need."""
    try:
        from rasp_tuner.cli import app
    except ModuleNotFoundError as reason:
        if reason.name not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"rasp: the commands need {reason.name}, which is not installed: pip install 'rasp-tuner[cli]'\n"
        )
        raise SystemExit(1) from reason
    app()


if __name__ == "__main__":
    main()
