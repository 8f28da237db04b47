"""What `kubectl kustomize` makes of a folder, as far as ours use it; a field that is not known here is an error."""

import copy

import yaml

KNOWN = {"apiVersion", "kind", "resources", "namespace", "labels", "images", "replicas"}


def render(folder):
    """The documents of a kustomization."""
    given = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert (given["apiVersion"], given["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    assert given.keys() <= KNOWN, f"not known here: {given.keys() - KNOWN}"
    documents = []
    for resource in given["resources"]:
        path = folder / resource
        documents += render(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    documents = copy.deepcopy(documents)  # anchors of YAML are shared
    for document in documents:
        if "namespace" in given:
            document["metadata"]["namespace"] = given["namespace"]
        for label in given.get("labels", ()):
            assert label.keys() == {"pairs"}  # of documents alone: selectors of a StatefulSet never change
            document["metadata"].setdefault("labels", {}).update(label["pairs"])
    for image in given.get("images", ()):
        found = [part for part in containers(documents) if part["image"].partition(":")[0] == image["name"]]
        assert found, f"no container has the image {image['name']}"
        for container in found:
            name, _, tag = container["image"].partition(":")
            container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
    for wanted in given.get("replicas", ()):
        found = [d for d in documents if d["metadata"]["name"] == wanted["name"] and "replicas" in d["spec"]]
        assert found, f"nothing to scale is called {wanted['name']}"
        for document in found:
            document["spec"]["replicas"] = wanted["count"]
    return documents


def containers(documents):
    for document in documents:
        yield from document["spec"].get("template", {}).get("spec", {}).get("containers", ())
