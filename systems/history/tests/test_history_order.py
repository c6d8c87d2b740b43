"""The order of entries of one time: by asset id, in every list and on every page."""

from systems.history.tests.support.service import Viewer, ids, viewing
from tests.support.cases import cases

ASSETS = ["1", "10", "100", "2", "a", "a!", "a/b", "a|b", "é"]
EXT = {"showCategoryId": "1446"}


def pages(viewer: Viewer, path: str) -> list[str]:
    page = viewer.facet(path)
    found = ids(page["entries"])
    while "cursor" in page:
        page = viewer.facet(f"{path}&cursor={page['cursor']}")
        found += ids(page["entries"])
    return found


@cases("limit", [1, 2, 3, 8, 9, 500])
def test_an_id_that_begins_another_one_is_listed_before_it(viewer: Viewer, limit: int) -> None:
    events = [{"assetId": each, **viewing(5), "ext": EXT} for each in reversed(ASSETS)]
    events += [{"assetId": "new", **viewing(6)}, {"assetId": "old", **viewing(4)}]
    viewer.ask("POST", "/events", json={"events": events})
    for kind in ("all", "resume"):
        listed = pages(viewer, f"asset/{kind}?limit={limit}")
        assert listed == ["new", *ASSETS, "old"]
        assert pages(viewer, f"show/1446/{kind}?limit={limit}") == ASSETS
    assert pages(viewer, f"asset/watched?limit={limit}") == []


def test_the_current_entry_of_one_time_is_the_one_in_progress(viewer: Viewer) -> None:
    viewer.put("a", 5, 100, ext=EXT)
    viewer.put("b", 5, 50, ext=EXT)
    assert viewer.facet("show/1446/all")["current"]["attr"]["assetId"] == "b"
    viewer.put("c", 6, 100, ext=EXT)
    assert viewer.facet("show/1446/all")["current"]["attr"]["assetId"] == "c"
