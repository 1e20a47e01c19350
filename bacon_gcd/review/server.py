"""The local server of the review page: this machine only, and only with the secret of its address.

A page of another site cannot read or edit: Host and Origin are checked (DNS rebinding), the cookie
is SameSite=strict, images and classes go by number, and no path is ever taken from a request.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse

from bacon_gcd.config import UserError, choose
from bacon_gcd.review.asked import NotThereError
from bacon_gcd.review.learning import Learning
from bacon_gcd.review.one_server import ServerLock, write_opener
from bacon_gcd.review.pictures import picture
from bacon_gcd.review.session import Session
from bacon_gcd.system.text import visible

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
    **{file.name: ("text/javascript", (file,)) for file in FOLDER.glob("*.js")},
}
Next = Callable[[Request], Awaitable[Response]]
Started = Callable[[str, Path | None], None]


def new_app(open_run: OpenRun, secret: Secret, *, port: int) -> FastAPI:
    """The page of a run, for requests to this port that know the secret."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _guard(app, secret, port)
    _add_errors(app)
    _add_files(app, open_run)

    @app.get("/state")
    def state() -> Response:
        return JSONResponse(open_run.session.state())

    @app.get("/changes")
    def changes(since: str) -> Response:
        return JSONResponse(open_run.session.changes(since))

    @app.get("/map")
    def places() -> Response:
        return JSONResponse(open_run.session.map())

    @app.get("/about/{number}")
    def about(number: int) -> Response:
        return JSONResponse(open_run.session.about(number))

    @app.post("/names")
    async def names(request: Request) -> Response:
        asked = await _json(request)
        return JSONResponse({"names": open_run.session.names(asked.get("images"))})

    @app.post("/edit")
    async def edit(request: Request) -> Response:
        asked = await _json(request)
        return JSONResponse(await run_in_threadpool(open_run.edit, asked))

    @app.get("/refit")
    def learning() -> Response:
        return JSONResponse(open_run.learning.status())

    @app.post("/refit")
    async def learn(request: Request) -> Response:
        asked = await _json(request)
        return JSONResponse(await run_in_threadpool(open_run.learn, asked.get("do")))

    return app


def _add_files(app: FastAPI, open_run: OpenRun) -> None:
    """The page itself, its parts, and the images of the run."""

    @app.get("/")
    def page() -> Response:
        return Response((FOLDER / "page.html").read_bytes(), media_type="text/html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in STATIC:
            raise NotThereError(name)
        kind, files = STATIC[name]
        return Response(b"\n".join(file.read_bytes() for file in files), media_type=kind)

    @app.get("/image/{number}")
    def image(number: int, size: str = "small") -> Response:
        headers = {"Cache-Control": "private, max-age=3600"}
        data = picture(open_run.session.run, number, size)
        return Response(data, media_type="image/jpeg", headers=headers)


class OpenRun:
    """The run that the page shows, and the refit that learns from it.

    Args:
        address: where this server listens; None: it takes no lock on the run.
    """

    def __init__(self, folder: str | Path, *, address: str | None = None) -> None:
        self.lock = Lock()
        self.address = address
        self.server_lock: ServerLock | None = None
        self.open(Path(folder))

    def open(self, folder: Path) -> None:
        """Show a run, the first one or a newer result; no other server may."""
        session = Session(folder)
        server_lock = ServerLock(folder, self.address) if self.address else None
        self.close()
        self.session, self.learning, self.server_lock = session, Learning(folder), server_lock

    def close(self) -> None:
        """Leave the run to other servers."""
        if self.server_lock is not None:
            self.server_lock.release()

    def edit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One correction; while a refit is under way it would be lost to the new result."""
        with self.lock:
            if self.learning.running:
                raise UserError("wait until it has learned, or stop it: no corrections meanwhile")
            session = self.session
        return session.edit(asked)

    def learn(self, what: object) -> dict[str, Any]:
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
        with self.lock, self.session.lock:
            if self.session.undo is None:
                raise UserError("there is no correction to learn from yet")
            self.learning.start()

    def _open_newest(self) -> None:
        with self.lock:
            if (new := self.learning.newest()) is None or self.learning.running:
                raise UserError("there is no newer result yet")
            self.open(new)


class Secret:
    """What a browser must know: the token of the printed address, or a code that works once."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.code = secrets.token_urlsafe(24)

    def is_token(self, given: str | None) -> bool:
        """Whether this is the token."""
        return given is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def use_code(self, given: str | None) -> bool:
        """Whether this is the code; it is worth nothing from then on."""
        if given is None or not secrets.compare_digest(given.encode(), self.code.encode()):
            return False
        self.code = secrets.token_urlsafe(24)
        return True


async def _json(request: Request) -> dict[str, Any]:
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


def _guard(app: FastAPI, secret: Secret, port: int) -> None:
    """Refuse what does not come from the page itself."""
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
        if request.url.path == "/" and (welcome := _welcome(request.query_params, secret)):
            welcome.set_cookie(cookie, secret.token, httponly=True, samesite="strict")
            return welcome
        given = request.headers.get("x-review-token") or request.cookies.get(cookie)
        if not secret.is_token(given):
            return PlainTextResponse("open the address that `bacon review` printed", 403)
        return await follow(request)


def _welcome(asked: Mapping[str, str], secret: Secret) -> Response | None:
    """For a browser that knows the token or the code: on to the page, without it in the address."""
    if secret.is_token(asked.get("token")):
        return RedirectResponse("/", 303)
    if secret.use_code(asked.get("code")):
        # After a redirect the browser would not send the new cookie: it came from another page.
        on = '<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>Review</title>'
        return HTMLResponse(on)
    return None


def _add_errors(app: FastAPI) -> None:
    """Say errors in one line, which the page shows."""

    @app.exception_handler(UserError)
    def mistake(_: Request, error: UserError) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(NotThereError)
    def missing(_: Request, error: NotThereError) -> Response:
        return JSONResponse({"error": f"{error}: not there"}, 404)

    @app.exception_handler(OSError)
    def system(_: Request, error: OSError) -> Response:
        where = f"{Path(os.fsdecode(error.filename)).name}: " if error.filename else ""
        reason = " ".join((error.strerror or str(error)).split())
        return JSONResponse({"error": visible(f"not saved: {where}{reason}")}, 507)


def serve(folder: str | Path, *, port: int, started: Started) -> None:
    """Serve until Ctrl-C.

    started: gets the address once the port is open, and a page that leads there without its secret
        standing on a command line (None where that cannot be written).
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}; 0 takes a free one") from None
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    secret = Secret()
    open_run = OpenRun(folder, address=address)
    opener = write_opener(Path(folder).absolute(), f"{address}?code={secret.code}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
    try:
        listener.listen()
        started(f"{address}?token={secret.token}", opener)
        app = new_app(open_run, secret, port=listener.getsockname()[1])
        settings = uvicorn.Config(app, log_level="error", access_log=False, server_header=False)
        uvicorn.Server(settings).run(sockets=[listener])
    finally:
        open_run.close()
        if opener is not None:
            opener.unlink(missing_ok=True)
