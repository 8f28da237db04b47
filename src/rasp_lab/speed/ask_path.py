"""The Python calls of one `ask` and one `tell`, in order: how long the path is, and through which files it goes.

python -m rasp_lab.speed.ask_path            # counts
python -m rasp_lab.speed.ask_path --list     # and every call
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import rasp_tuner
from rasp_tuner import Float, Tuner

HOME = Path(rasp_tuner.__file__).parent


def calls_of(run) -> list[str]:
    """file:function of every Python call made inside the library."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HOME):
            seen.append(f"{path.relative_to(HOME)}:{frame.f_code.co_qualname}")

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def main() -> None:
    tuner = Tuner({f"k{i}": Float(0.0, 1.0) for i in range(5)}, {"ms": "min"}, context=3)
    for t in range(60):
        s = tuner.ask([float(t // 15 % 2), 0.1 * t, 1.0])
        tuner.tell(s.id, {"ms": sum((x - 0.3) ** 2 for x in s.params.values())})
    asked = []
    for name, run in (
        ("ask", lambda: asked.append(tuner.ask([0.0, 6.0, 1.0]))),
        ("tell", lambda: tuner.tell(asked[0].id, {"ms": 0.5})),
    ):
        calls = calls_of(run)
        files = Counter(call.split(":")[0] for call in calls)
        print(f"{name}: {len(calls)} Python calls through {len(files)} files")
        if "--list" in sys.argv:
            print("\n".join(f"  {call}" for call in calls))


if __name__ == "__main__":
    main()
