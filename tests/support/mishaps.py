"""Twenty-five and more mistakes and mishaps of a person who crawls: the sites that they need, the commands, and how they have to end."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.pages import Page, Pages, html, moved

_NO_TYPE: Final = {"Content-Type": "text/html"}


@dataclass
class Town:
    """Sites on loopback in which everything goes wrong, and a folder with files."""

    folder: Path
    urls: dict[str, str] = field(default_factory=dict)

    def file(self, name: str, text: str) -> str:
        """A file with this text."""
        path = self.folder / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Mishap:
    """A command that cannot work, or not as it was meant."""

    name: str
    command: Callable[[Town], list[str]]
    code: int
    says: tuple[str, ...]
    """What its last lines have to name: the cause, and the next step."""
    environment: Callable[[Town], dict[str, str]] = lambda _: {}
    slow: bool = False
    """It waits for real time-outs: run only as a process, by `make accept`."""


SITES: Final[dict[str, dict[str, Page]]] = {
    "robots_500": {"/robots.txt": Page(b"", 500), "/": html()},
    "robots_slow": {"/robots.txt": Page(b"", 200, delay=60), "/": html()},
    "robots_no": {"/robots.txt": Page(b"User-agent: *\nDisallow: /\n"), "/": html()},
    "missing": {},
    "forbidden": {"/": Page(b"", 403)},
    "busy": {"/": Page(b"", 429, {"Retry-After": "3600"})},
    "login": {"/": moved("/login?next=/"), "/login?next=/": html()},
    "basic": {"/": Page(b"", 401, {"WWW-Authenticate": "Basic realm=x"})},
    "circle": {"/": moved("/a"), "/a": moved("/")},
    "away": {"/": html("/away"), "/away": moved("http://elsewhere.test/")},
    "pdf": {"/": Page(b"%PDF-1.4", 200, {"Content-Type": "application/pdf"})},
    "alone": {"/": html()},
    "empty": {"/": Page(b"", 200, _NO_TYPE)},
    "broken": {"/": Page(b"", 500)},
    "deep": {"/": html("/animals"), "/animals": html("/dogs"), "/dogs": html("/poodles"), "/poodles": html()},
    "slow": {"/": html(*(f"/{n}" for n in range(40)))} | {f"/{n}": html() for n in range(40)},
}


@contextmanager
def town(folder: Path) -> Iterator[Town]:
    """Serve all of it."""
    made = Town(folder)
    with ExitStack() as stack:
        for name, answers in SITES.items():
            made.urls[name] = stack.enter_context(Pages(answers)).url("/", "127.0.0.1")
        plain = stack.enter_context(Pages({"/": html()}))
        made.urls["no_tls"] = f"https://127.0.0.1:{plain.port}/"
        made.urls["self_signed"] = f"https://127.0.0.1:{stack.enter_context(_self_signed(folder))}/"
        made.urls["name_server"] = stack.enter_context(_no_names())
        with socket.create_server(("127.0.0.1", 0)) as listening:
            made.urls["closed"] = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        yield made


@contextmanager
def _self_signed(folder: Path) -> Iterator[int]:
    """A server whose certificate nobody has signed; its port."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    files = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([*command, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Pages({"/": html()}) as site:
        server = site._server  # its socket is wrapped before the first connection
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield site.port


@contextmanager
def _no_names() -> Iterator[str]:
    """A name server that knows no name; its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                question, sender = listening.recvfrom(512)
                if not question:
                    return
                listening.sendto(question[:2] + b"\x81\x83" + question[4:6] + bytes(6) + question[12:], sender)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        host, port = listening.getsockname()
        yield f"{host}:{port}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ending:
            ending.sendto(b"", (host, port))
        thread.join()


def crawl(site: str, *options: str) -> Callable[[Town], list[str]]:
    """Crawl one of the sites."""
    return lambda town: ["crawl", town.urls[site], "--allow-private", "--delay", "0", "--workers", "1", *options]


def plain(*arguments: str) -> Callable[[Town], list[str]]:
    """A command that needs no site."""
    return lambda _: list(arguments)


MISHAPS: Final = (
    Mishap("port closed", crawl("closed"), 1, ("refused the connection", "Start the server")),
    Mishap("https to a server without TLS", crawl("no_tls"), 1, ("speaks no TLS", "Try http://")),
    Mishap("self-signed certificate", crawl("self_signed"), 1, ("is not trusted (", "self-signed", "trust its issuer")),
    Mishap(
        "a host that does not exist",
        plain("crawl", "http://nowhere.invalid/", "--workers", "1"),
        1,
        ("there is no host called nowhere.invalid", "Check the name"),
        lambda town: {"HOLDFAST_FETCH_DNS_SERVERS": town.urls["name_server"]},
    ),
    Mishap("robots.txt answers 500", crawl("robots_500"), 1, ("robots.txt", "500", "--no-robots")),
    Mishap("robots.txt never comes", crawl("robots_slow"), 1, ("did not answer in time", "robots.txt"), slow=True),
    Mishap("robots.txt denies everything", crawl("robots_no"), 1, ("robots.txt", "Disallow: /", "--no-robots")),
    Mishap("the seed is not there", crawl("missing"), 1, ("404", "Check the URL")),
    Mishap("everything is forbidden", crawl("forbidden"), 1, ("403", "operator of the site")),
    Mishap("too many requests, for an hour", crawl("busy"), 1, ("429", "until 20", "--delay")),
    Mishap("a login wall", crawl("login"), 1, ("asks for a login", "--cookie")),
    Mishap("basic authentication", crawl("basic"), 1, ("asks for a login", "--basic-auth")),
    Mishap("redirects in a circle", crawl("circle"), 1, ("redirects in a circle", "browser")),
    Mishap("a redirect out of scope", crawl("away"), 0, ("1 page", "1  out of scope", "--scope")),
    Mishap("the seed is a PDF", crawl("pdf"), 1, ("not a web page", "application/pdf", "`--types pdf`")),
    Mishap("a page without links", crawl("alone"), 0, ("1 page", "complete", "holdfast export")),
    Mishap("a page of 0 bytes", crawl("empty"), 0, ("1 page", "complete")),
    Mishap("the server fails", crawl("broken"), 1, ("500", "again")),
    Mishap("too deep", crawl("deep", "--max-depth", "1"), 0, ("2 pages", "1  too deep", "--max-depth")),
    Mishap("enough pages", crawl("slow", "--max-pages", "5"), 0, ("Stopped at 5 pages", "--max-pages 5")),
    Mishap(
        "a private address",
        lambda town: ["crawl", town.urls["alone"].replace("127.0.0.1", "localhost"), "--workers", "1"],
        1,
        ("private", "--allow-private"),
    ),
    Mishap("an unknown option", plain("crawl", "https://example.com", "--depht", "3"), 2, ("--depht", "--max-depth")),
    Mishap("an unknown job", plain("crawl", "--job", "nothing"), 4, ("'nothing'", "`holdfast jobs list`")),
    Mishap("a bad pattern", plain("crawl", "https://example.com", "--exclude", "("), 2, ("exclude pattern", "regular")),
    Mishap("no URL", plain("crawl", "http://bad host/"), 2, ("bad host", "https://example.com")),
    Mishap(
        "seeds that are not there",
        plain("crawl", "--seeds", "no-such-file.txt"),
        2,
        ("no-such-file.txt", "Check the path"),
    ),
    Mishap("seeds that are none", lambda town: ["crawl", "--seeds", town.file("none.txt", "")], 1, ("no URLs",)),
    Mishap(
        "seeds that are all bad",
        lambda town: ["crawl", "--seeds", town.file("bad.txt", "http://bad host/\n::\n")],
        1,
        ("not a seed", "bad host"),
    ),
    Mishap(
        "no database",
        plain("crawl", "https://example.com"),
        3,
        ("127.0.0.1:1", "HOLDFAST_DATABASE_URL"),
        lambda _: {"HOLDFAST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"},
    ),
    Mishap(
        "an export that cannot be written",
        plain("export", "pages", "/proc/pages.jsonl"),
        1,
        ("/proc/pages.jsonl", "another place"),
    ),
)
