"""What `examples/operations` holds for operators: alert rules, a dashboard, an image, manifests."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kustomizing import containers, render

from rasp_tuner.cli import app

yaml = pytest.importorskip("yaml", reason="no PyYAML")
jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema")
typer = pytest.importorskip("typer")
pytest.importorskip("prometheus_client")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/operations"
MANIFESTS = sorted(set((FOLDER / "kubernetes").glob("*.yaml")) - set((FOLDER / "kubernetes").glob("kustom*")))
KUSTOMIZATIONS = [FOLDER / "kubernetes", FOLDER / "kubernetes/overlay"]
SCHEMA = json.loads(Path(__file__).with_name("kubernetes_schema.json").read_text())
VERSIONED = re.compile(r"^[\w./-]+:\d+(\.\d+)+(-[\w.-]+)?$")  # name:1.2.3-variant


def expressions():
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    yield from dashboard_expressions()


def dashboard_expressions():
    panels = json.loads((FOLDER / "grafana_dashboard.json").read_text())["panels"]
    yield from (target["expr"] for panel in panels for target in panel.get("targets", ()))


def served_names():
    """The names of all samples that /metrics may have."""
    from rasp_tuner.service.study.definition import StudyDefinition
    from rasp_tuner.service.study.live_study import LiveStudy
    from rasp_tuner.service.telemetry import GAUGES, Telemetry, study_numbers

    wire = {"name": "a", "space": {"x": {"type": "float", "low": 0, "high": 1}}, "metrics": {"y": "min"}}
    live = LiveStudy(1, StudyDefinition.from_wire(wire), 0.0)
    text = Telemetry().text(dict.fromkeys(GAUGES, 0.0), [study_numbers(live, 0.0)]).decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


@pytest.fixture(scope="module")
def promtool():
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool: install Debian's package prometheus")

    def run(*words, **options):
        return subprocess.run([program, *words], capture_output=True, text=True, check=False, **options)

    return run


def test_every_metric_in_rules_and_dashboard_is_served():
    named = {name for text in expressions() for name in re.findall(r"\brasp_\w+", text)}
    assert len(named) > 20
    assert named - served_names() == set()


def test_prometheus_takes_the_configuration_and_the_rules(promtool, tmp_path):
    for file in ("alerts.yml", "prometheus.yml"):
        shutil.copy(FOLDER / file, tmp_path)
    (tmp_path / "rasp-read-key").touch()
    checked = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_alerts_fire_where_they_should_and_nowhere_else(promtool):
    tested = promtool("test", "rules", "alerts_test.yml", cwd=FOLDER)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for group in rules["groups"] for rule in group["rules"]}


def test_expressions_of_the_dashboard_are_sound(promtool, tmp_path):
    rules = [
        {"record": f"panel:{i}", "expr": text.replace("$study", ".*")} for i, text in enumerate(dashboard_expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_is_one_that_grafana_can_load():
    board = json.loads((FOLDER / "grafana_dashboard.json").read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["description"]


def documents():
    return [document for file in MANIFESTS for document in yaml.safe_load_all(file.read_text())]


def workloads():
    return [document for document in documents() if document["kind"] in ("StatefulSet", "Deployment")]


def test_manifests_have_what_kubernetes_asks_for():
    assert len(documents()) >= 8
    for document in documents():
        assert {"apiVersion", "kind", "metadata", "spec"} <= document.keys()
        assert re.fullmatch(r"[a-z0-9-]{1,63}", document["metadata"]["name"])
    names = [(document["kind"], document["metadata"]["name"]) for document in documents()]
    assert len(set(names)) == len(names)


def wrong_fields(document):
    """What the API would refuse."""
    name = SCHEMA["kinds"][f"{document['apiVersion']}/{document['kind']}"]
    schema = {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}
    return [
        f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(document)
    ]


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda folder: folder.name)
def test_what_kustomizations_render_fits_the_schema_of_the_api(folder):
    rendered = render(folder)
    assert len(rendered) == len(documents())  # no manifest is forgotten
    for document in rendered:
        assert wrong_fields(document) == []
        assert document["metadata"]["labels"]["app.kubernetes.io/part-of"] == "rasp-tuner"


def test_the_schema_refuses_what_the_api_would():
    (server,) = (work for work in workloads() if work["metadata"]["name"] == "rasp")
    (container,) = containers([server])
    container["livenessProbe"]["periodSecond"] = 3
    container["ports"][0]["containerPort"] = "http"
    del server["spec"]["serviceName"], server["spec"]["template"]["spec"]["containers"][0]["name"]
    said = " ".join(wrong_fields(server))
    assert all(word in said for word in ("periodSecond", "'http' is not of type", "'name' is a required"))


def test_the_overlay_sets_namespace_image_and_number_of_servers():
    rendered = render(FOLDER / "kubernetes/overlay")
    assert {document["metadata"]["namespace"] for document in rendered} == {"tuning"}
    (server,) = (d for d in rendered if (d["kind"], d["metadata"]["name"]) == ("StatefulSet", "rasp"))
    assert server["spec"]["replicas"] == 5
    assert {part["image"] for part in containers([server])} == {"registry.example.com/platform/rasp-tuner:0.2.0"}


def test_selectors_find_the_pods_they_mean():
    labels = [work["spec"]["template"]["metadata"]["labels"] for work in workloads()]
    services = {document["metadata"]["name"]: document for document in documents() if document["kind"] == "Service"}
    for work in workloads():
        template = work["spec"]["template"]
        assert work["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert work["spec"]["serviceName"] in services
        mounts = {mount["name"] for container in template["spec"]["containers"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in work["spec"].get("volumeClaimTemplates", ())}
        assert mounts == claims | {volume["name"] for volume in template["spec"]["volumes"]}
    for service in services.values():
        found = [
            work
            for work in workloads()
            if service["spec"]["selector"].items() <= work["spec"]["template"]["metadata"]["labels"].items()
        ]
        ports = {
            port["name"]
            for work in found
            for part in work["spec"]["template"]["spec"]["containers"]
            for port in part["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for policy in (document for document in documents() if document["kind"] == "NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"] in labels
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_containers_run_without_root_rights_and_with_limits():
    for work in workloads():
        pod = work["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
            assert VERSIONED.match(container["image"]), container["image"]
    assert "password=" not in "".join(file.read_text() for file in MANIFESTS).replace("--from-literal=password=", "")


def test_three_servers_are_started_as_the_command_line_knows_it():
    (server,) = (work for work in workloads() if work["metadata"]["name"] == "rasp")
    assert server["spec"]["replicas"] == 3
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert options(container["args"]) <= known_options(container["args"][0])
    from rasp_tuner.service.http.routes import match_route

    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert match_route("GET", asked["path"])[0].needs == "nothing"  # without a key
        assert [f"--allow-host={header['value']}" for header in asked["httpHeaders"]] == ["--allow-host=rasp"]
    assert "--allow-host=rasp" in container["args"]


def known_options(command):
    click = typer.main.get_command(app).commands[command]
    return {word for parameter in click.params for word in parameter.opts}


def options(words):
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def test_the_image_is_pinned_small_and_without_root():
    text = re.sub(r"\\\n\s*", "", (FOLDER / "Containerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    bases = [rest.split()[0] for word, rest in lines if word == "FROM"]
    assert len(bases) == 2  # the compiler stays behind
    assert all(VERSIONED.match(base) for base in bases)
    last = [(word, rest) for word, rest in lines[[word for word, _ in lines].index("FROM", 1) :]]
    assert ("USER", "10001:10001") in last
    assert [word for word, _ in last].index("USER") < [word for word, _ in last].index("ENTRYPOINT")
    for word, rest in last:
        assert word in {"FROM", "RUN", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
        if word in ("ENTRYPOINT", "CMD"):
            json.loads(rest)  # a list: no shell between signals and the server
    started = json.loads(dict(last)["CMD"])
    assert options(started) <= known_options(started[0])
    copied = [rest.split() for word, rest in lines if word == "COPY" and "--from" not in rest]
    for *sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources)
    extras = re.search(r"'\.\[([\w,]+)\]'", text)[1].split(",")
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
