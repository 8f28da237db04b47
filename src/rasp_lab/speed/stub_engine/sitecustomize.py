"""A server whose tuner neither thinks nor learns: what is left is the cost of the service itself.

python -m rasp_lab.speed.service_speed --server now=src --server stub=src/rasp_lab/speed/stub_engine

Python imports a module of this name at every start. It makes the checkout importable and replaces four methods.
"""

import itertools
import sys
from pathlib import Path

if "serve" in sys.argv:
    sys.path.insert(0, str(Path(__file__).parents[3]))

    from rasp_tuner.service.study.history import StudyHistory
    from rasp_tuner.tuner import Tuner
    from rasp_tuner.types import Suggestion

    def ask(tuner, context=None):
        tuner._encoder.encode_readonly(context)
        numbers = tuner.__dict__.setdefault("_numbers", itertools.count())
        return Suggestion(f"s{next(numbers)}", tuner._space.from_unit(tuner._default))

    class NoReasons:
        stop = None

    Tuner.ask = ask
    Tuner.tell = lambda *_, **__: None
    Tuner.reasons = lambda *_: NoReasons
    StudyHistory.add_step = lambda *_, **__: None
