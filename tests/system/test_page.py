"""The page in a browser: it renders without an error, sorts, and shows hover texts."""

import base64
import itertools
import re
import shutil
from pathlib import Path

import pytest

from processes import HANG
from small_records import posfuse_report, write_failure, write_record, write_sweep

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("index.html"))
OPENINGS = itertools.count()
NASTY = "<img src=x onerror=alert(1)>&amp;$x_1$"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--window-size=1400,1000",
)  # fmt: skip

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of a small sweep, some of its texts hostile."""
    root = tmp_path_factory.mktemp("page") / "sweep"
    accuracies = {"add": [0.5, 0.6, 0.7], "concat": [0.6, 0.65, 0.8]}
    accuracies["gate_scalar"] = [0.7, 0.8, 0.9]
    task = {"data.corpus._target_": "posfuse.data.bbc.lead_story"}  # at two lengths
    labels = ["<b>", NASTY]
    write_sweep(root, accuracies, settings=task)
    write_sweep(root, accuracies, data="wordy", tokens=80.0, label_names=labels, settings=task)
    labels = ["<b>", "</title><script>alert(2)</script>"]
    write_record(root, 0.5, "mlp", 0, parameters=25, label_names=labels, settings=task)
    failed = root / "tiny" / "sinusoidal" / "add" / "seed=9"
    failed.mkdir()
    write_failure(failed, "failed", NASTY)
    posfuse_report(root, draw=True)
    return root / "report" / "index.html"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """The report of a table of another study, with more comparisons than a first screen holds."""
    root = tmp_path_factory.mktemp("foreign")
    rows = [
        f"{seed},{method},task{task},{50 + task + seed * len(method) % 3 + 5 * (method == 'bb')}"
        for seed in range(5) for method in ("a", "bb", "cccc") for task in range(12)
    ]  # fmt: skip
    (root / "table.csv").write_text("\n".join(["seed,method,task,accuracy", *rows]))
    options = ("--value", "accuracy", "--compare", "method", "--by", "task", "--baseline", "a")
    posfuse_report("--from", root / "table.csv", *options, "--out", root / "report", draw=True)
    return root / "report" / "index.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "127.0.0.1,localhost")  # selenium asks the driver by HTTP
        driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        yield driver
        driver.quit()


def show(browser, path):
    """Open a page and wait until it is loaded."""
    from selenium.webdriver.support.ui import WebDriverWait

    # `get` may return while the previous page is still shown, so every opening has its own address.
    address = f"{path.as_uri()}?{next(OPENINGS)}"
    browser.get(address)
    loaded = "return location.href === arguments[0] && document.readyState === 'complete'"
    WebDriverWait(browser, HANG).until(lambda b: b.execute_script(loaded, address))


@pytest.fixture
def opened(browser, page):
    browser.set_window_size(1400, 1000)
    show(browser, page)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.smoke
def test_it_renders_without_a_network(opened):
    assert opened.title == "posfuse: sweep"
    sizes = opened.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect())"
    )
    assert len(sizes) == 5
    assert all(size["width"] > 200 and size["height"] > 80 for size in sizes)
    assert opened.execute_script(OVERLAPS) == []
    assert len(opened.find_elements("css selector", ".verdict")) == 1  # of the length
    folded = opened.find_element("css selector", "#verdicts > details > summary")
    assert "6 claims of the paper match no runs" in folded.text
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_the_answer_is_on_the_first_screen_and_its_numbers_behind_a_row(opened):
    opened.set_window_size(1280, 800)
    rows = opened.find_elements("css selector", ".answers tbody tr")
    verdicts = [row.find_element("tag name", "span").text[2:] for row in rows]
    assert sorted(verdicts) == [*["not tested"] * 3, *["undecided"] * 2]
    assert all(row.rect["y"] + row.rect["height"] < 800 for row in rows)
    row = rows[verdicts.index("undecided")]
    details = row.find_element("css selector", "details p")
    assert not details.is_displayed()
    row.find_element("tag name", "summary").click()
    assert "seeds would settle this" in details.text


CONTRASTS = """
const light = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(v => v / 255)
  .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b; };
const ground = element => {
  const color = getComputedStyle(element).backgroundColor;
  return color.startsWith("rgba(0, 0, 0, 0") ? ground(element.parentElement) : color; };
const texts = document.querySelectorAll(
  "h1, h2, h3, p, li, dt, dd, summary, pre, th, td, .badge, figcaption, nav a");
const contrast = (element, part) => {
  const both = [light(getComputedStyle(element, part).color), light(ground(element))];
  return (Math.max(...both) + .05) / (Math.min(...both) + .05); };
const arrows = [...document.querySelectorAll("th button")].map(head => contrast(head, "::after"));
return [...[...texts].map(text => contrast(text)), ...arrows];
"""


def test_texts_have_enough_contrast_on_a_dark_page(opened, page):
    """The test of widths does this for light pages."""
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    for path in (page, *PAGES):
        show(opened, path)
        contrasts = opened.execute_script(CONTRASTS)
        assert len(contrasts) > 50, path
        assert min(contrasts) >= 4.5, path


def test_texts_from_records_are_text(opened):
    assert opened.find_elements("css selector", "img, figure script, figure b, td b, li b") == []
    assert NASTY in opened.find_element("id", "runs").text
    tips = opened.execute_script(
        "return [...document.querySelectorAll('[data-tip]')].map(mark => mark.dataset.tip)"
    )
    assert any(tip.startswith("wordy") for tip in tips)


# Clicks the heading of the table's third column; the texts of the column.
SORTED = """
const table = document.querySelector("#paired_differences").nextElementSibling;
table.querySelectorAll("th button")[2].click();
return [...table.querySelectorAll("tbody tr")].map(row => row.cells[2].textContent);
"""


def test_tables_sort_up_and_down_by_number(opened):
    texts = [opened.execute_script(SORTED) for _ in range(2)]
    up, down = [[float(text.split()[0]) for text in shown] for shown in texts]
    assert len(up) == 5
    assert up == sorted(up)
    assert down == up[::-1]
    heads = opened.find_elements("css selector", "#paired_differences + * th[aria-sort]")
    assert [head.get_attribute("aria-sort") for head in heads] == ["descending"]


SCALES = """
const table = document.querySelector("#paired_differences").nextElementSibling;
const rows = [...table.querySelectorAll("tbody tr")];
rows.forEach((row, i) => row.cells[2].textContent = arguments[0][i]);
"""


def test_scales_sort_by_their_value(opened):
    opened.execute_script(SCALES, ["4", "learned", "sqrt_d = 8", "1/2", "1/16"])
    assert opened.execute_script(SORTED) == ["1/16", "1/2", "4", "sqrt_d = 8", "learned"]


def test_a_mark_shows_its_seed_under_the_pointer(opened):
    from selenium.webdriver import ActionChains

    mark = opened.execute_script(
        "return [...document.querySelectorAll('#figure-forest [data-tip]')]"
        ".find(g => g.dataset.tip.includes('tiny sinusoidal concat seed=2'))"
    )
    assert mark is not None
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(opened).move_to_element(mark).perform()
    tip = opened.find_element("id", "tip")
    assert tip.is_displayed()
    assert "seed=2" in tip.text
    assert "+10.00" in tip.text
    ActionChains(opened).move_to_element(opened.find_element("css selector", "h1")).perform()
    assert not tip.is_displayed()


def set_width(browser, width):
    """A window has a minimum width; the metrics of a device have none."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


# The tables whose first number of a row is outside their box.
CUT = """
return [...document.querySelectorAll(".scroll:has(tbody .number)")].filter(box =>
  box.querySelector("tbody .number").getBoundingClientRect().right
  > box.getBoundingClientRect().right).map(box => box.getAttribute("aria-label"));
"""


# The labels of a figure that overlap; those at a slant have boxes larger than their letters.
OVERLAPS = """
return [...document.querySelectorAll("figure svg")].flatMap(svg => {
  const labels = [...svg.querySelectorAll("text")].filter(label => label.textContent.trim()
    && [...label.transform.baseVal].every(turn => turn.angle % 90 === 0));
  const boxes = labels.map(label => label.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(0, i).flatMap((b, j) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return wide > 4 && high > 3 ? [labels[i].textContent + " | " + labels[j].textContent] : [];
  }));
});
"""
WHOLE = """
const box = document.querySelector("#hypotheses")?.nextElementSibling;
return !box || box.scrollWidth <= box.clientWidth;
"""


def test_at_each_width_nothing_is_cut_overlaps_is_pale_or_small(opened, page, foreign):
    for path in (page, foreign, *PAGES):
        show(opened, path)
        opened.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        for width in (400, 800, 1280):
            set_width(opened, width)
            own = opened.execute_script("return document.documentElement.scrollWidth")
            assert own <= width, (path, width)
            assert opened.execute_script(CUT) == [], (path, width)
            assert opened.execute_script(OVERLAPS) == [], (path, width)
            assert min(opened.execute_script(CONTRASTS)) >= 4.5, (path, width)
        assert opened.execute_script(WHOLE), path
        heights = [height for _, _, height in opened.execute_script(LABELS_OF_FIGURES)]
        assert min(heights, default=9) >= 9, path  # at 1280


LABELS_OF_FIGURES = """
const height = label => label.getBoundingClientRect().height;
return [...document.querySelectorAll("figure")].map(figure => [figure.scrollWidth,
  figure.clientWidth, Math.min(...[...figure.querySelectorAll("svg text")].map(height))]);
"""


def test_on_a_phone_a_figure_scrolls_instead_of_shrinking(opened, page):
    set_width(opened, 400)
    show(opened, page)
    figures = opened.execute_script(LABELS_OF_FIGURES)
    assert len(figures) == 5
    assert min(height for _, _, height in figures) >= 8
    assert any(whole > shown for whole, shown, _ in figures)


# Sentences of four words or more that a page has twice. Tables may share a value of all rows.
REPEATED = """
const blocks = [...document.querySelectorAll("p, li, dd, figcaption, summary")]
  .filter(block => !block.querySelector("p, li"));
const sentences = blocks.flatMap(block => block.textContent.trim().split(/(?<=[.?!])\\s+/))
  .filter(text => /[.?!]$/.test(text) && text.split(/\\s+/).length > 3
    && !text.startsWith("All rows: "));
return sentences.filter((text, i) => sentences.indexOf(text) < i);
"""


def printed_pages(browser):
    paper = {"paperWidth": 8.27, "paperHeight": 11.7}
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", paper)["data"])
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", printed))


def test_a_page_of_the_docs_repeats_no_sentence_and_prints_on_six_pages_at_most(opened):
    """The small sweep is no example: its corpora have equal results, and so equal sentences."""
    assert len(PAGES) > 3
    for page in PAGES:
        show(opened, page)
        assert opened.execute_script(REPEATED) == [], page
        assert 1 <= printed_pages(opened) <= 6, page


PLACES_OF_NAMES = """
const box = [...document.querySelectorAll(".scroll")].find(box => box.scrollWidth > box.clientWidth
  && box.querySelectorAll("tr:first-child .fixed").length > 1);
const places = () => [...box.querySelectorAll(".fixed")]
  .map(cell => cell.getBoundingClientRect().left);
const before = places();
box.scrollLeft = box.scrollWidth;
return [before, places()];
"""


def test_the_names_of_a_row_stay_in_view(opened, page):
    set_width(opened, 800)
    show(opened, page)
    before, after = opened.execute_script(PLACES_OF_NAMES)
    assert after == pytest.approx(before, abs=1)
    assert len(set(before)) > 1


def test_it_prints_on_few_pages_with_what_is_behind_each_answer_and_claim(opened):
    tests = opened.find_element("css selector", ".verdict details p")
    assert "Holm-adjusted p" in tests.get_attribute("textContent")
    assert not tests.is_displayed()
    assert 1 <= printed_pages(opened) <= 6
    opened.execute_script("dispatchEvent(new Event('beforeprint'))")
    states = opened.execute_script(
        "return [...document.querySelectorAll('details')].map(d => [!!d.closest('.answers, "
        ".verdict'), d.open])"
    )
    assert dict(states) == {True: True, False: False}
