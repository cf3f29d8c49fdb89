"""Checks the YAML documents on stdin against the schema of their program, and prints them as a JSON list.

    manifests.py none                only prints them
    manifests.py kubernetes          strictly: unknown fields are refused
    manifests.py github-workflows    or compose-spec: the schemas that check-jsonschema contains
"""

import json
import subprocess
import sys
import tempfile

from ruamel.yaml import YAML

KUBERNETES = "1.37"


def is_patch(document):
    """A manifest that is merged into the one before it with its kind and name."""
    return document["kind"] == "Deployment" and "selector" not in document["spec"]


def merged(base, patch):
    """As `kubectl patch` merges: lists by the names of their items."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merged(base.get(key), patch.get(key, base.get(key))) for key in [*base, *patch]}
    if isinstance(base, list) and isinstance(patch, list) and all("name" in item for item in patch):
        changes = {item["name"]: item for item in patch}
        return [merged(item, changes.get(item["name"], item)) for item in base]
    return patch


def complete(documents):
    whole = []
    for document in documents:
        if "kind" in document and is_patch(document):
            document = merged(whole[-1], document)
        whole.append(document)
    return whole


def kubernetes(documents):
    from kubernetes_validate import validate

    for document in documents:
        validate(document, KUBERNETES, strict=True)


def vendored(kind, text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor." + kind, file.name]
        subprocess.run(command, check=True, stdout=sys.stderr)


def main():
    kind, text = sys.argv[1], sys.stdin.read()
    documents = complete(YAML(typ="safe", pure=True).load_all(text))
    if kind == "kubernetes":
        kubernetes(documents)
    elif kind != "none":
        vendored(kind, text)
    json.dump(documents, sys.stdout, default=str)


main()
