"""Small PDFs that tests write themselves: pages of text, a title, links; and ones that are encrypted, or cost much to read."""

import io
import zlib
from collections.abc import Sequence

from pypdf import PdfReader, PdfWriter


def pdf(*pages: str, title: str | None = None, links: Sequence[str] = (), unpacked: int = 0) -> bytes:
    """A PDF with these pages, of one line each; the first links to `links`. `unpacked`: spaces that its first page unpacks to."""
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /Lang (en-GB) >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< >>" if title is None else f"<< /Title ({title}) >>".encode(),
    ]
    for number, text in enumerate(pages):
        found = "".join(
            f"<< /Type /Annot /Subtype /Link /Rect [0 0 9 9] /A << /S /URI /URI ({link}) >> >>" for link in links
        )
        own = f"/Annots [{found}]" if number == 0 else ""
        head = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {6 + 2 * number} 0 R {own} "
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() + (b" " * unpacked if number == 0 else b"")
        objects += [head.encode() + b"/Resources << /Font << /F1 3 0 R >> >> >>", _stream(content)]
    return _file(objects)


def encrypted(body: bytes, password: str) -> bytes:
    """The same PDF, which needs this password to be read; with an empty one every reader can."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(body)))
    writer.encrypt(password, owner_password="owner", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def slow(pages: int) -> bytes:
    """A PDF whose pages each draw one form thousands of times, which takes seconds to read."""
    kids = " ".join("3 0 R" for _ in range(pages))
    return _file(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            f"<< /Type /Pages /Count {pages} /Kids [{kids}] >>".encode(),
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 5 0 R /Resources << /XObject << /X 6 0 R >> >> >>",
            b"<< >>",
            _stream(b"/X Do " * 4000),
            _stream(
                b"BT /F1 12 Tf " + b"(word) Tj " * 500 + b"ET",
                "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << >>",
            ),
        ]
    )


def _stream(content: bytes, more: str = "") -> bytes:
    packed = zlib.compress(content, 9)
    return f"<< /Length {len(packed)} /Filter /FlateDecode {more} >>\nstream\n".encode() + packed + b"\nendstream"


def _file(objects: Sequence[bytes]) -> bytes:
    """A PDF of these objects: the catalogue is the first, the facts are the fourth."""
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{len(body)}\n%%EOF\n".encode()
    return body + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + trailer
