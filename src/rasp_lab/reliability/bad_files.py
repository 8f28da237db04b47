"""Files of tuners, fleets, policies and studies, and ways to change them that no checksum notices: it is made anew.

`good_files` are made by running each kind for a while. `changed` gives one with a few of its parts changed: numbers,
shapes and names of arrays, values in the header, bytes and lengths.
"""

import copy
import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rasp_lab.reliability.bad_studies import EXPORT, changed_export, export_bytes
from rasp_tuner import Bool, Categorical, Fleet, Float, Int, Metric, Tuner
from rasp_tuner.contexts import Category, Flag, TimeOfDay

PREFIX, DIGEST, LENGTH, FLEET = struct.Struct("<8sIQ"), 32, struct.Struct("<Q"), 8
TUNER, FLEET_FILE, POLICY = "tuner", "fleet", "policy"
NUMBERS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 39.0, 40.0, 41.0, 127.0, 128.0, 191.0, 192.0, 199.0, 200.0, 201.0),
    *(1e3, -1e3, 1e6, -1e6, 1e9, -1e9, 2.0**31, -(2.0**31), 2.0**32, 2.0**53, 2.0**63, -(2.0**63), 1e19, 1e30, -1e30),
    *(1e-9, 1e-30, 1e-100, 5e-324, 1e100, -1e100, 1e150, 1e200, -1e200, 1e300, -1e300, 1.7e308, -1.7e308),
    *(float("nan"), float("inf"), float("-inf")),
)
WORDS = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        64,
        1000,
        99_999,
        10**6,
        10**9,
        2**31,
        2**40,
        2**53,
        2**63,
        2**64,
        10**30,
        -(2**63),
    ),
    *(
        0.0,
        0.5,
        -0.5,
        1e-300,
        1e300,
        -1e300,
        "",
        "x",
        "min",
        "s0",
        "s999999",
        "\0",
        [],
        {},
        [0],
        [[]],
        {"x": 1},
        ["x"] * 3,
    ),
)


class File(NamedTuple):
    """The bytes of a file, and what reads it."""

    kind: str  # TUNER, FLEET_FILE, POLICY or EXPORT
    data: bytes


def good_files(without: Sequence[str] = ()) -> dict[str, File]:
    """One of each kind, by name; the same ones every time."""
    return {name: make() for name, make in _MAKERS.items() if not name.startswith(tuple(without))}


def context_for(schema: Any, rng: np.random.Generator) -> Any:
    """A context that a tuner with this schema takes."""
    if schema is None:
        return None
    if isinstance(schema, int):
        return rng.normal(size=schema).tolist()
    if not isinstance(schema, Mapping):
        return {name: float(rng.integers(3)) for name in schema}
    values = {"flag": True, "category": "b", "name": "n", "time of day": "12:30", "weekday": "Monday", "text": "words"}
    return {name: values.get(kind["kind"], 1.5) for name, kind in schema.items()}


def outcome(names: list[str], rng: np.random.Generator) -> dict[str, float]:
    """A value for each metric."""
    return {name: float(value) for name, value in zip(names, 1.0 + 9.0 * rng.random(len(names)), strict=True)}


def changed(file: File, rng: np.random.Generator) -> tuple[File, str]:
    """The file with one to three of its parts changed, and what was changed in words."""
    if file.kind == EXPORT:
        data, words = changed_export(file.data, rng, _with_a_word)
    else:
        change = {TUNER: _changed_snapshot, FLEET_FILE: _changed_fleet, POLICY: _changed_policy}[file.kind]
        data, words = change(file.data, rng)
    return File(file.kind, data), words


# -- files that are good ----------------------------------------------------------------------------------------------


def _run(tuner: Tuner, steps: int, names: list[str], failing: int = 0) -> Tuner:
    """The tuner after some steps, with two suggestions that wait; the first few fail."""
    rng, space = np.random.default_rng(0), tuner.knobs
    for step in range(steps):
        context = context_for(tuner.context_schema, rng)
        suggestion = tuner.ask(context)
        if step < failing or step % 29 == 28:
            tuner.tell_failed(suggestion.id, "crashed")
            continue
        told = outcome(names, rng)
        first = next(iter(suggestion.params.values()))
        if isinstance(first, float):
            told[names[0]] += 5.0 * (first - 0.3) ** 2 + (0.0 if context is None else 1.0)
        tuner.tell(suggestion.id, told, suggestion.params if step % 7 == 3 and space else None)
    for _ in range(2):
        tuner.ask(context_for(tuner.context_schema, rng))
    return tuner


def _tuner(steps: int, *, metrics: Any = None, failing: int = 0, frozen: bool = False, **settings: Any) -> File:
    given = {"ms": "min"} if metrics is None else metrics
    tuner = _run(Tuner(metrics=given, **settings), steps, list(given), failing)
    if frozen:
        tuner.freeze(default=True)
    return File(TUNER, tuner.to_bytes())


FLOATS = {"a": Float(0.0, 1.0), "b": Float(0.01, 10.0, log=True), "n": Int(1, 1000)}
CHOICES = {"codec": Categorical(["lz4", "zstd", "gzip"]), "level": Int(1, 5), "fast": Bool()}
MIXED = {"a": Float(0.0, 1.0), "n": Int(1, 20), "codec": Categorical(["lz4", "zstd"], ordered=True)}
CHOICE_AND_FLOAT = {"codec": Categorical(["lz4", "zstd", "gzip"]), "a": Float(0.0, 1.0)}
DEFAULTS = {"a": 0.5, "b": 1.0, "n": 8, "codec": "lz4", "level": 3, "fast": False}


def _default(space: Mapping[str, Any]) -> dict[str, Any]:
    return {name: DEFAULTS[name] for name in space}


def _policy() -> File:
    tuner = _run(
        Tuner({**FLOATS, **CHOICES}, {"ms": "min"}, ["qps", "kb"], _default({**FLOATS, **CHOICES})), 60, ["ms"]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        tuner.export(path)
        return File(POLICY, path.read_bytes())


def _fleet(steps: int, context: Any = ("qps", "kb"), **settings: Any) -> File:
    fleet, rng = Fleet(FLOATS, context=context, default=_default(FLOATS), size=9, **settings), np.random.default_rng(0)
    names = list(settings["metrics"])
    for step in range(steps):
        seen = None if context is None else rng.integers(3, size=(9, len(context))).astype(float)
        asked = fleet.ask(seen)
        told = {name: 1.0 + 9.0 * rng.random(9) + np.asarray(asked.params["a"]) for name in names}
        fleet.tell(told, failed=(np.arange(9) < 2) if step < 3 else None)
    fleet.ask(None if context is None else np.zeros((2, len(context))), which=[1, 4])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.rasp"
        fleet.save(path)
        return File(FLEET_FILE, path.read_bytes())


_TWO = {"ms": "min", "rps": Metric("max", weight=0.5)}
_LIMITED = {"ms": "min", "mb": Metric("min", weight=0.0, max=9.0), "err": Metric("min", at_most="1.05 default")}
_MAKERS: dict[str, Callable[[], File]] = {
    "new": lambda: _tuner(0, space=FLOATS, context=["qps"]),
    "early failures": lambda: _tuner(3, space=FLOATS, context=["qps"], failing=3),
    "continuous": lambda: _tuner(60, space=FLOATS, default=_default(FLOATS)),
    "continuous, context": lambda: _tuner(45, space=FLOATS, context=["qps", "kb"], default=_default(FLOATS)),
    "continuous, full": lambda: _tuner(230, space=FLOATS, context=2, default=_default(FLOATS)),
    "continuous, long context": lambda: _tuner(30, space=FLOATS, context=40),
    "two metrics": lambda: _tuner(40, space=FLOATS, context=["qps"], metrics=_TWO, default=_default(FLOATS)),
    "log": lambda: _tuner(40, space=FLOATS, metrics={"ms": Metric("min", scale="log")}, frozen=True),
    "guarded": lambda: _tuner(
        40, space=FLOATS, context=["qps"], default=_default(FLOATS), guard=0.1, switching_cost=0.5
    ),
    "limits": lambda: _tuner(30, space=FLOATS, context=["qps"], metrics=_LIMITED, default=_default(FLOATS)),
    "kinds of context": lambda: _tuner(
        40, space=FLOATS, context={"qps": "number", "region": Category(), "night": Flag(), "at": TimeOfDay()}
    ),
    "discrete": lambda: _tuner(50, space=CHOICES, default=_default(CHOICES)),
    "discrete, context": lambda: _tuner(50, space=CHOICES, context=["qps", "kb"], default=_default(CHOICES)),
    "discrete, two metrics": lambda: _tuner(40, space=CHOICES, context=["qps"], metrics=_TWO),
    "mixed": lambda: _tuner(50, space=MIXED, context=["qps"], default=_default(MIXED)),
    "a choice and a float": lambda: _tuner(40, space=CHOICE_AND_FLOAT, context=["qps"]),
    "mixed, limits": lambda: _tuner(25, space=MIXED, metrics=_LIMITED, default=_default(MIXED)),
    "constraints": lambda: _tuner(
        30, space=MIXED, context=["qps"], default=_default(MIXED), constraints=["a * n <= 12"]
    ),
    "search, continuous": lambda: _tuner(40, space=FLOATS, default=_default(FLOATS), goal="find"),
    "search, discrete": lambda: _tuner(
        40, space=CHOICES, context=["qps"], metrics=_TWO, default=_default(CHOICES), goal="find"
    ),
    "search, mixed": lambda: _tuner(40, space=MIXED, context=["qps"], default=_default(MIXED), goal="find"),
    "paper": lambda: _tuner(30, space=MIXED, context=["qps"], preset="paper", budget=None),
    "fleet": lambda: _fleet(40, metrics={"ms": "min"}),
    "fleet, two metrics": lambda: _fleet(25, metrics=_TWO, guard=0.1, switching_cost=0.5),
    "fleet, no context": lambda: _fleet(12, context=None, metrics={"ms": Metric("min", scale="log")}, budget=None),
    "policy": _policy,
    "export": lambda: File(EXPORT, export_bytes()),
}


# -- snapshots: a header, arrays, a checksum --------------------------------------------------------------------------

Arrays = list[tuple[str, np.ndarray]]  # a list: a name may come twice


def _open(data: bytes) -> tuple[dict[str, Any], Arrays]:
    _, _, length = PREFIX.unpack_from(data)
    header, at, arrays = json.loads(data[PREFIX.size : PREFIX.size + length]), PREFIX.size + length, []
    for name, shape in header.pop("arrays"):
        count = int(np.prod(shape))
        arrays.append((name, np.frombuffer(data, "<f8", count, at).reshape(shape).copy()))
        at += 8 * count
    return header, arrays


def _closed(header: Any, arrays: Arrays, table: Any = None, version: int = 1) -> bytes:
    table = [[name, list(array.shape)] for name, array in arrays] if table is None else table
    text = json.dumps({"arrays": table, **header} if isinstance(header, dict) else header).encode()
    body = PREFIX.pack(b"RASPTUNE", version, len(text)) + text + b"".join(a.astype("<f8").tobytes() for _, a in arrays)
    return signed(body)


def signed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _changed_snapshot(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Parts of what is in it, or its bytes."""
    if rng.random() < 0.06:
        return _changed_bytes(data, rng)
    header, arrays = _open(data)
    words = []
    for _ in range(1 + int(rng.integers(3)) * int(rng.integers(2))):
        change = _SNAPSHOT_CHANGES[int(rng.choice(len(_SNAPSHOT_CHANGES), p=_SNAPSHOT_ODDS))] if arrays else _header
        words.append(change(header, arrays, rng))
    if rng.random() < 0.02:
        table = _with_a_word([[name, list(array.shape)] for name, array in arrays], rng)[0]
        return _closed(header, arrays, table), f"{', '.join(words)}, table of arrays"
    return _closed(header, arrays), ", ".join(words)


def _changed_bytes(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    body = bytearray(data[:-DIGEST])
    way = int(rng.integers(3))
    if way == 0:
        del body[int(rng.integers(len(body))) :]
        return signed(bytes(body)), "cut short"
    if way == 1:
        for _ in range(1 + int(rng.integers(4))):
            body[int(rng.integers(len(body)))] = int(rng.integers(256))
        return signed(bytes(body)), "bytes"
    body[8:20] = rng.bytes(12) if rng.random() < 0.5 else struct.pack("<IQ", 1, int(rng.integers(2**63)))
    return signed(bytes(body)), "version and length of the header"


def _pick(arrays: Arrays, rng: np.random.Generator) -> int:
    """Small arrays as often as large ones."""
    return int(rng.integers(len(arrays)))


def _number(_: Any, arrays: Arrays, rng: np.random.Generator) -> str:
    filled = [i for i, (_, array) in enumerate(arrays) if array.size]
    if not filled:
        return "nothing"
    name, array = arrays[filled[int(rng.integers(len(filled)))]]
    flat = array.reshape(-1)
    at = int(rng.integers(flat.size))
    old = float(flat[at])
    near = (old + 1.0, old - 1.0, -old, 2.0 * old, 1e6 * old, float(flat[int(rng.integers(flat.size))]))
    new = float(rng.choice(near)) if rng.random() < 0.3 else float(rng.choice(NUMBERS))
    if rng.random() < 0.1:
        array[...] = new
        return f"all of {name} = {new:g}"
    flat[at] = new
    return f"{name}[{at}] = {new:g}"


def _shape(_: Any, arrays: Arrays, rng: np.random.Generator) -> str:
    i = _pick(arrays, rng)
    name, array = arrays[i]
    axis = int(rng.integers(max(array.ndim, 1)))
    ways: dict[str, Callable[[], np.ndarray]] = {
        "one row more": lambda: np.concatenate([array, array.take([-1], axis)], axis),
        "one row less": lambda: array.take(range(array.shape[axis] - 1), axis),
        "many rows": lambda: np.repeat(array, 7, axis),
        "turned": lambda: array.T,
        "flat": lambda: array.reshape(-1),
        "one axis more": lambda: array[None],
        "empty": lambda: array.reshape(-1)[:0],
        "a number": lambda: np.array(3.0),
        "no rows": lambda: np.zeros((0, *array.shape[1:])),
        "no columns": lambda: np.zeros((*array.shape[:-1], 0)),
        "endless and empty": lambda: np.zeros((0, 10**15)),
    }
    way = str(rng.choice(list(ways)))
    try:
        arrays[i] = name, ways[way]()
    except (ValueError, IndexError, np.exceptions.AxisError):
        arrays[i] = name, np.zeros(int(rng.integers(4)))
        way = "other"
    return f"{name}: {way}"


def _names(_: Any, arrays: Arrays, rng: np.random.Generator) -> str:
    i, way = _pick(arrays, rng), int(rng.integers(4))
    name, array = arrays[i]
    if way == 0:
        del arrays[i]
        return f"{name} dropped"
    if way == 1:
        arrays.append((name, array.copy()))
        return f"{name} twice"
    j = _pick(arrays, rng)
    if way == 2:
        arrays[i], arrays[j] = (name, arrays[j][1]), (arrays[j][0], array)
        return f"{name} and {arrays[j][0]} swapped"
    arrays[i] = f"{name}x", array
    return f"{name} renamed"


def _header(header: Any, _: Arrays, rng: np.random.Generator) -> str:
    new, words = _with_a_word(header, rng)
    header.clear()
    header.update(new if isinstance(new, dict) else {})
    return words


_SNAPSHOT_CHANGES = (_number, _shape, _names, _header)
_SNAPSHOT_ODDS = (0.5, 0.15, 0.1, 0.25)


def _with_a_word(value: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """JSON with one of its values changed, dropped or doubled, and where that is."""
    root = {"": copy.deepcopy(value)}
    holder: Any = root
    key: Any = ""
    place = []
    while isinstance(holder[key], dict | list) and holder[key] and (key == "" or rng.random() < 0.85):
        holder = holder[key]
        key = (
            list(holder)[int(rng.integers(len(holder)))] if isinstance(holder, dict) else int(rng.integers(len(holder)))
        )
        place.append(str(key))
    way = rng.random()
    if way < 0.1 and key != "":
        del holder[key]
        return root[""], f"{'.'.join(place)} dropped"
    if way < 0.2 and isinstance(holder, list):
        holder.append(holder[key])
        return root[""], f"{'.'.join(place)} doubled"
    old = holder[key]
    if isinstance(old, int | float) and not isinstance(old, bool) and way < 0.5:
        new: Any = [old + 1, old - 1, -old, 2 * old, 1000 * old][int(rng.integers(5))]
    else:
        new = WORDS[int(rng.integers(len(WORDS)))]
    holder[key] = copy.deepcopy(new)
    return root[""], f"{'.'.join(place)} = {str(new)[:20]}"


# -- fleets and policies ----------------------------------------------------------------------------------------------


def _changed_fleet(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    frames, at = [], FLEET
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        frames.append(data[at + LENGTH.size : at + LENGTH.size + length])
        at += LENGTH.size + length
    i, way = int(rng.integers(len(frames))), rng.random()
    if way < 0.9:
        frames[i], words = _changed_snapshot(frames[i], rng)
        return _fleet_of(frames), f"frame {i}: {words}"
    if way < 0.93:
        del frames[i]
        return _fleet_of(frames), f"frame {i} dropped"
    if way < 0.96:
        frames.insert(i, frames[int(rng.integers(len(frames)))])
        return _fleet_of(frames), f"frame {i} twice"
    if way < 0.98:
        return data[: int(rng.integers(len(data)))], "cut short"
    body = bytearray(data)
    body[FLEET : FLEET + LENGTH.size] = rng.bytes(LENGTH.size)
    return bytes(body), "length of a frame"


def _fleet_of(frames: list[bytes]) -> bytes:
    return b"RASPFLT1" + b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


def _changed_policy(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    if rng.random() < 0.1:
        return data[: int(rng.integers(len(data)))], "cut short"
    policy, words = json.loads(data), []
    for _ in range(1 + int(rng.integers(3))):
        policy, word = _with_a_word(policy, rng)
        words.append(word)
    return json.dumps(policy).encode(), ", ".join(words)
