"""The page at /docs: the OpenAPI document in tables. FastAPI's own fetches its script elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

from lookback.pages import render

EXAMPLES = {
    "/v1/chat/completions": """\
curl {address}/v1/chat/completions -H 'Content-Type: application/json' -d '{{
  "messages": [{{"role": "user", "content": [
    {{"type": "image_url", "image_url": {{"url": "data:image/png;base64,..."}}}},
    {{"type": "text", "text": "What is in the picture?"}}]}}],
  "n": 3, "lookback": {{"best_of": 25, "signals": true}}}}'""",
    "/v1/score": """\
curl {address}/v1/score -H 'Content-Type: application/json' -d '{{
  "messages": [...], "responses": ["A red cup.", "A dog."]}}'""",
    "/v1/look": """\
curl {address}/v1/look -H 'Content-Type: application/json' -d '{{
  "messages": [...], "response": "A red cup."}}'""",
    "/metrics": "curl {address}/metrics",
}


class Field(NamedTuple):
    """A row of a table."""

    name: str
    type: str
    about: str
    needed: bool


class Operation(NamedTuple):
    """One path and method."""

    method: str
    path: str
    anchor: str
    summary: str
    example: str
    parts: list[tuple[str, list[Field]]]
    answers: list[tuple[str, str]]


def reference_page(document: dict[str, Any], address: str) -> str:
    """The page.

    Args:
        document: of OpenAPI.
        address: of the server, for the examples.
    """
    operations = [
        _operation(document, path, method, about, address)
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    ]
    info = document["info"]
    return render(
        "server/docs.html",
        title=f"{info['title']} {info['version']}: the API",
        summary=info["summary"],
        address=address,
        operations=operations,
    )


def _operation(
    document: dict[str, Any], path: str, method: str, about: dict[str, Any], address: str
) -> Operation:
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
    names = _schemas(document, body.get("schema", {}).get("$ref"))
    answers = [(status, one.get("description", "")) for status, one in about["responses"].items()]
    return Operation(
        method.upper(),
        path,
        f"{method}{path}".replace("/", "-").replace("{", "").replace("}", ""),
        about.get("description") or about.get("summary", ""),
        EXAMPLES.get(path, "").format(address=address),
        [(name, _fields(document, name)) for name in names],
        answers if names else [],
    )


def _schemas(document: dict[str, Any], reference: str | None) -> list[str]:
    """A schema and all that it refers to, each once."""
    found: list[str] = []
    ahead = [reference] if reference else []
    while ahead:
        name = ahead.pop(0).rpartition("/")[2]
        if name not in found:
            found.append(name)
            ahead += _references(document["components"]["schemas"][name])
    return found


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [one for part in schema for one in _references(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if "$ref" in schema else []
    return own + [one for part in schema.values() for one in _references(part)]


def _fields(document: dict[str, Any], name: str) -> list[Field]:
    schema = document["components"]["schemas"][name]
    needed = schema.get("required", [])
    return [
        Field(key, _type(one), one.get("description", ""), key in needed)
        for key, one in schema.get("properties", {}).items()
    ]


def _type(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            kinds = [_type(one) for one in schema[key] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "enum" in schema:
        return ", ".join(f'"{one}"' for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind = str(schema.get("type", "anything"))
    return {"string": "text", "boolean": "true or false"}.get(kind, kind)
