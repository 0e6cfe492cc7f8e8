"""The dashboard in a real browser. The pictures of docs/ are made here: `TRIREME_PICTURES=docs/pictures` keeps them."""

import json
import os
import shutil
import signal
from pathlib import Path

import trireme_test
from browser import Browser
from page_test import FOREVER, PageCase
from trireme_test import TRIREME, read, wait_for

WAIT = 60  # seconds, on a loaded machine
MAX_PICTURE = 200_000
FIRST_SCREEN = 872  # the height of a window that ends below the time line: the picture in README
STEP = "return Number(document.querySelector('[data-tile=step] b').textContent.replace(/\\D/g, ''))"
LINES = "return [...document.querySelectorAll('[data-curve=loss] path.raw')].map(path => path.getAttribute('d')).join()"
# The colours on the time line, as many as there are of each.
COLOURS = """
const canvas = document.querySelector('#timeline');
const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const found = new Map();
for (let i = 0; i < bytes.length; i += 4)
  if (bytes[i + 3] === 255) { const key = [bytes[i], bytes[i + 1], bytes[i + 2]].join(); found.set(key, (found.get(key) || 0) + 1); }
const names = ['data', 'forward', 'backward', 'optimizer', 'call', 'beside'];
const probe = document.createElement('canvas').getContext('2d');
return Object.fromEntries(names.map(name => {
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--' + name);
  const hex = probe.fillStyle;
  return [name, found.get([1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)).join()) || 0];
}));
"""

# A whole refresh of a page whose numbers have all changed and whose curves are full, without the network: the bodies are
# kept and given again. What it asks, how many bytes it reads, and how long the fastest of five takes.
REFRESH = """
const fetched = window.fetch, bodies = {};
window.fetch = async (path, options) => {
  if (!(path in bodies)) bodies[path] = await (await fetched(path, options)).text();
  return new Response(bodies[path]);
};
const change = (path, edit) => { const body = JSON.parse(bodies[path]); edit(body); bodies[path] = JSON.stringify(body); };
const fill = (curves) => { for (const curve of Object.values(curves))
  curve.points = Array.from({ length: 512 }, (_, i) => [i, i, Math.sin(i)]); };
return (async () => {
  try {
    await refresh();
    const asked = Object.keys(bodies).sort(), times = [];
    change("api/curves", fill);
    bodies["api/log?rank=0"] = JSON.stringify({ rank: 0, path: "", text: "step 1 loss 0.5\\n".repeat(4096) });
    for (let i = 0; i < 5; ++i) {
      change("api/state", (body) => body.ranks.forEach((rank) => { rank.step += i + 1; rank.cpu = i / 10; rank.memory += 1 << 20; }));
      const start = performance.now();
      await refresh();
      document.body.offsetHeight;
      times.push(performance.now() - start);
    }
    const bytes = Object.values(bodies).reduce((sum, body) => sum + body.length, 0);
    return { asked, bytes, milliseconds: Math.min(...times) };
  } finally {
    window.fetch = fetched;
  }
})();
"""


def bytes_words(value):
    """As the page writes it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value /= 1024
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"


class BrowserCase(PageCase):
    def look(self, width=1280, height=1420, dark=False):
        """The page of the job in a browser, once it shows a rank."""
        browser = Browser(self.folder, width, height, dark)
        entered = browser.__enter__()
        self.addCleanup(browser.__exit__)
        entered.open(trireme_test.read(self.log / "dashboard.url").strip())
        entered.wait("return document.querySelectorAll('#ranks-body tr').length", seconds=WAIT)
        return entered

    def end(self):
        self.job.signal(signal.SIGTERM)
        self.job.wait()

    def keep(self, browser, name):
        """The picture, as documentation where it is asked for; else it must only be small enough for it."""
        picture = self.folder / name
        browser.screenshot(picture)
        self.assertLess(picture.stat().st_size, MAX_PICTURE, name)
        if os.environ.get("TRIREME_PICTURES"):
            shutil.copy(picture, Path(os.environ["TRIREME_PICTURES"], name))

    def assert_calm(self, browser):
        """No script failed, the policy blocked nothing, and nobody else was asked."""
        self.assertEqual(browser.complaints(), [])
        self.assertLessEqual(browser.requests(), {"127.0.0.1"})


class Live(BrowserCase):
    def test_a_job_that_runs(self):
        self.begin(ranks=4, trainer=(FOREVER, 60))
        browser = self.look()
        first, line = browser.wait(STEP), browser.wait(LINES)
        browser.wait(f"const now = (() => {{ {STEP} }})(); return now > arguments[0] + 20", first)
        self.assertNotEqual(browser.script(LINES), line, "the curve has moved")
        names = browser.script("return [...document.querySelectorAll('.chart')].map(chart => chart.dataset.curve)")
        self.assertEqual(names[:2], ["loss", "accuracy"])
        rows = browser.script("return [...document.querySelectorAll('#ranks-body tr')].map(row => row.innerText.split(/\\t/))")
        self.assertEqual([row[0] for row in rows], ["0", "1", "2", "3"])
        for row in rows:
            self.assertEqual(row[2].strip(), "CPU")
            self.assertGreater(int(row[5].replace(",", "")), 0, row)
        colours = wait_for(lambda: (found := browser.script(COLOURS)) and all(found.values()) and found, WAIT, "all colours")
        self.assertGreater(colours["backward"], colours["call"])
        self.assertIn("all_reduce", browser.text("#operations-body"))
        self.assertIn("loss", browser.wait("return document.querySelector('#log').textContent"))
        self.assertEqual(browser.text("#state"), "running")
        self.wait_steps(150)
        browser.wait(f"const now = (() => {{ {STEP} }})(); return now > 150")
        self.keep(browser, "dashboard.png")
        browser.resize(1280, FIRST_SCREEN)
        self.keep(browser, "dashboard-first-screen.png")
        self.assert_calm(browser)
        self.end()

    def test_dark_and_light(self):
        self.begin(ranks=4, trainer=(FOREVER, 60))
        self.wait_steps(100)
        browser = self.look(dark=True)
        background = "return getComputedStyle(document.body).backgroundColor"
        browser.wait("return document.querySelector('[data-curve=loss] path.raw')")
        wait_for(lambda: browser.script(COLOURS)["backward"], WAIT, "the time line in dark colours")
        dark = browser.script(background)
        self.keep(browser, "dashboard-dark.png")
        browser.keys("d")
        self.assertNotEqual(browser.script(background), dark)
        browser.keys("d")
        self.assertEqual(browser.script(background), dark)
        self.assert_calm(browser)
        self.end()

    def test_a_narrow_window(self):
        self.begin(ranks=2, trainer=(FOREVER, 40))
        self.wait_steps(20)
        browser = self.look(width=500, height=1000)
        display = "return getComputedStyle(document.querySelector('#elapsed')).display"
        self.assertNotEqual(browser.script(display), "none")
        browser.emulate_size(400, 900)
        browser.wait("return innerWidth === 400 && document.querySelector('[data-curve=loss] path.raw')")
        self.assertEqual(browser.script(display), "none")
        browser.script("scrollTo(1000, 0)")
        self.assertEqual(browser.script("return scrollX"), 0, "the page scrolls sideways")
        self.assertEqual(browser.script("return document.documentElement.scrollWidth"), 400)
        box = browser.script("const box = document.querySelector('#ranks-box'); box.scrollLeft = 100000;"
                             "return { beside: box.scrollWidth - box.clientWidth, left: box.scrollLeft,"
                             " right: box.getBoundingClientRect().right }")
        self.assertGreater(box["beside"], 100, "the table is wider than the page")
        self.assertEqual(box["left"], box["beside"], "its last column can be reached")
        self.assertLessEqual(box["right"], 400)
        self.keep(browser, "dashboard-narrow.png")
        self.assert_calm(browser)
        self.end()

    def test_with_the_keyboard_alone(self):
        self.begin(ranks=12, trainer=(FOREVER, 100))
        self.wait_steps(3)
        browser = self.look()
        focused = "const e = document.activeElement; return e.id || e.closest('[data-rank]')?.dataset.rank || e.tagName"
        browser.keys("tab")
        self.assertEqual(browser.script("return document.activeElement.className"), "skip")
        browser.keys("r", "down", "down")
        self.assertEqual(browser.script(focused), "2")
        browser.keys("enter")
        self.assertEqual(browser.script("return document.querySelector('tr[aria-selected=true]').dataset.rank"), "2")
        browser.wait("return document.querySelector('#log').textContent.startsWith('rank 2 of 12')")
        browser.keys("end")
        self.assertEqual(browser.script(focused), "11")
        browser.keys("enter")
        browser.wait("return document.querySelector('#lanes').textContent.startsWith('ranks 4–11')")
        browser.keys("t", "up")
        browser.wait("return document.querySelector('#lanes').textContent.startsWith('ranks 3–10')")
        note = browser.text("#timeline-note")
        browser.keys("-")
        browser.wait("return document.querySelector('#timeline-note').innerText !== arguments[0]", note)
        browser.keys("l")
        self.assertEqual(browser.script(focused), "log")
        reachable = browser.script(
            "return [...document.querySelectorAll('button, select, input')].every(e => e.tabIndex === 0 && (e.labels?.length || e.textContent || e.ariaLabel))")
        self.assertTrue(reachable, "every control can be reached and has a name")
        self.assert_calm(browser)
        self.end()

    def test_the_keyboard_goes_from_span_to_span(self):
        self.begin(ranks=2, trainer=(FOREVER, 60))
        self.wait_steps(10)
        browser = self.look()
        wait_for(lambda: browser.script(COLOURS)["backward"], WAIT, "the time line")
        browser.click("#pause")
        tip = "const tip = document.querySelector('#tip'); return tip.hidden ? '' : tip.innerText"
        browser.keys("t")
        self.assertEqual(browser.script(tip), "")
        told = []
        for _ in range(4):
            browser.keys("right")
            told.append(browser.script(tip))
        self.assertEqual(len(set(told)), 4, told)
        for words in told:
            self.assertRegex(words, r"^\S.*: [\d.]+ (µs|ms|s)\nrank 0, step \d+$")
        self.assertEqual(browser.script("return document.querySelector('#timeline').getAttribute('aria-label')"), told[3])
        browser.keys("left")
        self.assertEqual(browser.script(tip), told[2])
        browser.keys("r")
        self.assertEqual(browser.script(tip), "", "it goes with the focus")
        self.assert_calm(browser)
        self.end()

    def test_ticks_of_a_curve_are_few(self):
        self.begin()
        browser = self.look()
        self.assertEqual(browser.script("return niceTicks(0, 3, 3)"), [0, 1, 2, 3])
        ticks = browser.script("return niceTicks(1e16, 1e16 + 2, 3)")  # a step of 1 does not change a double there
        self.assertEqual(ticks, sorted(set(ticks)))
        self.assertLessEqual(len(ticks), 4)
        self.end()

    def test_every_control_has_an_effect(self):
        self.begin(ranks=10, trainer=(FOREVER, 100))
        self.wait_steps(10)
        browser = self.look()
        browser.wait("return document.querySelector('[data-curve=loss] path.raw')?.getAttribute('d').includes('L')")
        self.control_time_line(browser)
        self.control_table(browser)
        browser.click("#smooth")  # in the middle
        browser.wait("return document.querySelector('[data-curve=loss] path.faint')")
        background = "return getComputedStyle(document.body).backgroundColor"
        light = browser.script(background)
        browser.click("#theme")
        self.assertNotEqual(browser.script(background), light)
        self.control_log(browser)
        self.assert_calm(browser)
        self.end()

    def control_time_line(self, browser):
        end = "return windowEnd()"
        browser.wait("return windowEnd() > 0")
        browser.click("#pause")
        browser.script("return refreshTimeline()")  # one may be on its way
        stands, step = browser.script(end), browser.script(STEP)
        browser.wait(f"const now = (() => {{ {STEP} }})(); return now > arguments[0] + 20", step)
        self.assertEqual(browser.script(end), stands, "it is paused")
        note = browser.text("#timeline-note")
        browser.click("#closer")
        closer = browser.text("#timeline-note")
        self.assertNotEqual(closer, note)
        browser.click("#wider")
        self.assertEqual(browser.text("#timeline-note"), note)
        browser.click("#later")  # other ranks are shown although it is paused
        browser.wait("return String(timeline.data.map(one => one.rank)) === '2,3,4,5,6,7,8,9'")
        self.assertEqual(browser.text("#lanes"), "ranks 2–9 of 10")
        self.assertTrue(browser.script("return document.querySelector('#later').disabled"))
        stands = browser.script(end)
        browser.click("#pause")
        browser.wait("return windowEnd() > arguments[0]", stands)

    def control_table(self, browser):
        first = "return document.querySelector('#ranks-body tr').dataset.rank"
        sort = "return document.querySelector('#ranks-head [data-column=%s]').getAttribute('aria-sort')"
        self.assertEqual((browser.script(first), browser.script(sort % "rank")), ("0", "ascending"))
        browser.click("#ranks-head [data-column=rank] button")
        self.assertEqual((browser.script(first), browser.script(sort % "rank")), ("9", "descending"))
        browser.click("#ranks-head [data-column=pid] button")
        self.assertEqual(browser.script(sort % "pid"), "ascending")
        pids = browser.script("return [...document.querySelectorAll('#ranks-body tr')].map(row => Number(row.children[3].textContent))")
        self.assertEqual(pids, sorted(pids))

    def control_log(self, browser):
        browser.click("#log-rank option[value='3']")
        browser.wait("return document.querySelector('#log').textContent.startsWith('rank 3 of 10')")
        longer = "const log = document.querySelector('#log'); return log.scrollHeight > log.clientHeight + 40"
        browser.wait(longer, seconds=WAIT)
        bottom = "const log = document.querySelector('#log'); return log.scrollTop + log.clientHeight >= log.scrollHeight - 2"
        browser.wait(bottom)
        browser.click("#follow")
        text = browser.script("const log = document.querySelector('#log'); log.scrollTop = 0; return log.textContent")
        browser.wait("return document.querySelector('#log').textContent !== arguments[0]", text)
        self.assertEqual(browser.script("return document.querySelector('#log').scrollTop"), 0, "it does not follow")
        browser.click("#follow")
        browser.wait(bottom)

    def test_256_ranks(self):
        self.begin(ranks=256, trainer=(FOREVER, 4000))
        browser = self.look()
        browser.wait("return document.querySelectorAll('#ranks-body tr').length === 256", seconds=WAIT)
        browser.wait("return document.querySelectorAll('#cells .good').length === 256", seconds=WAIT)
        # How long the page's own work on one refresh takes, without the network.
        milliseconds = browser.script(
            "const times = []; for (let i = 0; i < 5; ++i) { const start = performance.now(); updateHead(); updateTiles();"
            " updateRanks(state.ranks, null); drawTimeline(); document.body.offsetHeight; times.push(performance.now() - start); }"
            " return Math.min(...times)")
        self.assertLess(milliseconds, 100)
        refreshed = browser.wait(REFRESH)
        self.assertEqual(refreshed["asked"], ["api/curves", "api/log?rank=0", "api/state", "api/timeline?ranks=0,1,2,3,4,5,6,7"],
                         "four requests a refresh, however many ranks there are")
        self.assertLess(refreshed["milliseconds"], 200)
        self.assertLess(refreshed["bytes"], 2_000_000)
        browser.script("const find = document.querySelector('#find'); find.value = 'rank 200'; find.dispatchEvent(new Event('input'))")
        self.assertEqual(browser.script("return document.querySelectorAll('#ranks-body tr').length"), 1)
        browser.script("const find = document.querySelector('#find'); find.value = ''; find.dispatchEvent(new Event('input'))")
        browser.wait("return document.querySelector('[data-curve=\"samples/s\"] path.raw').getAttribute('d').includes('L')")
        self.keep(browser, "dashboard-256.png")
        self.assert_calm(browser)
        self.end()

    def test_the_token_in_the_address_is_forgotten(self):
        self.begin(address="0.0.0.0:0")
        browser = Browser(self.folder, 1000, 800)
        browser.__enter__()
        self.addCleanup(browser.__exit__)
        browser.open(f"http://127.0.0.1:{self.port}/")
        browser.wait("return document.querySelector('#state').textContent === 'locked'")
        self.assertIn("dashboard.url", browser.text("#notice"))
        browser.open("about:blank")
        browser.open(f"http://127.0.0.1:{self.port}/#token={self.token}")
        browser.wait("return document.querySelector('#state').textContent === 'running'")
        self.assertEqual(browser.script("return location.href"), f"http://127.0.0.1:{self.port}/")
        self.assertEqual(browser.script("return document.cookie"), "", "scripts cannot read it")
        self.end()


class Trouble(BrowserCase):
    def test_a_rank_that_is_killed(self):
        self.begin(ranks=4, trainer=(FOREVER, 40, "die=2@120"))
        self.wait_steps(10)
        browser = self.look()
        browser.wait("return document.querySelector('#state').textContent === 'failure'", seconds=WAIT)
        self.assertIn("Rank 2 on", browser.text("#failure-text"))
        self.assertIn("killed by signal 9", browser.script(
            "return document.querySelector('#ranks-body tr[data-rank=\"2\"]').innerText"))
        self.assertEqual(browser.script("return document.querySelectorAll('.dot8.bad').length"), 1)
        self.assertIn("stopped by the launcher", browser.text("#ranks-body"))
        self.assertEqual(self.job.wait().code, 137)
        self.keep(browser, "dashboard-failure.png")

    def test_a_hang(self):
        self.begin("--hang_timeout", "8s", ranks=4, trainer=(FOREVER, 30, "hang=3@40"))
        browser = self.look()
        words = browser.wait("const box = document.querySelector('#verdict'); return !box.hidden && box.innerText", seconds=WAIT)
        self.assertRegex(words, r"ranks 0-2 wait in all_reduce #\d+.* for rank 3 \(in the forward pass")
        self.assertEqual(browser.text("#state"), "waiting")
        self.assertIn("all_reduce", browser.script("return document.querySelector('#ranks-body tr[data-rank=\"0\"]').innerText"))
        self.keep(browser, "dashboard-hang.png")
        self.assert_calm(browser)
        self.end()

    def test_a_loss_that_is_not_a_number(self):
        self.begin(trainer=(FOREVER, 40, "nan=20"))
        self.wait_steps(10)
        browser = self.look()
        bad = browser.script("const probe = document.createElement('i'); probe.style.color = 'var(--bad)';"
                             "document.body.append(probe); return getComputedStyle(probe).color")
        for place in ("[data-tile=loss] b", "[data-curve=loss] b", "#ranks-body tr[data-rank='1'] td:nth-child(8)"):
            browser.wait("return document.querySelector(arguments[0])?.textContent === 'NaN'", place)
            self.assertEqual(browser.script("return getComputedStyle(document.querySelector(arguments[0])).color", place), bad)
        self.assertTrue(browser.script("return document.querySelector('[data-curve=loss] path.raw').getAttribute('d')"),
                        "the numbers before it stay")
        self.assertRegex(browser.text("[data-curve=accuracy] b"), r"^[\d.]+$")
        self.assert_calm(browser)
        self.end()

    def test_the_log_is_shown_to_its_end(self):
        self.begin(trainer=(120, 30))
        browser = self.look()
        browser.wait("return document.querySelector('#state').textContent === 'success'", seconds=WAIT)
        browser.wait("return document.querySelector('#log').textContent.endsWith('\\nrank 0 is done\\n')")
        self.assert_ends(self.job.wait(), 0)
        self.assert_calm(browser)

    def test_a_tab_in_the_background_learns_the_end(self):
        self.begin(trainer=(FOREVER, 30))
        self.wait_steps(3)
        browser = self.look()
        browser.script("Object.defineProperty(document, 'hidden', { get: () => true })")
        self.end()
        browser.wait("return document.querySelector('#state').textContent === 'interrupted'")
        self.assertIn("interrupted", browser.script("return document.title"))

    def test_a_tab_in_the_background_sees_that_the_launcher_is_gone(self):
        self.begin(trainer=(FOREVER, 30))
        self.wait_steps(3)
        browser = self.look()
        browser.script("Object.defineProperty(document, 'hidden', { get: () => true })")
        self.job.signal(signal.SIGKILL)
        self.job.wait()
        browser.wait("return document.querySelector('#state').textContent === 'no answer'")

    def test_a_launcher_that_is_gone(self):
        self.begin()
        self.wait_steps(3)
        browser = self.look()
        browser.wait("return document.querySelector('#state').textContent === 'running'")
        self.job.signal(signal.SIGKILL)
        self.job.wait()
        notice = browser.wait("const box = document.querySelector('#notice'); return !box.hidden && box.innerText")
        for words in ("has not answered since", "result.json", "trireme report"):
            self.assertIn(words, notice)
        self.assertEqual(browser.text("#state"), "no answer")


class NoTimeLine(BrowserCase):
    WORDS = "const box = document.querySelector('#no-timeline'); return box.hidden ? '' : box.innerText"

    def test_before_the_first_step(self):
        """Nobody knows yet whether the program records steps."""
        self.job = self.start("-n", 2, "--dashboard", 0, "--quiet", "sh", "-c", trireme_test.FOREVER)
        self.wait_file("log/dashboard.url", WAIT)
        browser = self.look()
        words = browser.wait(self.WORDS)
        self.assertIn("No step yet", words)
        self.assertNotIn("does not use", words)
        browser.script("state.ranks.forEach(rank => { rank.records = true; }); drawTimeline()")
        self.assertEqual(browser.script(self.WORDS), "No step yet.")
        self.end()

    def test_of_a_program_that_has_ended_without_steps(self):
        self.assert_ends(self.launch("-n", 1, "--quiet", "true"), 0)
        self.assert_ends(self.start_command([TRIREME, "report", self.log]).wait(), 0)
        with Browser(self.folder, 1280, 1400) as browser:
            browser.open((self.log / "report.html").as_uri())
            self.assertIn("the program does not use Trireme", browser.wait(self.WORDS))

    def test_of_ranks_that_a_report_does_not_keep(self):
        """history.json has the time lines of 64 ranks."""
        self.assert_ends(self.launch("-n", 1, "--quiet", os.environ["FAKE_TRAINER"], 20, 20), 0)
        history = json.loads(read(self.log / "history.json"))
        (first,) = history["state"]["ranks"]
        history["state"]["ranks"] = [{**first, "rank": rank} for rank in range(80)]
        history["state"]["world_size"] = 80
        (self.log / "history.json").write_text(json.dumps(history))
        self.assert_ends(self.start_command([TRIREME, "report", self.log]).wait(), 0)
        with Browser(self.folder, 1280, 1400) as browser:
            browser.open((self.log / "report.html").as_uri())
            browser.wait("return document.querySelectorAll('#ranks-body tr').length === 80")
            browser.script("timeline.first = 72; return refreshTimeline()")
            self.assertEqual(browser.wait(self.WORDS), "The time lines of these ranks are not kept in a report.")


class Report(BrowserCase):
    def assert_collectives(self, browser, ranks, steps, ms):
        """The table of a job of fake_trainer that is done: two buckets and a sum of metrics in each step of each rank."""
        (row,) = browser.script("return [...document.querySelectorAll('#operations-body tr')].map(row => "
                                "[...row.children].map(cell => cell.textContent))")
        (operation,) = json.loads(read(self.log / "history.json"))["state"]["operations"]
        size = ranks * steps * 4 * ((1 << 20) + 300_000 + 2)
        self.assertEqual((operation["count"], operation["bytes"]), (ranks * steps * 3, size))
        least = ranks * steps * ms / 1000 * (2 * 0.14 + 0.03)
        self.assertGreater(operation["seconds"], least, "what the trainer has spent in them")
        self.assertEqual((row[0], row[1], row[2]), ("all_reduce", str(ranks * steps * 3), bytes_words(size)))
        self.assertEqual(row[5], f"{bytes_words(size / operation['seconds'])}/s")

    def test_a_report_is_the_page_without_a_server(self):
        self.assert_ends(self.launch("-n", 3, "--quiet", os.environ["FAKE_TRAINER"], 80, 20), 0)
        self.assert_ends(self.start_command([TRIREME, "report", self.log]).wait(), 0)
        with Browser(self.folder, 1280, 1400) as browser:
            browser.open((self.log / "report.html").as_uri())
            browser.wait("return document.querySelectorAll('#ranks-body tr').length === 3")
            browser.wait("return document.querySelector('[data-curve=loss] path.raw')")
            self.assertEqual(browser.text("#state"), "success")
            self.assertTrue(all(browser.script(COLOURS).values()))
            self.assert_collectives(browser, ranks=3, steps=80, ms=20)
            self.assertIn("rank 0 is done", browser.text("#log"))
            self.assertEqual(browser.complaints(), [])
            self.assertEqual(browser.requests(), set())


if __name__ == "__main__":
    trireme_test.main()
