"""The manifests are valid and match the services: settings, ports, probes, commands, selectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import kustomized
import pytest
import yaml
from kustomized import RENDERED, SEVERAL, Object, containers, objects, of_kind, one, variables, workloads
from typer.main import get_command
from typer.testing import CliRunner

from strandline import __version__
from strandline.cli.app import app
from strandline.cli.durations import read_duration
from strandline.console.settings import ConsoleSettings
from strandline.controller.settings import ControllerSettings, StoreKind
from strandline.node.settings import ReplicaSettings
from strandline.rpc.channels import parse_endpoint
from strandline.rpc.server import LIVENESS, READINESS
from strandline.runtime.malloc import MMAP_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES
from strandline.runtime.settings import PREFIX, ServiceSettings, load_settings

pytestmark = kustomized.needs_kubectl


KINDS: dict[str, type[ServiceSettings]] = {
    "controller": ControllerSettings,
    "replica": ReplicaSettings,
    "console": ConsoleSettings,
}


# One per port of a pod, in everything under deploy/.
PORTS = {"clients": 9092, "internal": 9093, "health": 9094, "metrics": 9095, "console": 8080}
PORT_SETTINGS = {"clients": "bind", "internal": "internal_bind", "health": "health_bind", "metrics": "metrics_bind"}


_NODE = {
    "field:metadata.namespace": "strandline",
    "field:metadata.labels['apps.kubernetes.io/pod-index']": "2",
    "field:metadata.labels['topology.kubernetes.io/zone']": "zone-b",
}


def _environment(name: str, container: Object) -> dict[str, str]:
    """The variables as pod 2 of a namespace would have them: fields filled in, `$(NAME)` replaced as in kubelet.

    A `$(NAME)` whose name is defined later stays as it is, as with kubelet.
    """
    fields = {"field:metadata.name": f"strandline-{container['name']}-2", **_NODE}
    known: dict[str, str] = {}
    for key, value in variables(name, container).items():
        known[key] = re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), fields.get(value, value))
    return known


def _services(name: str) -> list[tuple[str, Object]]:
    """Role and container of every Strandline service."""
    return [(box["args"][0], box) for _, _, box in containers(name) if "args" in box and box["args"][0] in KINDS]


def _settings(name: str, box: Object) -> Any:
    """The settings of the service that runs in a container."""
    return load_settings(KINDS[box["args"][0]], flags={}, variables=_environment(name, box)).settings


def _settings_of(name: str, role: str) -> Any:
    """The settings of the only service of this role."""
    (box,) = [box for each, box in _services(name) if each == role]
    return _settings(name, box)


def _member(name: str) -> Object:
    """The container of a member of etcd."""
    (box,) = [box for _, _, box in containers(name) if box["name"] == "etcd"]
    return box


@pytest.mark.parametrize("name", RENDERED)
def test_every_variable_is_a_setting(name: str) -> None:
    """A variable that belongs to no setting would be set and never read."""
    assert len(_services(name)) >= 2
    for role, box in _services(name):
        ours = [key for key in variables(name, box) if key.startswith(PREFIX)]
        assert [key for key in ours if key.removeprefix(PREFIX).lower() not in KINDS[role].own_names()] == []


@pytest.mark.parametrize("name", RENDERED)
def test_every_service_starts_with_what_it_is_given(name: str) -> None:
    """The variables of each pod make valid settings as a whole, and no reference is left in them."""
    for role, box in _services(name):
        environment = _environment(name, box)
        assert [value for value in environment.values() if "$(" in value] == []
        load_settings(KINDS[role], flags={}, variables=environment)


@pytest.mark.parametrize("name", RENDERED)
def test_a_node_is_its_pod(name: str) -> None:
    """Id from the ordinal, addresses from the pod's name behind the headless Service, rack from the zone."""
    settings = _settings_of(name, "replica")
    stateful = one(name, "StatefulSet", "strandline-replica")
    governing = stateful["spec"]["serviceName"]

    assert settings.node_id == 2
    assert settings.rack == "zone-b"
    assert settings.advertise == f"strandline-replica-2.{governing}.strandline.svc:{PORTS['clients']}"
    assert settings.internal_advertise == f"strandline-replica-2.{governing}.strandline.svc:{PORTS['internal']}"


@pytest.mark.parametrize("name", RENDERED)
def test_nodes_dial_the_controllers_port_for_nodes(name: str) -> None:
    """The nodes' controllers are all pods of controllers behind their headless Service, at their internal port."""
    settings = _settings_of(name, "replica")
    dialled = [f"{pod}.strandline.svc:{PORTS['internal']}" for pod in kustomized.pods_of(name, "strandline-controller")]

    assert list(settings.controllers) == dialled
    assert len(dialled) == (3 if name in SEVERAL else 1)


@pytest.mark.parametrize("name", SEVERAL)
def test_a_controller_is_its_pod(name: str) -> None:
    """Id and both addresses are the pod's own, never a Service's, which would answer for a controller that is gone."""
    settings = _settings_of(name, "controller")
    own = kustomized.pods_of(name, "strandline-controller")[2]

    assert settings.store is StoreKind.ETCD
    assert settings.controller_id == "strandline-controller-2"
    assert settings.advertise == f"{own}.strandline.svc:{PORTS['clients']}"
    assert settings.internal_advertise == f"{own}.strandline.svc:{PORTS['internal']}"


@pytest.mark.parametrize("name", SEVERAL)
def test_controllers_know_every_member_of_etcd(name: str) -> None:
    """Endpoints, members and the addresses that a member is given are the pods of one StatefulSet, with one scheme."""
    settings = _settings_of(name, "controller")
    pods, member = kustomized.pods_of(name, "strandline-etcd"), _environment(name, _member(name))
    scheme = "https" if settings.etcd_ca else "http"
    ports = {port["name"]: port["containerPort"] for port in _member(name)["ports"]}

    assert list(settings.etcd_endpoints) == [f"{pod}:{ports['etcd']}" for pod in pods]
    assert member["ETCD_INITIAL_CLUSTER"].split(",") == [
        f"{pod.partition('.')[0]}={scheme}://{pod}:{ports['etcd-peers']}" for pod in pods
    ]
    assert member["ETCD_NAME"] == "strandline-etcd-2"
    assert member["ETCD_ADVERTISE_CLIENT_URLS"] == f"{scheme}://{pods[2]}:{ports['etcd']}"
    assert member["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == f"{scheme}://{pods[2]}:{ports['etcd-peers']}"
    assert member["ETCD_LISTEN_CLIENT_URLS"] == f"{scheme}://0.0.0.0:{ports['etcd']}"
    assert member["ETCD_LISTEN_PEER_URLS"] == f"{scheme}://0.0.0.0:{ports['etcd-peers']}"
    assert member["ETCD_LISTEN_METRICS_URLS"] == f"http://0.0.0.0:{ports['metrics']}"
    assert (scheme == "https") == (name == "production")


@pytest.mark.parametrize("name", SEVERAL)
def test_a_member_without_a_majority_is_not_restarted(name: str) -> None:
    """Readiness needs a leader, liveness does not; what controllers free is freed in etcd too."""
    box = _member(name)

    assert box["readinessProbe"]["httpGet"] == {"path": "/health", "port": "metrics"}
    assert "httpGet" not in box["livenessProbe"] and box["livenessProbe"]["tcpSocket"] == {"port": "metrics"}
    assert _environment(name, box)["ETCD_AUTO_COMPACTION_RETENTION"] == "30m"
    assert _environment(name, box)["ETCD_AUTO_COMPACTION_MODE"] == "periodic"


def test_an_etcd_that_is_there_already_is_used(tmp_path: Path) -> None:
    """Without the component etcd nothing of it is made, and controllers use the endpoints that an overlay gives."""
    up = kustomized.upward(str(tmp_path))
    settings = {"name": "strandline-controller-settings", "behavior": "merge"}
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "strandline",
        "resources": [str(up / "overlays" / "local")],
        "components": [str(up / "components" / "controllers")],
        "configMapGenerator": [{**settings, "literals": ["STRANDLINE_ETCD_ENDPOINTS=etcd.example:2379"]}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content))
    made = kustomized.render(tmp_path.resolve())
    (given,) = [each["data"] for each in made if each["metadata"]["name"].startswith(settings["name"])]

    assert not any("etcd" in each["metadata"]["name"] for each in made)
    assert (given["STRANDLINE_STORE"], given["STRANDLINE_ETCD_ENDPOINTS"]) == ("etcd", "etcd.example:2379")


@pytest.mark.parametrize("name", RENDERED)
def test_ports_are_those_of_the_settings(name: str) -> None:
    """Each port that a container names is the one that its service binds, with the same number everywhere."""
    for role, box in _services(name):
        settings = _settings(name, box)
        for port in box["ports"]:
            setting = "bind" if role == "console" and port["name"] == "console" else PORT_SETTINGS[port["name"]]
            bound = parse_endpoint(getattr(settings, setting))
            assert (port["containerPort"], bound.port) == (PORTS[port["name"]], PORTS[port["name"]])
            assert bound.host == "0.0.0.0"


@pytest.mark.parametrize("name", RENDERED)
def test_probes_ask_what_the_health_port_answers(name: str) -> None:
    """A probe of a name that no service registers always fails; one of another port meets TLS."""
    for _, box in _services(name):
        probes = {
            kind: box[kind]["grpc"] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in box
        }
        assert {"livenessProbe", "readinessProbe"} <= set(probes)
        assert {probe["port"] for probe in probes.values()} == {PORTS["health"]}
        assert probes["livenessProbe"]["service"] == LIVENESS
        assert probes["readinessProbe"]["service"] == READINESS
        assert probes.get("startupProbe", {"service": LIVENESS})["service"] == LIVENESS


@pytest.mark.parametrize("name", RENDERED)
def test_commands_exist(name: str) -> None:
    """Every command line that a container or a hook gives to `strandline` is a command with help."""
    for box in (box for _, _, box in containers(name) if box["name"] != "etcd"):
        _assert_command(box["args"])
        hook = box.get("lifecycle", {}).get("preStop")
        if hook:
            program, *words = hook["exec"]["command"]
            assert program == "strandline"
            _assert_command(words)


@pytest.mark.parametrize(
    ("overlay", "components"), [("local", ["scale-in"]), ("production", ["scale-in", "scale-in-tls"])]
)
def test_scaling_in_empties_the_node_that_the_overlay_names(
    overlay: str, components: list[str], tmp_path: Path
) -> None:
    """The Job drains that node at that rate, then waits until no move runs; with TLS as the administrator."""
    up = kustomized.upward(str(tmp_path))
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "strandline",
        "resources": [str(up / "overlays" / overlay)],
        "components": [str(up / "components" / component) for component in components],
        "configMapGenerator": [kustomized.SCALE_IN],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content))
    made = {(each["kind"], each["metadata"]["name"]): each for each in kustomized.render(tmp_path.resolve())}
    pod = made["Job", kustomized.SCALE_IN["name"]]["spec"]["template"]["spec"]
    (drain,), (wait,) = pod["initContainers"], pod["containers"]
    given = made["ConfigMap", drain["envFrom"][0]["configMapRef"]["name"]]["data"]
    known = given | {entry["name"]: entry["value"] for entry in drain["env"]}
    secrets = [volume["secret"]["secretName"] for volume in pod.get("volumes", ())]

    words = [re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], word) for word in drain["args"]]
    assert words == ["node", "drain", "3", "--throttle", "50MB", "--yes"]
    assert wait["args"][:3] == ["reassign", "status", "--watch"]
    assert wait["env"] == drain["env"] and wait["image"] == drain["image"] == f"strandline:{__version__}"
    assert parse_endpoint(known["STRANDLINE_BOOTSTRAP"].split(",")[0]).port == PORTS["clients"]
    assert (known.get("STRANDLINE_TLS_CERT"), secrets) == (
        ("/etc/strandline/tls/tls.crt", ["strandline-admin-tls"]) if overlay == "production" else (None, [])
    )


def _assert_command(words: list[str]) -> None:
    command: Any = get_command(app)
    path = []
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
        path.append(word)
    assert path, words
    options = {option for parameter in command.params for option in parameter.opts}
    assert [word for word in words[len(path) :] if word.startswith("--") and word not in options] == []
    assert CliRunner().invoke(app, [*path, "--help"]).exit_code == 0


@pytest.mark.parametrize("name", RENDERED)
def test_a_pod_has_time_to_leave(name: str) -> None:
    """The grace period covers the hook's longest wait, the controlled shutdown and the last flush, with a margin."""
    (box,) = [box for role, box in _services(name) if role == "replica"]
    words = box["lifecycle"]["preStop"]["exec"]["command"]
    hook_s = read_duration(words[words.index("--deadline") + 1]).s
    farewell_s = int(variables(name, box)["STRANDLINE_SHUTDOWN_DEADLINE_MS"]) / 1000
    flush_s = 10.0
    spec = one(name, "StatefulSet", "strandline-replica")["spec"]["template"]["spec"]

    assert "--self" in words
    assert hook_s + farewell_s + flush_s < spec["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("name", RENDERED)
def test_malloc_is_set_whole(name: str) -> None:
    """Both thresholds of malloc are set, or neither, to the values that the services set for themselves."""
    for _, box in _services(name):
        found = {key: value for key, value in variables(name, box).items() if key.startswith("MALLOC_")}
        if found:
            assert found == {
                "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
                "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD_BYTES),
            }


@pytest.mark.parametrize("name", RENDERED)
def test_plaintext_is_asked_for_by_name(name: str) -> None:
    """TLS, or the option `insecure`: nothing here relies on the default; never both for a node."""
    for _, box in _services(name):
        settings = _settings(name, box)
        assert bool(settings.tls_cert) != settings.insecure


@pytest.mark.parametrize("name", ["tls", "production"])
def test_certificates_lie_where_the_settings_look(name: str) -> None:
    """The three paths of node 2 and of the controller are files of a Secret, mounted whole and not by subPath."""
    for role, box in _services(name):
        settings = _settings(name, box)
        (mount,) = [each for each in box["volumeMounts"] if each["name"] == "tls"]
        spec = one(name, "StatefulSet", f"strandline-{role}")["spec"]["template"]["spec"]
        (volume,) = [each for each in spec["volumes"] if each["name"] == "tls"]
        held = (
            {item["path"] for source in volume["projected"]["sources"] for item in source["secret"]["items"]}
            if "projected" in volume
            else {"tls.crt", "tls.key", "ca.crt"}
        )

        assert "subPath" not in mount and "subPathExpr" not in mount
        paths = [settings.tls_cert, settings.tls_key, settings.tls_ca]
        assert {str(Path(path).relative_to(mount["mountPath"])) for path in paths} <= held


def test_certificates_have_the_names_that_are_dialled() -> None:
    """Each process's certificate of the production overlay names the host that others use, and its identity."""
    settings = _settings_of("production", "replica")
    node = one("production", "Certificate", "strandline-replica-2")["spec"]
    controller = one("production", "Certificate", "strandline-controller")["spec"]

    assert parse_endpoint(settings.advertise).host in node["dnsNames"]
    assert {parse_endpoint(each).host for each in settings.controllers} <= set(controller["dnsNames"])
    assert "strandline" in controller["dnsNames"]
    assert node["uris"] == ["strandline://strandline/replica/2"]
    assert node["secretName"] == "strandline-replica-2-tls"


def test_members_of_etcd_accept_peers_behind_masquerading() -> None:
    """With TLS a peer has to have a certificate, and may come from another address than the certificate names."""
    member = _environment("production", _member("production"))

    assert member["ETCD_PEER_CLIENT_CERT_AUTH"] == "true"
    assert member["ETCD_EXPERIMENTAL_PEER_SKIP_CLIENT_SAN_VERIFICATION"] == "true"


def test_certificates_of_etcd_are_of_an_authority_of_their_own() -> None:
    """Members have the names that controllers and members dial; no certificate of a client or a node opens etcd."""
    (box,) = [box for role, box in _services("production") if role == "controller"]
    settings = _settings("production", box)
    spec = one("production", "StatefulSet", "strandline-controller")["spec"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "etcd-client"]
    (mount,) = [each for each in box["volumeMounts"] if each["name"] == "etcd-client"]
    members = one("production", "Certificate", "strandline-etcd")["spec"]
    controllers = one("production", "Certificate", "strandline-etcd-client")["spec"]
    issuers = {
        each["metadata"]["name"]: each["spec"]["issuerRef"]["name"] for each in of_kind("production", "Certificate")
    }
    member = _environment("production", _member("production"))
    held = {f"{mount['mountPath']}/{file}" for file in ("tls.crt", "tls.key", "ca.crt")}

    assert {parse_endpoint(each).host for each in settings.etcd_endpoints} <= set(members["dnsNames"])
    assert {settings.etcd_cert, settings.etcd_key, settings.etcd_ca} == held
    assert volume["secret"]["secretName"] == controllers["secretName"]
    assert (member["ETCD_CLIENT_CERT_AUTH"], member["ETCD_PEER_CLIENT_CERT_AUTH"]) == ("true", "true")
    assert {name for name, issuer in issuers.items() if issuer == "strandline-etcd"} == {
        "strandline-etcd",
        "strandline-etcd-client",
    }


@pytest.mark.parametrize("name", RENDERED)
def test_images_are_of_this_version(name: str) -> None:
    """Applying a checkout runs the version of that checkout."""
    images = {box["image"] for _, _, box in containers(name)}

    assert f"strandline:{__version__}" in images
    assert images <= {f"{image}:{__version__}" for image in ("strandline", "strandline-analytics", "strandline-etcd")}


def test_spark_runs_the_command_of_the_batch() -> None:
    """The SparkApplication submits the arguments of the production overlay's CronJob, except one process's memory."""
    path = kustomized.ROOT / "components" / "spark-operator" / "application.yaml"
    submitted = yaml.safe_load(path.read_text())["spec"]["template"]
    (box,) = [box for _, _, box in containers("production") if box["name"] == "analytics"]

    assert ["analytics", *submitted["arguments"]] == box["args"][: box["args"].index("--memory")]
    assert submitted["mainApplicationFile"].endswith("/strandline_analytics/commands/submit.py")
    assert submitted["image"] == box["image"]


@pytest.mark.parametrize("name", RENDERED)
def test_a_changed_setting_is_a_rollout(name: str) -> None:
    """Settings are in objects whose names carry a hash of them, so a change reaches every pod by a new template."""
    for each in of_kind(name, "ConfigMap"):
        assert re.fullmatch(
            r"strandline-((controller|replica)-settings|scale-in)-[a-z0-9]{10}", each["metadata"]["name"]
        )
    assert len(of_kind(name, "ConfigMap")) == (3 if name == kustomized.EVERYTHING else 2)
    assert {each["metadata"]["name"] for each, _ in workloads(name)} >= {
        "strandline-replica",
        "strandline-controller",
    }
    assert all(each["metadata"]["name"] for each in objects(name))


# Every object that deploy/kubernetes renders is valid in Kubernetes, in the three newest minors.


def _newest_minors(count: int) -> list[str]:
    """The newest patch of each of the newest minors whose schemas are installed."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    versions = [
        tuple(map(int, path.name.removeprefix("v").partition("-")[0].split(".")))
        for path in folder.iterdir()
        if path.name.startswith("v")
    ]
    newest = {version[:2]: version for version in sorted(versions)}
    return [".".join(map(str, newest[minor])) for minor in sorted(newest)[-count:]]


MINORS = _newest_minors(3)


def test_there_are_three_minors() -> None:
    """The installed schemas are those of at least three minors."""
    assert len(MINORS) == 3


@pytest.mark.parametrize("version", MINORS)
@pytest.mark.parametrize("name", RENDERED)
def test_every_object_fits_its_schema(name: str, version: str) -> None:
    """No unknown field, no wrong type; a kind without a schema belongs to another operator, known by name."""
    found: list[Object] = [each for each in objects(name) if each["kind"] not in kustomized.FOREIGN]

    assert len(found) >= 10
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", RENDERED)
def test_every_object_says_where_it_belongs(name: str) -> None:
    """All but the namespace itself and cluster-wide ones are in the overlay's namespace, and part of Strandline."""
    for each in objects(name):
        if each["kind"] != "Namespace":
            assert each["metadata"].get("namespace") == "strandline", each["metadata"]["name"]
