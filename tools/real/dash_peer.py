"""A browser that clicks through the dashboard (dash_test.sh), takes its pictures, or measures how fast it opens.

    dash_peer.py all URL FOLDER      every view, in light, dark and at phone width; pictures go to FOLDER
    dash_peer.py live URL            a run that trains moves on without reloading
    dash_peer.py damaged URL         runs that are not as they should be
    dash_peer.py refused URL         without the token
    dash_peer.py look URL SECONDS    leaves the page open
    dash_peer.py time URL RUNS       seconds until RUNS runs are listed and the curves are drawn
"""
import sys
import time
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

complaints = []


@contextmanager
def browser(scheme="light", width=1280, height=800):
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        chromium.close()


def quiet():
    assert not complaints, complaints


def accessible(page, where):
    found = Axe().run(page).response["violations"]
    assert not found, (where, [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found])


def until(page, expression):
    """Asked from outside: the page's own rules forbid to evaluate text."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"it never came: {expression}"
        page.wait_for_timeout(50)


def charts(page):
    """A label of each chart, which names its runs and where they end."""
    return page.eval_on_selector_all("#charts canvas", "all => all.map(one => one.getAttribute('aria-label'))")


def open_page(page, url):
    page.goto(url)
    page.wait_for_selector("#charts canvas")
    until(page, "[...document.querySelectorAll('#charts canvas')].every(one => one.getAttribute('aria-label'))")
    assert "token=" not in page.url


def curves(page, folder):
    assert any("second ends at" in label for label in charts(page)), charts(page)
    page.screenshot(path=f"{folder}/curves.png")
    page.click("text=grad_norm >> nth=0")
    page.select_option("#axis", "tokens")
    page.fill("#smooth", "0.6")
    until(page, "document.querySelector('#charts canvas').getAttribute('aria-label').includes('over tokens')")
    page.keyboard.press("l")
    assert page.is_checked("#log-y")
    box = page.locator("#charts canvas").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 100
    page.mouse.move(x, y)
    page.wait_for_selector("#charts .tip:visible")
    page.mouse.down()
    page.mouse.move(x + 80, y, steps=4)
    page.mouse.up()
    page.wait_for_selector("#unzoom:enabled")
    page.screenshot(path=f"{folder}/zoomed.png")
    page.keyboard.press("z")
    page.wait_for_selector("#unzoom:disabled")


def every_view(page, folder):
    page.keyboard.press("2")
    page.wait_for_selector("#view-compare th:has-text('optim.lr')")
    accessible(page, "compare")
    page.screenshot(path=f"{folder}/compare.png")
    page.click("#table tr:has-text('ranks')")
    page.keyboard.press("3")
    page.wait_for_selector("#view-timeline tbody th:has-text('backward_weight')")
    assert "rank" in page.inner_text("#view-timeline figcaption")
    page.screenshot(path=f"{folder}/timeline.png")
    page.select_option("#view-timeline select", "profile")
    until(page, "document.querySelector('#view-timeline figcaption').textContent.includes('step 20 to 21')")
    accessible(page, "timeline")
    page.keyboard.press("4")
    page.wait_for_selector("#view-run h2:has-text('Recipe')")
    assert "params_hash" in page.inner_text("#view-run") and "optim.lr" in page.inner_text("#view-run")
    assert page.inner_text("#view-run h2:has-text('Receipt')") and "time per step" in page.inner_text("#view-run")
    accessible(page, "run")
    page.screenshot(path=f"{folder}/run.png")


def keys(page):
    page.keyboard.press("1")
    page.keyboard.press("/")
    page.keyboard.type("lr 0.003")
    until(page, "document.querySelectorAll('#table tbody tr').length === 1")
    page.keyboard.press("Escape")
    page.fill("#search", "")
    page.keyboard.press("Escape")
    page.locator("h1").click()
    current = lambda: page.inner_text("#table tr.current .name")  # noqa: E731
    page.keyboard.press("k"), page.keyboard.press("k"), page.keyboard.press("k")
    first = current()
    page.keyboard.press("j")
    assert current() != first
    page.keyboard.press("x")
    until(page, "document.querySelectorAll('#table input:checked').length === 2")
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    accessible(page, "help")
    page.keyboard.press("Escape")


def everything(url, folder):
    for scheme, width, height in (("light", 1280, 800), ("dark", 1280, 800), ("light", 390, 844)):
        with browser(scheme, width, height) as page:
            open_page(page, url)
            accessible(page, f"curves, {scheme}, {width}")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"the page is {wide} wide on a screen of {width}"
            page.screenshot(path=f"{folder}/{scheme}-{width}.png")
            if (scheme, width) == ("light", 1280):
                curves(page, folder)
                every_view(page, folder)
                keys(page)
                page.reload()  # the address keeps what was looked at
                until(page, "document.querySelectorAll('#table input:checked').length === 2")
    quiet()


def live(url):
    with browser() as page:
        open_page(page, url)
        text = "[...document.querySelectorAll('#table tr')].find(row => row.textContent.includes('live'))?.querySelector('.number').title"
        until(page, f"Boolean({text})")
        seen = page.evaluate(text), charts(page)[0]
        until(page, f"{text} !== {seen[0]!r}")
        until(page, f"document.querySelector('#charts canvas').getAttribute('aria-label') !== {seen[1]!r}")
        assert page.inner_text("#table tr:has-text('live') .state-training") == "training"
    quiet()


def damaged(url):
    with browser() as page:
        page.goto(url)
        until(page, "document.querySelectorAll('#table tbody tr').length === 7")
        assert page.locator("#table img, #table b").count() == 0
        for name in ("empty", "torn", "binary", "nan", "future", "unreadable", "<b>bold"):
            page.keyboard.press("4")
            page.locator("#table tbody tr", has_text=name).first.click()
            until(page, f"document.querySelector('#view-run h2')?.textContent === {name!r}")
        assert page.locator("#view-run img").count() == 0
        page.keyboard.press("1")
        page.wait_for_selector("#charts canvas")
        assert any("bold" in label for label in charts(page)), charts(page)
        assert any("nan ends at 2.5" in label for label in charts(page)), charts(page)
        assert page.is_visible("#banner")  # the ones that cannot be read are named
    quiet()


def refused(url):
    with browser() as page:
        assert page.goto(url).status == 401
        assert "lockstep dash" in page.inner_text("main")
        accessible(page, "refused")


def timed(url, runs):
    with browser() as page:
        began = time.monotonic()
        open_page(page, url)
        until(page, f"document.querySelectorAll('#table tbody tr').length >= {runs}")
        print(f"{time.monotonic() - began:.2f} s until {runs} are listed and curves are drawn")


def look(url, seconds):
    with browser() as page:
        open_page(page, url)
        page.wait_for_timeout(1000 * float(seconds))


if __name__ == "__main__":
    {"all": everything, "live": live, "damaged": damaged, "refused": refused, "time": timed, "look": look}[sys.argv[1]](*sys.argv[2:])
