"""What deploy/ has for Prometheus and Grafana fits the metrics of a live server."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from octavo.server import METRICS
from rigs.running_server import serving
from rigs.tier_report import REPORT

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "octavo.json").read_text())
NAME = re.compile(r"\boctavo_[a-z_]+")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: scripts/setup_promtool.sh installs it"
)


@pytest.fixture(scope="module")
def told(model_folder):
    """What a server with tiers tells, by name."""
    with serving(model_folder, read_offload=lambda: REPORT) as server, server.client() as client:
        client.post("/v1/completions", json={"prompt": "b" * 60, "max_tokens": 3})
        return list(text_string_to_metric_families(client.get("/metrics").text))


def expressions():
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    return [rule["expr"] for rule in rules], panels, variables


def test_the_docs_list_what_a_server_tells(told):
    kinds = {metric.name: metric.kind.value for metrics in METRICS.values() for metric in metrics}
    live = {family.name + ("_total" if family.type == "counter" else ""): family.type for family in told}
    assert live == kinds


def test_names_follow_prometheus(told):
    for family in told:
        assert "_created" not in str([sample.name for sample in family.samples])
        assert all(sample.labels["model"] == "tiny" for sample in family.samples)
        assert not re.search(r"_(ms|ns|kb|mb|s)(_total)?$", family.name)
        assert not [sample for sample in family.samples if sample.exemplar]


def test_every_name_in_deploy_is_told(told):
    live = {family.name + ending for family in told for ending in ("", "_total", "_bucket", "_sum", "_count")}
    named = {name for group in expressions() for expression in group for name in NAME.findall(expression)}
    assert len(named) > 15
    assert named - live == set()


def test_panels_have_numbers_and_places_of_their_own():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@needs_promtool
def test_the_alerts_fire_when_they_should():
    ran = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yaml"],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_expressions_can_be_read(tmp_path):
    _, panels, _ = expressions()
    plain = [
        panel.replace("$__rate_interval", "5m").replace("$model", ".*").replace("$instance", ".*") for panel in panels
    ]
    rules = [{"record": f"panel:{index}", "expr": expression} for index, expression in enumerate(plain)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    for checked in (file, ALERTS):
        ran = subprocess.run(["promtool", "check", "rules", checked], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
