"""The page at /docs: made from the OpenAPI document, without scripts, so it needs nothing off the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["page"]

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 code { font-size: 1.1rem } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-top: 1px solid #ccc }
pre { background: #f5f5f5; padding: 1rem; overflow: auto }
"""


def page(document: Mapping[str, Any]) -> str:
    """A readable page of an OpenAPI document."""
    title = escape(document["info"]["title"])
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(_schema(name, schema) for name, schema in document["components"]["schemas"].items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>{escape(document['info']['description'])}</p>"
        f'<p>As OpenAPI: <a href="/openapi.json">/openapi.json</a></p>{operations}'
        f"<h2>Schemas</h2>{schemas}</html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    asked, answered = operation.get("parameters", ()), operation["responses"].items()
    parameters = _table(
        ("Parameter", "Meaning", "Rule"),
        [(item["name"], item["description"], _rule(item["schema"])) for item in asked],
    )
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    body = f"<p>Body: {escape(_name(schema))}</p>" if schema else ""
    responses = _table(
        ("Status", "Meaning", "Schema"),
        [(status, item["description"], _names(item)) for status, item in answered],
    )
    summary = escape(operation["summary"])
    return f"<h2>{summary}: <code>{method.upper()} {escape(path)}</code></h2>{parameters}{body}{responses}"


def _table(head: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + f"</tr>{lines}</table>"


def _rule(schema: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in schema.items())


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _names(response: Mapping[str, Any]) -> str:
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    if "items" in schema:
        return "list of " + _name(schema["items"])
    return " or ".join(_name(part) for part in schema.get("anyOf", (schema,)))


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    text = escape(json.dumps(schema, indent=1))
    return f"<details><summary>{escape(name)}</summary><pre>{text}</pre></details>"
