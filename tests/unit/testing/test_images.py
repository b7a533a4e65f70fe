"""The images of the simulated web: what pages show, what is served, and that the truth about both is true."""

from collections import defaultdict
from itertools import combinations
from urllib.parse import urlsplit

import pytest

from holdfast.errors import UsageError
from holdfast.model.image import look_alike
from holdfast.parse.html import parse_html
from holdfast.parse.image_check import sniff, svg_size
from holdfast.parse.image_child import handle
from holdfast.testing.simweb.expected_images import ExpectedImages, expected_images
from holdfast.testing.simweb.image_urls import Embedding, candidates, embedding_of, images_of_page
from holdfast.testing.simweb.presets import preset
from holdfast.testing.simweb.render import Delivery, Response
from holdfast.testing.simweb.site import UrlKind, page
from holdfast.testing.simweb.spec import Address, ImageKind, Robots, Site, Web
from holdfast.testing.simweb.url_names import path_of

ADDRESS = Address((8000,))
WEB = preset("images")


@pytest.fixture(scope="module")
def truth() -> ExpectedImages:
    return expected_images(WEB, ADDRESS)


def answer(url: str, web: Web = WEB) -> Response:
    parts = urlsplit(url)
    return page(web, int((parts.hostname or "").removeprefix("s").partition(".")[0]), parts.path, ADDRESS)


def checked(body: bytes) -> dict[str, object]:
    """What the helper of a crawl says of an image."""
    return handle(body, {"do": "check", "format": sniff(body), "pixels": 100_000_000, "frames": 2000})


def test_every_url_answers_as_expected(truth: ExpectedImages) -> None:
    for url, image in truth.urls.items():
        response = answer(url)
        assert image.status in (response.status, None), url
        assert (response.delivery is Delivery.ENDLESS) == (image.status is None)
        if image.problem == "image_too_large" and url.split("/img/")[1].startswith((ImageKind.HEAVY, ImageKind.PACKED)):
            continue  # by its bytes, whatever they are: nothing is decoded
        if image.problem in ("image_damaged", "image_too_large"):
            assert checked(response.body)["problem"] == image.problem
        if image.problem == "not_an_image":
            assert sniff(response.body) is None
    assert {url.split("/img/")[1].partition("/")[0] for url in truth.urls} == {*ImageKind, "target"}


def test_images_of_a_motif_look_alike_and_no_others(truth: ExpectedImages) -> None:
    hashes = defaultdict(set)
    for url, image in truth.urls.items():
        if image.sha256 is None or image.problem is not None:
            continue
        body = answer(url).body
        if image.motif is None:
            assert svg_size(body) == (36, 32)
        else:
            hashes[image.motif].add(checked(body)["dhash"])
    assert max(map(len, hashes.values())) == 2, "a marked image differs a little"
    for of_motif in hashes.values():
        assert all(look_alike(one, other, 5) for one, other in combinations(of_motif, 2))  # type: ignore[arg-type]
    for one, other in combinations(hashes.values(), 2):
        assert not any(look_alike(a, b, 5) for a in one for b in other)  # type: ignore[arg-type]


def test_pages_show_each_image_once_and_small_ones_beside_it(truth: ExpectedImages) -> None:
    ways, small = set(), set()
    for i in range(WEB.site(0).pages):
        shown = images_of_page(WEB.site(0), i)
        ways |= {embedding_of(WEB, 0, i, image) for image in shown}
        parsed = parse_html(page(WEB, 0, path_of(i), ADDRESS).body, links_per_page=100, images=True)
        hrefs = {image.href for image in parsed.found_images}
        assert len(hrefs) == len(parsed.found_images) == len(shown) == 5
        assert hrefs <= truth.urls.keys()
        assert len(parsed.images) == candidates(WEB, 0, i)
        small |= {href for href in parsed.images if "/small/" in href}
    assert ways == set(Embedding)
    assert all(answer(href).status == 200 for href in small)
    assert len(small) > 20
    assert len({images_of_page(WEB.site(0), i)[0] for i in range(30)}) == 1, "one is on all pages"


def test_what_is_denied_is_not_stored(truth: ExpectedImages) -> None:
    private = [image for url, image in truth.urls.items() if "/private/" in url]
    assert {image.kind for image in private} == {UrlKind.DENIED, UrlKind.OTHER}
    assert all((image.sha256 is None) == (image.kind is UrlKind.DENIED) for image in private)
    closed = Web(1, 2, Site(3, images=2, image_host=1), {1: Site(1, robots=Robots.DENY_ALL)})
    assert {image.kind for image in expected_images(closed, ADDRESS).urls.values()} == {UrlKind.DENIED}
    shut = Web(1, 1, Site(3, images=2, robots=Robots.DENY_ALL))
    assert expected_images(shut, ADDRESS).urls == {}


def test_without_other_kinds_all_images_are_plain_and_on_the_site() -> None:
    web = Web(3, 1, Site(40, images=1, gallery=7))
    found = expected_images(web, ADDRESS)
    assert (len(found.urls), len(found.stored), found.exact_duplicates, found.near_duplicates) == (7, 7, 0, 0)
    assert {urlsplit(url).netloc for url in found.urls} == {"s0.localhost:8000"}
    assert found.domains["s0.localhost:8000"].image_yield == 7 / 40


@pytest.mark.parametrize(
    "path",
    ["/img/plain/0/zz.png", "/img/plain/9/b.png", "/img/plain/0/b.bmp", "/private/img/plain/0/b.png", "/img/away/3/b.png",
     "/img/copy/0/c.png", "/img/other/0/b.png", "/img/plain/0/", "/img/target/0/b.png"],
)  # fmt: skip
def test_there_are_no_other_images(path: str) -> None:
    assert page(WEB, 4, path, ADDRESS).status == 404
    assert page(WEB, 4, "/img/plain/0/b.png", ADDRESS).status == 200
    assert page(WEB, 5, "/img/plain/0/b.png", ADDRESS).status == 404


def test_a_host_of_images_is_another_site() -> None:
    for values in (
        {"image_host": 2},
        {"image_host": 0},
        {"image_host": None, "image_kinds": (ImageKind.AWAY,)},
        {"gallery": 0},
    ):
        with pytest.raises(UsageError):
            Web(1, 2, special={0: Site(**values)})
