"""The images of a page as records: one URL for each element, with what the page says of it."""

import pytest

from holdfast.model.fetch_types import FoundImage
from holdfast.parse.html import parse_page
from holdfast.parse.html_tokens import Candidate, srcset_candidates
from holdfast.parse.images import MAX_ALT, MAX_IMAGES
from holdfast.parse.page_child import as_json, from_json


def images(html: str) -> list[FoundImage]:
    return parse_page(html.encode(), content_type="text/html; charset=utf-8", images=True).found_images


@pytest.mark.parametrize(
    ("html", "chosen"),
    [
        ("<img src=a.png>", [("a.png", "img", None)]),
        ("<img src=' a.png '><img src=a.png>", [("a.png", "img", None)]),
        ("<img src=s.png srcset='a 100w, b 300w, c 200w'>", [("b", "srcset", "s.png")]),
        ("<img src=s.png srcset='a 1x, b 3x, c 2.5x'>", [("b", "srcset", "s.png")]),
        ("<img src=s.png srcset='a, b 1.5x'>", [("b", "srcset", "s.png")]),
        ("<img src=s.png srcset='a 2x, b 1w'>", [("b", "srcset", "s.png")]),
        ("<img src=s.png srcset='a 100w 50h, b 90w'>", [("a", "srcset", "s.png")]),
        ("<img src=s.png srcset='a.png?x=1,2 1x, b,c 2x'>", [("b,c", "srcset", "s.png")]),
        # Malformed: the src, and without one the first URL.
        ("<img src=s.png srcset='a 100q, b -1x, c 1x 2x, d 0w'>", [("s.png", "img", None)]),
        ("<img srcset='a 100q, b huge'>", [("a", "img", None)]),
        ("<img src=s.png srcset=', ,'>", [("s.png", "img", None)]),
        ("<img src=s.png srcset='data:image/png;base64,AAAA 2x, b 1x'>", [("b", "srcset", "s.png")]),
        # Lazy loaders: what is in src is a placeholder.
        ("<img src=blank.gif data-src=a.png>", [("a.png", "lazy", "blank.gif")]),
        ("<img src=data:image/gif;base64,R0lGOD data-original=a.png>", [("a.png", "lazy", None)]),
        ("<img src=p.gif data-lazy-src=a.png data-srcset='b 100w, c 200w'>", [("c", "srcset", "a.png")]),
        ("<img src=p.gif data-src=a.png srcset=p.gif>", [("a.png", "lazy", "p.gif")]),
        (
            "<img class=lazy src=data:, data-src=a.png><noscript><img src=a.png alt=x></noscript>",
            [("a.png", "lazy", None)],
        ),
        ("<noscript><img src=only.png></noscript>", [("only.png", "img", None)]),
        # A picture is one image.
        (
            "<picture><source srcset='a.avif 400w, b.avif 800w' type=image/avif><source srcset='b.webp 800w'><img src=s.jpg></picture>",
            [("b.avif", "picture", "s.jpg")],
        ),
        ("<picture><source srcset=a.webp><img src=s.jpg></picture>", [("a.webp", "picture", "s.jpg")]),
        ("<picture><source data-srcset='a.webp 2x'></picture>", [("a.webp", "picture", None)]),
        (
            "<picture><source srcset=broken.webp><p>no image</picture><img src=b>",
            [("b", "img", None), ("broken.webp", "picture", None)],
        ),
        ("<video><source src=v.mp4></video><img src=b>", [("b", "img", None)]),
        # SVG, metadata.
        (
            "<svg><image href=a.png width=10 height=20 /><image xlink:href=b.png /></svg>",
            [("a.png", "svg", None), ("b.png", "svg", None)],
        ),
        (
            "<object type=image/svg+xml data=a width=10></object><OBJECT data=b type=application/pdf></OBJECT><object data=c></object>",
            [("a", "object", None)],
        ),
        (
            "<object type=image/png></object><object type='Image/PNG' data=d>",
            [("d", "object", None)],
        ),
        (
            "<meta property=og:image content=a><meta name=og:image:secure_url content=b>",
            [("a", "og:image", None), ("b", "og:image", None)],
        ),
        ("<link rel='Image_Src' href=a.png><link rel=icon href=b.ico>", [("a.png", "link", None)]),
        ("<img src=data:image/png;base64,AAAA><img src=''><img src='#x'><img src='javascript:x'><img alt=none>", []),
        (f"<img src={'x' * 2049}>", []),
    ],
)
def test_the_choice_among_the_candidates(html: str, chosen: list[tuple[str, str, str | None]]) -> None:
    assert [(one.href, one.found_in, one.fallback) for one in images(html)] == chosen


def test_what_the_page_says_of_an_image() -> None:
    assert images(
        "<img src=a alt=' A\n cat ' width=300 height=200px><img src=b width=50% height=0 alt><img src=a alt=later>"
        "<img src=c width=10 srcset='d 640w'><img src=e><img src=e alt='said later'>"
        "<meta property=og:image content=f><meta property=og:image:alt content='An f'>"
        "<meta property=og:image:width content=1200><meta property=og:image:height content=630>"
    ) == [
        FoundImage("a", "img", "A cat", 300, 200, None),
        FoundImage("b", "img", "", None, None, None),
        FoundImage("d", "srcset", "", 640, None, "c"),
        FoundImage("e", "img", "said later", None, None, None),
        FoundImage("f", "og:image", "An f", 1200, 630, None),
    ]
    assert [len(one.alt) for one in images(f"<img src=a alt='{'x' * 1000}'>")] == [MAX_ALT]


def test_images_of_json_ld() -> None:
    found = images("""<script type="application/ld+json">
        {"@graph": [
            {"@type": "Organization", "url": "/home", "logo": {"@type": "ImageObject", "url": "/logo.png", "width": "200 px"}},
            {"@type": "Recipe", "image": ["/1.jpg", {"@type": "ImageObject", "contentUrl": "/2.jpg", "width": 640, "height": 480,
                "caption": "Soup"}], "thumbnailUrl": "/3.jpg", "video": {"@type": "VideoObject", "contentUrl": "/v.mp4"}},
            {"@type": "schema:ImageObject", "@id": "#primary", "contentUrl": "/4.jpg"},
            {"@type": "Thing", "image": {"@id": "#primary"}, "name": "/no.jpg"}
        ]}</script><script type="application/ld+json">{"image": "/5.jpg", }</script>
        <script>{"image": "/not.jpg"}</script><script type="application/ld+json">{"image": [[[[["/6.jpg"]]]]], "logo": 7}</script>""")
    assert [(one.href, one.alt, one.width, one.height) for one in found] == [
        ("/logo.png", "", 200, None),
        ("/1.jpg", "", None, None),
        ("/2.jpg", "Soup", 640, 480),
        ("/3.jpg", "", None, None),
        ("/4.jpg", "", None, None),
        ("/5.jpg", "", None, None),
        ("/6.jpg", "", None, None),
    ]
    assert {one.found_in for one in found} == {"json-ld"}
    nested = '{"image":' * 5000 + '"/x"' + "}" * 5000
    assert len(images(f"<img src=a><script type='application/ld+json'>{nested}</script>")) <= 2


def test_a_page_has_a_limit_and_the_text_stays_the_same() -> None:
    html = b"<p>Hello" + b"".join(b"<img src=%d><noscript><img src=n%d></noscript>" % (n, n) for n in range(MAX_IMAGES))
    without = parse_page(html, content_type=None)
    parsed = parse_page(html, content_type=None, images=True)
    assert len(parsed.found_images) == MAX_IMAGES
    assert without.found_images == []
    parsed.found_images = []
    assert parsed == without


def test_records_pass_the_pipe() -> None:
    parsed = parse_page(b"<img src=a srcset='b 2x' alt=x>", content_type=None, images=True)
    assert from_json(as_json(parsed)) == parsed


def test_srcsets() -> None:
    assert srcset_candidates("a 1e1x,b .5x, c 2147483648w\n,d 10h, e 5W, f 1x)") == [
        Candidate("a", 0, 10.0),
        Candidate("b", 0, 0.5),
        Candidate("c", 1_000_000, 0.0),
    ]
    assert len(srcset_candidates("a " + "1" * 5000 + "w, b 2w")) == 1
