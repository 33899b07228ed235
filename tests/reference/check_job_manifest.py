"""Checks Kubernetes manifests against the published schemas of Jobs: check_job_manifest.py FILE...

Each file must contain one Job of batch/v1, without unknown fields, that the oldest and the newest version of Kubernetes
in the package kubernetes-validate accept.
"""

import sys
from pathlib import Path

import kubernetes_validate
import yaml

VERSIONS = (kubernetes_validate.utils.all_versions()[0], kubernetes_validate.latest_version())


def faults(text: str) -> list[str]:
    """Returns what is wrong with a manifest."""
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return [f"expected one resource, found {len(documents)}"]
    kind = (documents[0].get("apiVersion"), documents[0].get("kind"))
    if kind != ("batch/v1", "Job"):
        return [f"expected a Job of batch/v1, found {kind}"]
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(documents[0], version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(str(key) for key in error.path)
            found.append(f"Kubernetes {version}: {place or 'top level'}: {error.message}")
    return found


failed = False
for path in sys.argv[1:]:
    for fault in faults(Path(path).read_text()):
        failed = True
        print(f"{path}: {fault}")
sys.exit(1 if failed or len(sys.argv) < 2 else 0)
