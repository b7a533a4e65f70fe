"""Files of images: whole or not at all, idempotent, never through a link; in a folder and in an S3-compatible store."""

import hashlib
import os
import pwd
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from holdfast.archive.image_store import FolderImageStore, ImageFile, ImageStore, key_of, open_store, sha256_of
from holdfast.errors import ArchiveDamaged, ImageStoreUnavailable, NotFound, SettingsError, UsageError
from holdfast.settings import Images, load
from tests.support.object_store import BUCKET, KEYS, ObjectStore, object_store


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def of_s3(server: ObjectStore) -> Callable[..., ImageStore]:
    def make(prefix: str, **options: object) -> ImageStore:
        keys = {
            "access_key": SecretStr(KEYS["AWS_ACCESS_KEY_ID"]),
            "secret_key": SecretStr(KEYS["AWS_SECRET_ACCESS_KEY"]),
        }
        settings = Images.model_validate(
            {"store": f"s3://{BUCKET}/{prefix}", "endpoint": server.endpoint, **keys, **options}
        )
        return open_store(settings, Path("unused"))

    return make


def image(text: str) -> ImageFile:
    body = text.encode()
    return ImageFile(hashlib.sha256(body).digest(), "png", body)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_store(kind: str, tmp_path: Path, of_s3: Callable[..., ImageStore]) -> None:
    store = FolderImageStore(tmp_path / "data" / "images") if kind == "folder" else of_s3("a/b")
    one = image("one")
    assert store.list() == []
    assert store.store_id() is None
    assert not store.exists(key_of(*one[:2]))
    with pytest.raises(NotFound, match="There is no file"):
        store.get(key_of(*one[:2]))
    key = store.put(*one)
    again, other = FolderImageStore(tmp_path / "data" / "images"), FolderImageStore(tmp_path / "other")
    other.put(*one)
    assert store.store_id() == again.store_id(), "a folder is known again; all machines see the same S3 store"
    assert (store.store_id() is None) == (kind == "s3")
    assert store.store_id() != other.store_id()
    digest = hashlib.sha256(b"one").hexdigest()
    assert key == f"{digest[:2]}/{digest[2:4]}/{digest}.png"
    assert sha256_of(key) == one.sha256
    assert (store.put(*one), store.get(key), store.exists(key)) == (key, b"one", True)
    others = [image(str(number)) for number in range(25)]
    keys = store.put_all([*others, one])
    assert keys[-1] == key
    assert store.put_all([]) == []
    # Listed by pages, in the order of keys.
    listed: list[str] = []
    while page := store.list(listed[-1] if listed else "", limit=7):
        assert len(page) <= 7
        listed += [file.key for file in page]
    assert listed == sorted(keys)
    (file,) = [file for file in store.list() if file.key == key]
    assert file.size == 3
    assert abs(datetime.now(UTC) - file.modified_at) < timedelta(hours=1)
    store.delete(key)
    store.delete(key)
    assert not store.exists(key)
    for bad in ("../../etc/passwd", key.upper(), "aa/bb/" + digest + ".png", key + "/..", ""):
        with pytest.raises(NotFound):
            store.get(bad)
    assert store.delete_leftovers(timedelta(0)) == 0
    assert not store.delete_orphan(keys[0], timedelta(hours=1))
    assert store.exists(keys[0])
    assert store.delete_orphan(keys[0], timedelta(0))
    assert not store.exists(keys[0])


def test_a_file_that_is_put_while_it_is_collected_stays(tmp_path: Path) -> None:
    collector, writer = FolderImageStore(tmp_path / "images"), FolderImageStore(tmp_path / "images")
    one = image("one")
    key = writer.put(*one)
    stop = threading.Event()

    def collect() -> None:
        while not stop.is_set():
            collector.delete_orphan(key, timedelta(minutes=5))

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        for _ in range(300):
            with suppress(FileNotFoundError):  # as if it were an old orphan
                os.utime(tmp_path / "images" / key, (0, 0))
            writer.put(*one)
            while not writer.exists(key):  # it may be aside for a moment, but comes back
                assert thread.is_alive()
    finally:
        stop.set()
        thread.join()
    assert writer.get(key) == b"one"


def test_files_are_private_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    store = FolderImageStore(folder)
    old = os.umask(0)
    try:
        key = store.put(*image("one"))
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()}
    assert (modes, stat.S_IMODE((folder / key).stat().st_mode)) == ({0o700}, 0o600)
    # A link in the place of a file or a folder.
    (tmp_path / "secret").write_text("one")
    (folder / key).unlink()
    (folder / key).symlink_to(tmp_path / "secret")
    with pytest.raises(ImageStoreUnavailable, match="links are not followed"):
        store.get(key)
    assert not store.exists(key)
    assert store.list() == []
    other = image("two")
    first = key_of(*other[:2])[:2]
    (tmp_path / "elsewhere").mkdir()
    (folder / first).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImageStoreUnavailable, match="links are not followed"):
        store.put(*other)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(UsageError, match="symbolic link"):
        FolderImageStore(tmp_path / "link").put(*other)


def test_damage_is_noticed_and_leftovers_are_removed(tmp_path: Path) -> None:
    store = FolderImageStore(tmp_path / "images")
    key = store.put(*image("one"))
    (tmp_path / "images" / key).write_text("ONE")
    with pytest.raises(ArchiveDamaged, match="are not those that were stored"):
        store.get(key)
    (tmp_path / "images" / key).write_text("on")  # cut: it is put again
    store.put(*image("one"))
    assert store.get(key) == b"one"
    (tmp_path / "images" / "incoming" / "x.png.0123").write_bytes(b"half")
    assert store.delete_leftovers(timedelta(hours=1)) == 0
    assert store.delete_leftovers(timedelta(0), dry_run=True) == 1
    assert store.delete_leftovers(timedelta(0)) == 1
    assert not any((tmp_path / "images" / "incoming").iterdir())


def test_killed_while_it_puts(tmp_path: Path) -> None:
    script = """
import hashlib, os, sys
from pathlib import Path
from holdfast.archive.image_store import FolderImageStore
store = FolderImageStore(Path(sys.argv[1]))
for number in range(100_000):
    body = b"%d" % number * 2000
    print(store.put(hashlib.sha256(body).digest(), "png", body), flush=True)
"""
    process = subprocess.Popen(
        (sys.executable, "-c", script, str(tmp_path / "images")), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    acknowledged = [process.stdout.readline().strip() for _ in range(50)]
    process.kill()
    acknowledged += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    store = FolderImageStore(tmp_path / "images")
    for file in store.list(limit=100_000):
        store.get(file.key)
    assert {file.key for file in store.list(limit=100_000)} >= {key for key in acknowledged if len(key) == 74}


def test_a_full_disk_is_unavailable_and_put_again_works(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from holdfast.archive.image_store import FolderImageStore
from holdfast.errors import ImageStoreUnavailable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
store = FolderImageStore(Path(sys.argv[1]))
try:
    store.put(bytes(32), "png", bytes(5000))
except ImageStoreUnavailable as problem:
    print(problem)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(store.put(bytes(32), "png", bytes(5000)), len(store.list()))
"""
    done = subprocess.run(
        (sys.executable, "-c", script, str(tmp_path / "images")), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == f"The images in {tmp_path}/images cannot be used: file too large."
    assert done.stdout.splitlines()[1].startswith(f"00/00/{'0' * 64}.png 1")
    assert not any((tmp_path / "images" / "incoming").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(UsageError, match="belongs to user nobody"):
        FolderImageStore(folder).put(*image("one"))


def test_the_server_goes_away_and_comes_back(
    server: ObjectStore, of_s3: Callable[..., ImageStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = of_s3("c", store_timeout="2s")
    images = [image(f"c{number}") for number in range(20)]
    store.put_all(images[:10])
    server.stop()
    for call in (
        lambda: store.put_all(images),
        lambda: store.get(key_of(*images[0][:2])),
        lambda: store.exists(key_of(*images[0][:2])),
        lambda: store.list(),
    ):
        with pytest.raises(
            ImageStoreUnavailable,
            match=r"^The images in s3://pictures/c at http://127\.0\.0\.1:\d+ cannot be used: no connection \(images\.endpoint\)\.$",
        ):
            call()
    server.start()
    keys = store.put_all(images)
    assert [file.key for file in store.list()] == sorted(keys)


def test_what_the_server_refuses_is_said_without_secrets(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch, of_s3: Callable[..., ImageStore]
) -> None:
    settings = Images.model_validate(
        {"store": "s3://no-such-bucket", "endpoint": server.endpoint, "access_key": "x", "secret_key": "canary"}
    )
    store = open_store(settings, Path("unused"))
    for call in (lambda: store.put(*image("x")), lambda: store.list()):
        with pytest.raises(ImageStoreUnavailable, match="there is no such bucket") as caught:
            call()
        assert caught.value.__cause__ is None
        assert "canary" not in repr(caught.value)
    assert "canary" not in repr(settings) + repr(store.__dict__.get("_settings"))


def test_credentials(tmp_path: Path, server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"

    def store(**more: object) -> ImageStore:
        given = {"store": f"s3://{BUCKET}/d", "endpoint": server.endpoint, "credentials_file": file, **more}
        return open_store(Images.model_validate(given), tmp_path)

    for text, mode, said in [
        ("[default]\naws_access_key_id=a\naws_secret_access_key=canary%s\n", 0o600, None),
        ("[other]\naws_access_key_id = a\naws_secret_access_key = canary\naws_session_token = t\n", 0o600, None),
        ("[default]\naws_access_key_id=a\naws_secret_access_key=canary\n", 0o640, "chmod 600"),
        ("canary", 0o600, "has no section"),
        ("", 0o600, "has no section"),
    ]:
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(mode)
        if said is None:
            store().put(*image("d"))
        else:
            with pytest.raises(SettingsError, match=said) as caught:
                store()
            assert "canary" not in str(caught.value)
            assert caught.value.__cause__ is None
    file.unlink()
    with pytest.raises(SettingsError, match="cannot be read"):
        store()
    # From the environment, as other programs have them.
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert store(credentials_file=None).exists(key_of(*image("d")[:2]))


def test_settings() -> None:
    def loaded(**values: object) -> Images:
        return load(environ={}, options={"images": values}).images

    assert isinstance(open_store(Images(), Path("data")), FolderImageStore)
    assert open_store(loaded(store="~/pictures"), Path("data")).place == str(Path("~/pictures").expanduser())
    assert open_store(loaded(store="s3://abc/d/"), Path("data")).place == "s3://abc/d"
    for values, said in [
        ({"store": "s3://x"}, "s3://bucket"),
        ({"store": "s3://abc/../d//"}, "s3://bucket"),
        ({"endpoint": "http://user:canary@host"}, "without a user name"),
        ({"access_key": "canary"}, "must be given together"),
    ]:
        with pytest.raises(SettingsError, match=said):
            loaded(**values)
