"""Checks the Kubernetes manifests of a server: check_serve_manifests.py FILE...

Deployments and Services are checked against the published schemas, without unknown fields, of the oldest and the newest
version of Kubernetes in the package kubernetes-validate. That package has no InferenceService of KServe: here, its fields are
those that KServe adds to a pod, and the rest is checked as a pod.
"""

import sys
from pathlib import Path

import kubernetes_validate
import yaml

VERSIONS = (kubernetes_validate.utils.all_versions()[0], kubernetes_validate.latest_version())
KINDS = {("apps/v1", "Deployment"), ("v1", "Service"), ("serving.kserve.io/v1beta1", "InferenceService")}
# The fields of a predictor that a pod does not have, as far as manifests of flagperf use them.
SCALING = {"minReplicas": int, "maxReplicas": int}


def as_pod(service: dict) -> tuple[dict, list[str]]:
    """Returns the predictor of an InferenceService as a pod, and what is wrong with the rest."""
    found = [f"unknown field {name}" for name in service.keys() - {"apiVersion", "kind", "metadata", "spec"}]
    found += [f"unknown field spec.{name}" for name in service["spec"].keys() - {"predictor"}]
    predictor = dict(service["spec"]["predictor"])
    for name, kind in SCALING.items():
        if not isinstance(predictor.pop(name, 0), kind):
            found.append(f"spec.predictor.{name} is not a number")
    if [container["name"] for container in predictor["containers"]] != ["kserve-container"]:
        found.append("KServe looks for a container that is named kserve-container")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": service["metadata"], "spec": predictor}, found


def faults(document: dict) -> list[str]:
    """Returns what is wrong with a resource."""
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind not in KINDS:
        return [f"unexpected resource {kind}"]
    found = []
    if kind[1] == "InferenceService":
        document, found = as_pod(document)
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(str(key) for key in error.path)
            found.append(f"Kubernetes {version}: {place or 'top level'}: {error.message}")
    return found


failed = False
for path in sys.argv[1:]:
    for document in yaml.safe_load_all(Path(path).read_text()):
        for fault in faults(document):
            failed = True
            print(f"{path}: {document.get('kind')}: {fault}")
sys.exit(1 if failed or len(sys.argv) < 2 else 0)
