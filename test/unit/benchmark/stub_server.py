"""An HTTP server that answers like a speculating one, with the counts that a test gives it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Stub:
    """What the server says and what it was asked. ``counts[i]`` goes into the meta_info of the i-th counted request."""

    counts: list[dict[str, Any]]
    internal_states: list[Any] = field(default_factory=list)
    later_states: list[Any] | None = None
    """The states from the first counted request on."""
    finish: bool = True
    info: dict[str, Any] = field(default_factory=dict)
    token: int = 5
    """What every answer consists of; plain decoding's next best is the token after it, 2 nats behind."""
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def serve(stub: Stub) -> Iterator[Stub]:
    """Serves ``stub`` on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers = {
                "/server_info": {"internal_states": stub.internal_states, **stub.info},
                "/v1/models": {"data": [{"id": "stub"}]},
            }
            self._answer(json.dumps(answers.get(self.path, {})).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/generate":
                self._answer(b"{}")
                return
            request = json.loads(body)
            stub.asked.append(request)
            if request.get("return_logprob"):
                self._answer(json.dumps(self._with_alternatives()).encode())
                return
            name = request.get("rid") or "warm-up"
            if stub.later_states is not None and "rid" in request:
                stub.internal_states = stub.later_states
            number = int(name.rpartition("-")[2]) if "rid" in request else 0
            self._answer(b"".join(self._parts(name, stub.counts[number])))

        def _with_alternatives(self) -> dict[str, Any]:
            tokens = stub.counts[0]["completion_tokens"]
            best = [[-0.2, stub.token, None], [-2.2, stub.token + 1, None]]
            return {"output_ids": [stub.token] * tokens, "meta_info": {"output_top_logprobs": [best] * tokens}}

        def _parts(self, name: str, counts: dict[str, Any]) -> Iterator[bytes]:
            tokens = counts["completion_tokens"]
            for count in (1, tokens):
                meta = {"id": name, **counts, "completion_tokens": count, "finish_reason": None}
                if count == tokens and stub.finish:
                    meta["finish_reason"] = {"type": "stop"}
                part = {"text": "x" * count, "output_ids": [stub.token] * count, "meta_info": meta}
                yield b"data: " + json.dumps(part).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
