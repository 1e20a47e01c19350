"""The local server of the review page: this machine only, and only with the secret of its address.

A page of another site cannot read or edit: Host and Origin are checked (DNS rebinding), the cookie
is SameSite=strict, images and classes go by number, and no path is ever taken from a request.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from threading import Lock

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse

from bacon_gcd.config import UserError, choose
from bacon_gcd.review.corrections import Corrections, NotThereError
from bacon_gcd.review.learning import Learning

FOLDER = Path(__file__).parent
MAX_BODY = 4_000_000  # bytes: every image of a large run selected at once
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The report's stylesheet gives colors and type; the page's own comes after it.
STATIC = {
    "page.css": ("text/css", (FOLDER.parent / "report" / "page.css", FOLDER / "page.css")),
    "page.js": ("text/javascript", (FOLDER / "page.js",)),
}
Next = Callable[[Request], Awaitable[Response]]


def new_app(folder: str | Path, *, token: str, port: int) -> FastAPI:
    """The page of one run, for requests to this port that know the token."""
    desk = Desk(folder)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _guard(app, token, port)

    @app.get("/")
    def page() -> Response:
        return Response((FOLDER / "page.html").read_bytes(), media_type="text/html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in STATIC:
            raise NotThereError(name)
        kind, files = STATIC[name]
        return Response(b"\n".join(file.read_bytes() for file in files), media_type=kind)

    @app.get("/state")
    def state() -> Response:
        return JSONResponse(desk.corrections.state())

    @app.get("/image/{number}")
    def image(number: int, size: str = "small") -> Response:
        headers = {"Cache-Control": "private, max-age=3600"}
        data = desk.corrections.picture(number, size)
        return Response(data, media_type="image/jpeg", headers=headers)

    @app.post("/edit")
    async def edit(request: Request) -> Response:
        asked = await _json(request)
        return JSONResponse(await run_in_threadpool(desk.edit, asked))

    @app.get("/refit")
    def learning() -> Response:
        return JSONResponse(desk.learning.status())

    @app.post("/refit")
    async def learn(request: Request) -> Response:
        asked = await _json(request)
        return JSONResponse(await run_in_threadpool(desk.learn, asked.get("do")))

    return app


class Desk:
    """The run that lies open, and the refit that learns from it."""

    def __init__(self, folder: str | Path) -> None:
        self.lock = Lock()
        self.open(Path(folder))

    def open(self, folder: Path) -> None:
        """Take up a run, the first one or a newer result."""
        self.corrections = Corrections(folder)
        self.learning = Learning(folder)

    def edit(self, asked: Mapping[str, object]) -> dict[str, object]:
        """One correction; while a refit is under way it would be lost to the new result."""
        if self.learning.running:
            raise UserError("wait until it has learned, or stop it: corrections are closed so long")
        return self.corrections.edit(asked)

    def learn(self, what: object) -> dict[str, object]:
        """What the buttons of the refit ask for: start, stop, or open the newest result."""
        match choose("refit", str(what), ("start", "stop", "open")):
            case "start":
                self._start()
            case "stop":
                self.learning.stop()
            case "open":
                self._open_newest()
        return self.learning.status()

    def _start(self) -> None:
        with self.lock:
            if self.corrections.state()["undo"] is None:
                raise UserError("there is no correction to learn from yet")
            self.learning.start()

    def _open_newest(self) -> None:
        with self.lock:
            if (new := self.learning.newest()) is None or self.learning.running:
                raise UserError("there is no newer result yet")
            self.open(new)


async def _json(request: Request) -> dict[str, object]:
    """The body as JSON; a form of another site cannot send this type unasked."""
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind != "application/json":
        raise UserError("an edit is sent as application/json")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise UserError(f"an edit has at most {MAX_BODY} bytes")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the edit is not valid JSON") from None
    if not isinstance(value, dict):
        raise UserError("an edit is an object")
    return value


def _guard(app: FastAPI, token: str, port: int) -> None:
    """Refuse what does not come from the page itself; say errors in one line."""
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    origins = {f"http://{host}" for host in hosts}
    cookie = f"bacon_review_{port}"  # cookies know no ports: two pages must not share one

    @app.middleware("http")
    async def guard(request: Request, follow: Next) -> Response:
        response = await _answer(request, follow)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def _answer(request: Request, follow: Next) -> Response:
        if request.headers.get("host") not in hosts:
            return PlainTextResponse("wrong Host", 403)
        if request.headers.get("origin", min(origins)) not in origins:
            return PlainTextResponse("wrong Origin", 403)
        if request.url.path == "/" and _same(request.query_params.get("token"), token):
            welcome = RedirectResponse("/", 303)  # the secret leaves the address bar
            welcome.set_cookie(cookie, token, httponly=True, samesite="strict")
            return welcome
        given = request.headers.get("x-review-token") or request.cookies.get(cookie)
        if not _same(given, token):
            return PlainTextResponse("open the address that `bacon review` printed", 403)
        return await follow(request)

    @app.exception_handler(UserError)
    def mistake(_: Request, error: UserError) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(NotThereError)
    def missing(_: Request, error: NotThereError) -> Response:
        return JSONResponse({"error": f"{error}: not there"}, 404)


def _same(given: str | None, token: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), token.encode())


def serve(folder: str | Path, *, port: int, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `started` gets the address once the port is open."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}; 0 takes a free one") from None
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = new_app(folder, token=token, port=port)
    listener.listen()
    started(f"http://127.0.0.1:{port}/?token={token}")
    settings = uvicorn.Config(app, log_level="error", access_log=False, server_header=False)
    uvicorn.Server(settings).run(sockets=[listener])
