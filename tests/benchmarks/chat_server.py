"""A chat-completion endpoint on this machine that misbehaves as it is told."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text):
    """A chat completion as the API sends it."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


class Endpoint:
    """What the server was asked, and how it answers.

    `behave(number, prompt)` gives the answer to the number-th request: a string is sent as a
    completion's text, anything else is called with the request's handler.
    """

    def __init__(self, behave):
        self.behave = behave
        self.requests = []
        self.under_way = self.most_at_once = 0
        self.lock = threading.Lock()

    @property
    def prompts(self):
        return [request["messages"][0]["content"] for request in self.requests]


def status(code, message="busy", **headers):
    """An HTTP error."""
    return lambda handler: handler.reply(code, {"error": {"message": message}}, headers)


def begin(text, part, then):
    """A completion that stops in its head or its body, or is not begun, until the client goes.

    `then` is called when as much is sent.
    """

    def answer(handler):
        body = json.dumps(completion(text)).encode()
        start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        whole = start % len(body) + body
        head = len(whole) - len(body)
        handler.close_connection = True
        sent = {"nothing": 0, "head": head // 2, "body": head + len(body) // 2}[part]
        handler.wfile.write(whole[:sent])
        handler.wfile.flush()
        then()
        handler.rfile.read(1)  # ends when the client goes

    return answer


def raw(body, content_type="application/json", length=None):
    """Any bytes as a reply; a longer `length` than they have makes it half a reply."""

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(length or len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        handler.wfile.flush()
        handler.close_connection = True

    return answer


@contextmanager
def serve(behave):
    """Run an endpoint; gives its base URL and its record."""
    endpoint = Endpoint(behave)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, code, data, headers=()):
            body = json.dumps(data).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in dict(headers).items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request["key"] = self.headers["Authorization"]
            request["path"] = self.path
            with endpoint.lock:
                endpoint.requests.append(request)
                number = len(endpoint.requests)
                endpoint.under_way += 1
                endpoint.most_at_once = max(endpoint.most_at_once, endpoint.under_way)
            try:
                answer = endpoint.behave(number, request["messages"][0]["content"])
            finally:
                with endpoint.lock:  # before the reply: after it the client may ask the next
                    endpoint.under_way -= 1
            try:
                if isinstance(answer, str):
                    self.reply(200, completion(answer))
                else:
                    answer(self)
            except (BrokenPipeError, ConnectionResetError):  # the client did not wait
                self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # a client that went away in the middle of a request
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
