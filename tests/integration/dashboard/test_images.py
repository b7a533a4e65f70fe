"""Images over HTTP: the API with files and thumbnails, and the pages of the dashboard."""

import io

import psycopg
import pytest
from PIL import Image

from holdfast.archive.image_store import FolderImageStore
from holdfast.client import Client
from holdfast.db.connection import Database
from holdfast.errors import NotFound
from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.stored_images import PICTURES, SVG, put_images

HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest.fixture
def ids(database: Database, connection: psycopg.Connection, api: Api) -> list[int]:
    """A photograph, a near duplicate of it, another one, and an SVG."""
    crawl_a_little(database, Store(connection))
    return put_images(connection, FolderImageStore(api.services.settings.data / "images"), alt=HOSTILE)


def test_the_list_and_its_filters(api: Api, ids: list[int]) -> None:
    client = api.reader
    one, small, two, svg = ids

    def listed(query: str) -> list[int]:
        answer = client.get(f"/api/images?{query}")
        assert answer.status_code == 200, answer.text
        return [image["id"] for image in answer.json()["items"]]

    assert listed("") == [svg, two, small, one]
    assert listed("order=oldest&limit=500") == ids
    assert listed("format=png") == [two]
    assert listed("min_width=320&min_height=240") == [two, one]
    assert listed(f"near={small}") == listed(f"near={one}") == [small, one]
    assert listed("domain=example.com&since=2020-01-01T00:00:00Z") == [svg, two, small, one]
    assert listed("since=2099-01-01T00:00:00Z") == []
    first = client.get("/api/images?limit=3")
    assert [image["id"] for image in client.get(first.links["next"]["url"]).json()["items"]] == [one]
    shown = client.get(f"/api/images/{small}").json()
    assert (shown["near"], shown["image"]["near_duplicate_of"]) == ([one], one)
    (place,) = shown["places"]
    assert (place["domain"], place["image_url"], place["alt"]) == (
        "example.com",
        "https://cdn.example/small.webp",
        HOSTILE,
    )
    for path, status in {
        "/api/images/999": 404,
        "/api/images/999/file": 404,
        "/api/images/0": 422,
        "/api/images?format=heic": 422,
        "/api/images?domain=nowhere.example": 404,
        "/api/images?near=999": 404,
    }.items():
        assert client.get(path).status_code == status, path
    assert api.anybody.get(f"/api/images/{one}/file").status_code == 401


def test_files_are_sent_as_what_they_are(api: Api, ids: list[int]) -> None:
    client = api.reader
    for image_id, (url, body) in zip(ids, PICTURES.items(), strict=True):
        answer = client.get(f"/api/images/{image_id}/file")
        assert (answer.status_code, answer.content) == (200, body)
        headers = answer.headers
        assert headers["content-security-policy"].startswith("sandbox")
        assert headers["x-content-type-options"] == "nosniff"
        if url.endswith("svg"):
            assert headers["content-type"] == "text/plain; charset=utf-8"
            assert headers["content-disposition"].startswith("attachment")
        else:
            assert (
                headers["content-type"]
                == {"jpg": "image/jpeg", "webp": "image/webp", "png": "image/png"}[url.rpartition(".")[2]]
            )
        again = client.get(f"/api/images/{image_id}/file", headers={"If-None-Match": headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_thumbnails_are_made_once(api: Api, ids: list[int], connection: psycopg.Connection) -> None:
    client = api.reader
    *photos, svg = ids
    for image_id in photos:
        answer = client.get(f"/api/images/{image_id}/thumbnail")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
        with Image.open(io.BytesIO(answer.content)) as image:
            assert max(image.size) <= 256
        assert answer.headers["content-security-policy"].startswith("sandbox")
        again = client.get(
            f"/api/images/{image_id}/thumbnail", headers={"If-None-Match": f"W/{answer.headers['etag']}"}
        )
        assert again.status_code == 304
    assert client.get(f"/api/images/{svg}/thumbnail").status_code == 404
    # The file is gone: what is in memory is still there, the file is said to be missing.
    (key,) = connection.execute("SELECT file FROM images WHERE id = %s", (photos[0],)).fetchone() or ("",)
    (api.services.settings.data / "images" / key).unlink()
    assert client.get(f"/api/images/{photos[0]}/thumbnail").status_code == 200
    missing = client.get(f"/api/images/{photos[0]}/file")
    assert missing.status_code == 404
    assert "There is no file" in missing.text


def test_the_client(api: Api, ids: list[int]) -> None:
    with Client(api.url, key=api.reader.headers["Authorization"].removeprefix("Bearer ")) as client:
        assert [image.id for image in client.images(format="svg")] == [ids[3]]
        assert client.image(ids[0]).image.format == "jpeg"
        assert client.image_file(ids[3]) == SVG
        assert client.image_thumbnail(ids[0]).startswith(b"RIFF")
        with pytest.raises(NotFound):
            client.image_thumbnail(ids[3])


def test_the_wall(rita: Browser, ids: list[int]) -> None:
    one, small, _, svg = ids
    page = rita.get("/images")
    assert (page.status, page.text.count('class="thumbnail"')) == (200, 4)
    assert f'src="/api/images/{one}/thumbnail"' in page.text
    assert f'src="/api/images/{svg}/' not in page.text
    assert HOSTILE not in page.text
    assert rita.get("/images", format="png").text.count('class="thumbnail"') == 1
    assert rita.get("/images", near=str(small)).text.count('class="thumbnail"') == 2
    assert "No image fits these filters." in rita.get("/images", min_width="5000").words
    assert "must be a whole number" in rita.get("/images", min_width="wide").notice
    assert rita.get("/images", job="nothing").notice
    details = rita.get(f"/images/{small}")
    assert "160 \N{MULTIPLICATION SIGN} 120" in details.words
    assert f'href="/images/{one}"' in details.text
    assert "https://cdn.example/small.webp" in details.words
    assert HOSTILE not in details.text
    assert "Save it as text" in rita.get(f"/images/{svg}").words
    assert rita.get("/images/999").status == 404


def test_without_images_the_wall_says_so(rita: Browser) -> None:
    assert "No image is stored yet." in rita.get("/images").words
