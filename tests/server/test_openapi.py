"""The OpenAPI document is true: schemathesis asks what it allows and what it forbids."""

from urllib.parse import urlsplit

import httpx
import pytest
import schemathesis
from chromium import logs, needs_chromium
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from server.exploring import wait
from server.serving import serving
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


@needs_chromium
def test_the_page_of_the_api_fetches_nothing_from_other_hosts(browser, address):
    logs(browser)
    browser.get(f"{address}/docs")
    operations = "document.querySelectorAll('.opblock').length"
    operation_count = sum(len(methods) for methods in schema.raw_schema["paths"].values())
    wait(browser, f"{operations} === {operation_count}")
    browser.find_element("css selector", "[id$=chat_completions_v1_chat_completions_post]").click()
    wait(browser, "document.body.textContent.includes('best_of')")
    console, requests = logs(browser)
    assert console == []
    fetched = {urlsplit(url).netloc for url in requests if url.startswith("http")}
    assert fetched == {urlsplit(address).netloc}


def test_the_page_of_the_api_may_run_no_other_scripts(address):
    reply = httpx.get(f"{address}/docs", timeout=HANG_SECONDS)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["x-frame-options"] == "DENY"
