"""The OpenAPI document is true: schemathesis asks what it allows and what it forbids."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from server.serving import serving
from strict_html import Page
from timeouts import HANG_SECONDS
from toy_engine import ToyEngine

from lookback.server.app import make_app
from lookback.server.settings import Settings

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
    negative_data_rejection,
)


ENGINE = ToyEngine()
schema = schemathesis.openapi.from_dict(make_app(ENGINE, Settings()).openapi())


@pytest.fixture(scope="module")
def address():
    with serving(ENGINE) as client:
        yield f"{client.base_url}".rstrip("/")


@schema.parametrize()
@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
def test_answers_are_as_the_document_says(case, address):
    case.call_and_validate(base_url=address, checks=CHECKS, timeout=HANG_SECONDS)


def test_the_page_of_the_api_fetches_nothing(address):
    page = httpx.get(f"{address}/docs", timeout=HANG_SECONDS).text
    Page(page)
    for path in schema.raw_schema["paths"]:
        assert f"{path}</code>" in page
    assert "best_of" in page
    assert "//cdn" not in page
    assert "<script" not in page
