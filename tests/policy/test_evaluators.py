"""The evaluators of a policy in Python, JavaScript and C: one answer to every context, right or wrong."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rasp_tuner import Float, Tuner
from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy import c_table
from rasp_tuner.policy.evaluate import DAYS, WEIGHTS, leaf_of, load, murmur3, params_of, pick_of, read

HERE = Path(__file__).parent
EXAMPLES_EACH = int(os.environ.get("RASP_POLICY_CONTEXTS", "200"))  # 3000 take about a minute
EXAMPLES = HERE.parents[1] / "examples/policy"
TEXTS = ["eu", "us", "other", "", "é\U0001f600", 'a "b" \\ c', "7", "-3", "0", "true", "9007199254740992", "yes"]
NUMBERS = [-1e100, -3.0, 0.0, 0.1, 7.0, 28800.0, 1e300]
FIELDS = [
    {"name": "qps", "kind": "number", "log": False},
    {"name": "kb", "kind": "number", "log": True, "missing": 4.0},
    {"name": "cached", "kind": "flag"},
    {"name": "region", "kind": "category", "values": ["eu", "us"]},
    {"name": "user", "kind": "name", "width": 8},
    {"name": "at", "kind": "time of day"},
    {"name": "day", "kind": "weekday"},
]
DEFAULT = {"pool": 8, "ratio": 0.1, "codec": "é", "fast": True, "limit": None}
SALTS = {0: "salt", 1: "", 2: "é\U0001f600", 9: 'a "b" \\ c'}  # of the policies that explore
LISTS = {"flag": ["true", "false"], "weekday": list(DAYS)}


def tree(rng, fields, depth, leaves):
    """A random tree; every kind of test occurs, and tests that no value passes."""
    if depth == 0 or not fields or rng.random() < 0.1:
        leaves.append(len(leaves))
        params = {**DEFAULT, "pool": leaves[-1], "ratio": rng.normal()}
        if rng.random() < 0.5:
            del params["codec"]  # a knob that does not exist beside the others
        return {"leaf": leaves[-1], "params": params, "settings": leaf_settings(rng, params)}
    field = fields[rng.integers(len(fields))]
    test = {"field": field["name"]}
    if field["kind"] in ("number", "time of day") and rng.random() < 0.9:
        test["at_most"] = NUMBERS[rng.integers(len(NUMBERS))]
    elif rng.random() < 0.9:
        known = LISTS.get(field["kind"], TEXTS)
        test["in"] = [text for text in known if rng.random() < 0.5]
    if rng.random() < 0.5:
        test["missing"] = True
    branches = {name: tree(rng, fields, depth - 1, leaves) for name in ("then", "else")}
    return {"if": test, **branches}


def leaf_settings(rng, params):
    """One to eight settings of a leaf; some with a weight of 0."""
    count = int(rng.integers(1, 9))
    weights = rng.multinomial(WEIGHTS, rng.dirichlet(np.full(count, 0.5))).tolist()
    return [{"params": {**params, "limit": i}, "weight": weight, "stake": 0.0} for i, weight in enumerate(weights)]


def policy(seed, fields):
    rng = np.random.default_rng(seed)
    knobs = {name: {} for name in DEFAULT}
    made = {"format": "rasp-policy", "version": 1, "context": fields, "knobs": knobs, "default": DEFAULT}
    explore = {"explore": {"version": f"v{seed}", "salt": SALTS[seed]}} if seed in SALTS else {}
    return {**made, **explore, "tree": tree(rng, fields, 6, [])}


POLICIES = [policy(seed, FIELDS) for seed in range(6)] + [policy(9, FIELDS[:1]), policy(9, [])]


class Talk:
    """A process that answers a line with a line."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def javascript(tmp_path_factory):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    file = tmp_path_factory.mktemp("policies") / "policies.json"
    file.write_text(json.dumps(POLICIES))
    talk = Talk("node", str(HERE / "driver.mjs"), (EXAMPLES / "policy.mjs").as_uri(), str(file))
    yield talk
    talk.close()


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is not installed")
    folder = tmp_path_factory.mktemp("c")
    tables = [c_table(policy, f"policy_{i}") for i, policy in enumerate(POLICIES)]
    every = ", ".join(f"&policy_{i}" for i in range(len(POLICIES)))
    (folder / "tables.h").write_text("\n".join([*tables, f"static const policy_table *const TABLES[] = {{{every}}};"]))
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{EXAMPLES}", f"-I{folder}"]
    files = [str(HERE / "driver.c"), str(EXAMPLES / "policy.c")]
    subprocess.run([compiler, *flags, *files, "-o", str(folder / "driver"), "-lm"], check=True)
    talk = Talk(str(folder / "driver"))
    yield talk
    talk.close()


MOMENTS = ["13:45", "23:59:59.25", "2026-11-17T13:45:00+01:00", "2026-11-17 08:00Z", "2024-02-29", "08:00:00"]
WRONG_MOMENTS = [
    "24:00",
    "1:00",
    "12:60",
    "2023-02-29",
    "2026-13-01T10:00",
    "0000-01-01",
    "2026-11-17T",
    "13:45x",
    "13:",
]
DAY_NAMES = ["Mon", "tuesday", "WEDN", "Su", "Sunda", "Mondays"]
texts = st.sampled_from([*TEXTS, *MOMENTS, *WRONG_MOMENTS, *DAY_NAMES, "ON", "off", "False"]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6
)
moments = st.datetimes(min_value=datetime(1, 1, 1)).map(lambda at: at.isoformat())
numbers = st.floats() | st.sampled_from(
    [*NUMBERS, -0.0, 1.0, 3.0, 6.0, 86400.0, 2.0**53, 2.0**53 + 2, math.nan, math.inf]
)
values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | texts | moments
fitting = {  # values that a field takes more often than not, so that contexts are not all wrong
    "number": st.floats(-1e6, 1e6) | st.sampled_from(NUMBERS),
    "flag": st.booleans() | st.sampled_from(["yes", "Off", 1, 0.0, None]),
    "category": texts | st.integers(-9, 9) | st.none(),
    "name": texts | st.floats(),
    "time of day": st.floats(0, 86400) | st.sampled_from(MOMENTS) | moments | st.none(),
    "weekday": st.integers(0, 6) | st.sampled_from(["Mon", "tuesday", "SUNDA", "2024-02-29"]) | moments | st.none(),
}
contexts = st.tuples(*(fitting[field["kind"]] for field in FIELDS)) | st.tuples(*(values for _ in FIELDS))


def coded(value):
    """A value as drivers read it: its type and a text."""
    if value is None:
        return "-", ""
    if isinstance(value, bool):
        return "b", value
    if isinstance(value, str):
        return "t", value
    return "n", repr(float(value)).replace("inf", "Infinity")


def line_for_c(table, context, key):
    words = [
        kind + (str(int(x)) if kind == "b" else x.encode().hex() if kind == "t" else x)
        for kind, x in map(coded, [key, *context])
    ]
    return "\t".join([str(table), *words])


def line_from_c(leaf, params, pick):
    def word(name):
        if name not in params:
            return "-"
        kind, value = coded(params[name])
        exact = f"{params[name]:.17g}" if kind == "n" else ""
        return {"-": "z", "b": f"b{value:d}" if kind == "b" else "", "n": f"n{exact}"}.get(
            kind, f"t{str(value).encode().hex()}"
        )

    first = [str(leaf), *map(word, DEFAULT)]
    params = pick.params
    chance = "-1" if pick.probability is None else f"{pick.probability:.17g}"
    return "\t".join([*first, str(pick.leaf), str(pick.setting), chance, *map(word, DEFAULT)])


common = settings(max_examples=EXAMPLES_EACH, deadline=None, suppress_health_check=[HealthCheck.too_slow])


keys = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)


@common
@given(context=contexts, table=st.integers(0, len(POLICIES) - 1), named=st.booleans(), key=keys)
def test_three_languages_give_the_same_answer(javascript, c, context, table, named, key):
    fields = POLICIES[table]["context"]
    context = context[: len(fields)]
    names = [field["name"] for field in fields] if named else None
    given = dict(zip(names, context, strict=True)) if named else list(context)
    leaf = leaf_of(POLICIES[table], given)
    number, params = -1 if leaf is None else leaf["leaf"], params_of(POLICIES[table], given)
    pick = pick_of(POLICIES[table], given, key)
    told = json.dumps({"table": table, "values": [coded(value) for value in context], "names": names, "key": key})
    assert json.loads(javascript(told)) == {"leaf": number, "params": params, "pick": pick._asdict()}
    assert c(line_for_c(table, context, key)) == line_from_c(number, params, pick)


@pytest.mark.parametrize(
    "key", [7, -3, 0.0, True, False, 2**53, 2**53 + 2, 1.5, "\ud83d", "\ud83d\ude00", "a\udc00b", []]
)
def test_python_and_javascript_agree_on_odd_keys(javascript, key):
    """Whole numbers and booleans count as their text, other numbers and things as no key."""
    told = json.dumps({"table": 7, "values": [], "names": None, "key": key})
    pick = pick_of(POLICIES[7], None, key)
    assert json.loads(javascript(told))["pick"] == pick._asdict()
    assert (pick.probability is None) == (key in (2**53 + 2, 1.5, []))


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("test", 0xBA6BD213),
        ("Hello, world!", 0xC0363E43),
        ("The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_keys_are_hashed_as_everybody_else_does(text, hashed):
    assert murmur3(text.encode()) == hashed


def test_generated_contexts_reach_many_leaves_and_the_default():
    """Else the comparison above would say little."""
    reached = set()

    @common
    @given(context=contexts)
    def reach(context):
        leaf = leaf_of(POLICIES[0], context)
        reached.add(None if leaf is None else leaf["leaf"])

    reach()
    assert None in reached
    assert len(reached) > 8


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["qps", "unknown"], ["n", "n"]),
        (["kb"], ["n"]),
        ([], []),
        (["qps", "user"], ["n", "x"]),
        (["qps", "user"], ["n", "u"]),
        (["constructor"], ["n"]),
    ],
)
def test_python_and_javascript_agree_on_names_that_are_unknown_or_left_out(javascript, names, kinds):
    values = {"n": 1.5, "x": {"an": "object"}, "u": None}
    context = {name: values[kind] for name, kind in zip(names, kinds, strict=True)}
    leaf = leaf_of(POLICIES[0], context)
    told = json.dumps({"table": 0, "values": [[kind, "1.5"] for kind in kinds], "names": names})
    assert json.loads(javascript(told))["leaf"] == (-1 if leaf is None else leaf["leaf"])
    assert (leaf is not None) == (names == ["qps", "user"] and kinds == ["n", "u"])


@common
@given(context=contexts)
def test_a_context_that_a_policy_reads_is_one_that_the_tuner_takes(context):
    kinds = {field["name"]: {key: x for key, x in field.items() if key != "name"} for field in FIELDS}
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, context=kinds)
    if leaf_of(POLICIES[0], context) is not None:
        tuner.check_context(context)
    else:
        with pytest.raises(InvalidValue):
            tuner.check_context(context)


@pytest.mark.parametrize("text", MOMENTS)
def test_moments_are_read_as_the_tuner_reads_them(text):
    (seconds,) = {read(FIELDS[5], text)}
    at = datetime.fromisoformat(text if "-" in text else f"2026-11-17T{text}")
    assert seconds == at.hour * 3600 + at.minute * 60 + at.second
    assert read(FIELDS[5], at) == seconds
    assert read(FIELDS[6], at) == DAYS[at.weekday()]


def test_a_file_that_is_no_policy_is_refused(tmp_path):
    file = tmp_path / "policy.json"
    for wrong in ({**POLICIES[0], "version": 2}, {}, [1]):
        file.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match="rasp-policy of version 1"):
            load(file)
    file.write_text(json.dumps(POLICIES[0]))
    assert params_of(load(file), {"wrong": 1}) == DEFAULT


def test_python_evaluator_needs_only_the_standard_library(tmp_path):
    (tmp_path / "evaluate.py").write_text((HERE.parents[1] / "src/rasp_tuner/policy/evaluate.py").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(POLICIES[0]))
    asked = "evaluate.params_of(evaluate.load('policy.json'))['pool']"
    code = f"import sys; sys.path.insert(0, '.'); import evaluate; print({asked}, 'numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "8 False\n"


def test_a_table_in_c_refuses_what_c_cannot_hold():
    for wrong, rule in [({"pool": 2**53 + 1}, "double"), ({"codec": "a\0b"}, "character 0")]:
        with pytest.raises(InvalidValue, match=rule):
            c_table({**POLICIES[0], "default": {**DEFAULT, **wrong}})
    with pytest.raises(InvalidValue, match="name must be a name in C"):
        c_table(POLICIES[0], "a-b")


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    """A folder as docs/POLICY.md has it, and the blocks of code on that page."""
    folder = tmp_path_factory.mktemp("documented")
    leaves = [{"leaf": i, "params": {"pool": pool}} for i, pool in enumerate((4, 40))]
    made = {
        "format": "rasp-policy",
        "version": 1,
        "context": [FIELDS[0], FIELDS[3]],
        "knobs": {"pool": {}},
        "default": {"pool": 16},
        "tree": {"if": {"field": "qps", "at_most": 500.0}, "then": leaves[0], "else": leaves[1]},
    }
    (folder / "policy.json").write_text(json.dumps(made))
    (folder / "policy_table.h").write_text(c_table(made))
    for file in EXAMPLES.iterdir():
        shutil.copy(file, folder)
    page = (HERE.parents[1] / "docs/POLICY.md").read_text()
    return folder, dict(re.findall(r"```(js|c)\n(.*?)```", page, re.DOTALL))


def test_the_javascript_in_the_docs_runs(documented):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    folder, code = documented
    (folder / "main.mjs").write_text(code["js"])
    ran = subprocess.run([node, "main.mjs"], cwd=folder, capture_output=True, text=True, check=True)
    assert ran.stdout == "40\n"


def test_the_c_in_the_docs_runs(documented):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is not installed")
    folder, code = documented
    (folder / "main.c").write_text(code["c"])
    subprocess.run([compiler, "-std=c99", "main.c", "policy.c", "-o", "main", "-lm"], cwd=folder, check=True)
    ran = subprocess.run([folder / "main"], capture_output=True, text=True, check=True)
    assert ran.stdout == "40\n"
