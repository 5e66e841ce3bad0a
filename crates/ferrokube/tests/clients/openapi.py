"""Requests made from the server's own OpenAPI documents: whatever is sent, the answer is no server error, has
a documented content type and fits its schema.

Arguments: the part of the documents to try (a regular expression of their paths), the number of requests an
operation, and `--coverage` for those at the edges of every field and parameter, too."""

import json
import os
import pathlib
import re
import sys
import tempfile
import urllib.request
import zlib

import schemathesis

from server import Server


@schemathesis.hook
def before_call(context, case, kwargs):
    # They do not end by themselves; watches and logs have tests of their own.
    for name in ("watch", "follow"):
        if case.query:
            case.query.pop(name, None)
    # Most made-up names are refused at once; half of them become good ones, so that more is tried.
    parameters = case.path_parameters or {}
    if "namespace" in parameters and half(parameters["namespace"]):
        parameters["namespace"] = "default"
    if "name" in parameters and half(parameters["name"]):
        parameters["name"] = "made-up"
    body = case.body if isinstance(case.body, dict) else {}
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        if half(metadata.get("name")):
            metadata["name"] = "made-up"
        if half(metadata.get("namespace")):
            metadata.pop("namespace", None)
    # Upstream answers 500 to a binding without one.
    if case.operation.path.endswith(("/binding", "/bindings")) and isinstance(body.get("target"), dict):
        body["target"]["name"] = "node"


def half(value):
    return zlib.crc32(repr(value).encode(errors="replace")) % 2 == 0


def get(server, path):
    with urllib.request.urlopen(server.url + path, context=server.tls("http/1.1")) as answer:
        return json.load(answer)


def merged(server, chosen):
    """All documents of the third version in one; what two of them describe, they describe alike."""
    paths, schemas, whole = {}, {}, None
    for name, at in get(server, "/openapi/v3")["paths"].items():
        if not re.search(chosen, name):
            continue
        whole = get(server, at["serverRelativeURL"])
        paths.update(whole["paths"])
        for name, schema in whole.get("components", {}).get("schemas", {}).items():
            known = schemas.setdefault(name, schema)
            # Which kinds an object is comes from the group that is described.
            assert described(known) == described(schema), f"{name} is described in two ways"
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            # Go writes a list that is always written and has nothing as null, which upstream does not describe.
            if field.get("type") == "array" and name in schema.get("required", []):
                field["nullable"] = True
    return {**whole, "paths": paths, "components": {**whole["components"], "schemas": schemas}}


def described(schema):
    return {k: v for k, v in schema.items() if k != "x-kubernetes-group-version-kind"}


def main(chosen=".", examples="1", *flags):
    with tempfile.TemporaryDirectory() as directory:
        server = Server()
        # The second version must be one that it takes.
        schemathesis.openapi.from_dict(get(server, "/openapi/v2"))
        document = pathlib.Path(directory, "openapi.json")
        document.write_text(json.dumps(merged(server, chosen)))
        phases = "coverage,fuzzing" if "--coverage" in flags else "fuzzing"
        os.environ["SCHEMATHESIS_HOOKS"] = "openapi"
        here = str(pathlib.Path(__file__).parent)
        os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ["PYTHONPATH"]])
        os.chdir(directory)
        return os.spawnv(os.P_WAIT, sys.executable, [
            sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", server.url,
            "--tls-verify", server.files["ca"], "--request-cert", server.files["certificate"],
            "--request-cert-key", server.files["key"], "--request-timeout", "20", "--workers", "2",
            "--seed", "1", "--phases", phases, "--max-examples", examples, "--no-shrink",
            "--continue-on-failure", "--warnings", "off", "--suppress-health-check", "all",
            # Not: that other codes are not answered (upstream documents only success), and that all that is
            # described is taken and nothing else (names and values have rules that no schema says; unknown
            # fields and parameters are ignored).
            "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance",
            # Streams, other servers behind this one, and what upstream calls a string but is none.
            "--exclude-path-regex", "/watch/|/proxy|/exec$|/attach$|/portforward$|^/.well-known/|^/openid/"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
