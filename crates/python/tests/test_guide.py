"""The Python of the guide's page on shards, as it stands there, but for the paths."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy  # noqa: F401  # webdataset does in the midst of the test, and its threads stay
import pytest
from PIL import Image
from samples import shard

PAGE = Path(__file__).parents[3] / "book/training-shards.md"
COUNT = 60
# So many go into a shard: the page reads three of them.
PACKED = 20


@pytest.fixture
def images(root: Path) -> Path:
    for n in range(COUNT):
        folder = root / ("cat" if n % 2 else "dog")
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (n + 1, 2), (n, 0, 0)).save(folder / f"{n}.jpg")
        (folder / f"{n}.json").write_text(json.dumps({"n": n}))
    return root


def block(number: int, paths: dict[str, Path]) -> str:
    """A block of the page. Each path has to be in it, and no other one."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    code: str = blocks[number]
    for there, here in paths.items():
        assert code.count(there) == 1, there
        code = code.replace(there, str(here))
    assert "/srv/" not in code and "/backup/" not in code
    return code


# webdataset leaves shards open, for Python to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_shards_are_read_as_the_page_says(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    assert len(shard(images, out, "--max-count", str(PACKED))) == COUNT // PACKED
    code = block(0, {"/backup/shards": out})
    assert code.count("    ...\n") == 1
    seen: list[tuple[Image.Image, dict[str, int]]] = []
    # What stands there for the work to be done.
    exec(compile(code.replace("    ...\n", "    seen.append(sample)\n"), "the page", "exec"), {"seen": seen})
    assert sorted((image.size, told["n"]) for image, told in seen) == [((n + 1, 2), n) for n in range(COUNT)]


def test_a_tree_is_read_as_the_page_says(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block(1, {"/srv/images": images}), "the page", "exec"), {})
    files = [path for path in images.rglob("*") if path.is_file()]
    expected = {f"{path} {path.stat().st_size} {path.stat().st_size}" for path in files}
    assert set(capsys.readouterr().out.splitlines()) == expected and len(files) == 2 * COUNT
