"""The peers' own code, in an environment of its own under .cache/: what do Harbor, OpenTelemetry and OpenAI's SDK say to a document?

Pinned, installed without the peers' many dependencies: their models need only pydantic and protobuf (and the SDK its HTTP client).
"""
from __future__ import annotations

import json
import os
import subprocess

from tests import pythons

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALONE = ("harbor==0.26.0", "openai==3.57.0", "opentelemetry-proto==1.45.2")
WITH = ("pydantic==2.14.4", "protobuf==7.36.2", "httpx", "httpx2", "anyio", "distro", "jiter", "sniffio")
FOLDER = os.path.join(ROOT, ".cache", "peer-models-1")
PYTHON = os.path.join(FOLDER, "bin", "python")

CHECK = r'''
import base64, json, sys

def atif(document):
    from harbor.models.trajectories import Trajectory
    Trajectory.model_validate(document)

def otel(document):
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in spans:      # OTLP has hexadecimal ids where protobuf's JSON has base64
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    parsed = json_format.Parse(json.dumps(document), ExportTraceServiceRequest())
    read = parsed.resource_spans[0].scope_spans[0].spans
    assert len(read) == len(spans) and all(len(s.trace_id) == 16 and len(s.span_id) == 8 and s.name for s in read)
    assert ExportTraceServiceRequest.FromString(parsed.SerializeToString()) == parsed

def responses(document):
    from openai.types.responses import Response
    try:
        Response.model_validate(document)
    except Exception as error:
        # What is not known is left out of the usage details; the model wants every figure.
        left = [e for e in error.errors() if not (e["type"] == "missing" and e["loc"][0] == "usage" and "details" in str(e["loc"]))]
        assert not left, left

documents = json.load(sys.stdin)
for name, document in documents:
    try:
        {"atif": atif, "otel": otel, "responses": responses}[name](document)
        print(json.dumps(None))
    except Exception as error:
        print(json.dumps("%s: %s" % (type(error).__name__, str(error)[:2000])))
'''


def why_not():
    """The reason why the models cannot be had here, or None; installs what is missing."""
    python = pythons.cached("3.13") or pythons.cached("3.12")
    if os.path.exists(os.path.join(FOLDER, "complete")):
        return None
    if not python:
        return "no Python 3.12 or 3.13, which Harbor needs"
    try:
        for words in ([python, "-m", "venv", "--clear", FOLDER],
                      [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *ALONE],
                      [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *WITH]):
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        return "the peers' packages cannot be installed: %s" % error
    open(os.path.join(FOLDER, "complete"), "w").close()
    return None


def verdicts(documents):
    """For each (format, document): None where the peer takes it, else its words."""
    done = subprocess.run([PYTHON, "-I", "-c", CHECK], input=json.dumps(documents).encode(), stdout=subprocess.PIPE, check=True,
                          timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]
