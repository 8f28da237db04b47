"""Policies that were cut or changed by others: an error where they are read, not a crash later."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rasp_tuner.policy import c_table
from rasp_tuner.policy.evaluate import load

EXAMPLES = Path(__file__).parents[2] / "examples/policy"

GOOD = {
    "format": "rasp-policy", "version": 1,
    "context": [{"name": "qps", "kind": "number"}, {"name": "region", "kind": "category"}],
    "default": {"pool": 8}, "knobs": {},
    "explore": {"version": "1a2b", "salt": "s"},
    "tree": {
        "if": {"field": "qps", "at_most": 5.0},
        "then": {
            "leaf": 0, "params": {"pool": 1},
            "settings": [{"params": {"pool": 1}, "weight": 9000}, {"params": {"pool": 8}, "weight": 1000}],
        },
        "else": {
            "if": {"field": "region", "in": ["eu"], "missing": True},
            "then": {"leaf": 1, "params": {"pool": 2}, "settings": [{"params": {"pool": 2}, "weight": 10000}]},
            "else": {"leaf": 2, "params": {"pool": 3}, "settings": [{"params": {"pool": 3}, "weight": 10000}]},
        },
    },
}  # fmt: skip


def changed(path, value):
    """A policy in which one thing, named by its path, is another or is missing (...)."""
    made = json.loads(json.dumps(GOOD))
    *folders, last = path.split(".")
    place = made
    for folder in folders:
        place = place[folder]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return made


TAMPERED = [
    ("context", None, "context"), ("context", ..., "context"), ("context", [1], "context"),
    ("context", [{"name": "qps", "kind": "complex"}], "context"), ("context", [{"kind": "number"}], "context"),
    ("context", [{"name": "qps", "kind": "number"}] * 2, "every name once"),
    ("default", ..., "default"), ("default", 3, "default"), ("tree", ..., "tree must be"), ("tree", [], "tree must be"),
    ("tree.then", ..., "tree.then must be"), ("tree.else.else", None, "tree.else.else must be"),
    ("tree.if", ..., "tree.if"), ("tree.if.field", "gone", "tree.if"), ("tree.if.field", [], "tree.if"),
    ("tree.if.at_most", "5", "at_most"), ("tree.if.at_most", None, "at_most"), ("tree.if.at_most", True, "at_most"),
    ("tree.else.if.at_most", 3.0, "at_most is for numbers"), ("tree.else.if.in", "eu", "else.if.in"),
    ("tree.else.if.in", [1], "else.if.in"), ("tree.else.if.missing", "no", "missing"),
    ("tree.then.params", 4, "tree.then"), ("tree.then.leaf", "0", "tree.then"), ("tree.then.leaf", ..., "tree.then"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "told"), TAMPERED)
def test_a_policy_that_somebody_has_changed_is_refused_where_it_is_read(path, value, told, tmp_path):
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(ValueError, match=rf"policy\.json: .*{told}"):
        load(file)


def test_javascript_refuses_the_same_policies(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    wrong = [changed(path, value) for path, value, _ in TAMPERED]
    (tmp_path / "wrong.json").write_text(json.dumps([GOOD, *wrong]))
    code = f"""import {{ readFileSync }} from "node:fs"; import {{ check }} from "{(EXAMPLES / "policy.mjs").as_uri()}";
    for (const one of JSON.parse(readFileSync("wrong.json"))) try {{ check(one); console.log("taken"); }}
    catch (error) {{ console.log(error.constructor.name, error.message); }}"""
    (tmp_path / "main.mjs").write_text(code)
    ran = subprocess.run([node, "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, *others = ran.stdout.splitlines()
    assert first == "taken"
    for (_, _, told), line in zip(TAMPERED, others, strict=True):
        assert line.startswith("Error ")
        assert told in line


@pytest.mark.parametrize("text", ["", "{", json.dumps(GOOD)[:-30], "[" * 100_000, "nul", "\ufeff{}"])
def test_a_file_that_was_cut_is_refused(text, tmp_path):
    file = tmp_path / "policy.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"policy\.json: "):
        load(file)


def test_values_that_are_none_at_all_are_wrong_in_c(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is not installed")
    (tmp_path / "policy_table.h").write_text(c_table({**GOOD, "knobs": {"pool": {}}}))
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "policy.h"
#include "policy_table.h"
int main(void) {
    policy_value no_text[] = {{POLICY_NUMBER, 9, 0}, {POLICY_TEXT, 0, 0}};
    policy_value no_type[] = {{POLICY_NUMBER, 9, 0}, {(policy_type)7, 0, 0}};
    policy_value right[] = {{POLICY_NUMBER, 9, 0}, {POLICY_TEXT, 0, "us"}};
    printf("%d %d %d", policy_leaf(&policy, no_text), policy_leaf(&policy, no_type), policy_leaf(&policy, right));
    return 0;
}
""")
    files = [str(tmp_path / "main.c"), str(EXAMPLES / "policy.c"), f"-I{EXAMPLES}", "-o", str(tmp_path / "main"), "-lm"]
    subprocess.run([compiler, "-std=c99", *files], check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == "-1 -1 2"
