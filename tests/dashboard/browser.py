"""Debian's Chromium, driven by chromedriver over its W3C WebDriver protocol, with Python's standard library alone.

    with Browser(folder, width=1280, height=900) as browser:
        browser.open("http://127.0.0.1:8080/")
        browser.wait("return document.querySelector('#state').textContent === 'running'")
"""

import base64
import http.client
import json
import shutil
import subprocess
import urllib.parse
from pathlib import Path

from trireme_test import SANITIZED, free_port, wait_for

SECONDS = 60 if SANITIZED else 30
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--force-color-profile=srgb")
KEYS = {"tab": "\ue004", "enter": "\ue007", "escape": "\ue00c", "left": "\ue012", "up": "\ue013", "right": "\ue014",
        "down": "\ue015", "end": "\ue010"}


class Browser:
    def __init__(self, folder, width, height, dark=False):
        self._folder, self._size, self._dark = folder, (width, height), dark

    def __enter__(self):
        for program in ("chromium", "chromedriver"):
            if not shutil.which(program):
                raise AssertionError(f"{program} is missing: run setup/setup.sh test")
        self._port = free_port()
        with open(Path(self._folder, "chromedriver.log"), "wb") as log:
            self._driver = subprocess.Popen(["chromedriver", f"--port={self._port}"], stdout=log, stderr=log)
        try:
            wait_for(self._answers, SECONDS, "chromedriver")
            self._session = self._new_session()
        except BaseException:
            self._end_driver()
            raise
        return self

    def __exit__(self, *_):
        try:
            self._ask("DELETE", "")
        finally:
            self._end_driver()

    def _end_driver(self):
        self._driver.terminate()
        self._driver.wait()

    def _answers(self):
        try:
            return self._call("GET", "/status")["ready"]
        except OSError:
            return False

    def _new_session(self):
        profile = Path(self._folder, "profile")
        arguments = [*QUIET, f"--user-data-dir={profile}", f"--window-size={self._size[0]},{self._size[1]}"]
        if self._dark:
            arguments.append("--blink-settings=preferredColorScheme=0")
        chrome = {"binary": shutil.which("chromium"), "args": arguments}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}}})
        return made["sessionId"]

    def _call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * SECONDS)
        try:
            connection.request(method, path, None if method == "GET" else json.dumps(body or {}))
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{path}: {value['message']}")
        return value

    def _ask(self, method, path, body=None):
        return self._call(method, f"/session/{self._session}{path}", body)

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def script(self, code, *arguments):
        """What the code of a function returns, run in the page."""
        return self._ask("POST", "/execute/sync", {"script": code, "args": arguments})

    def wait(self, code, *arguments, seconds=SECONDS):
        """Until the code returns something true; returns it."""
        return wait_for(lambda: self.script(code, *arguments), seconds, lambda: f"{code}; the page:\n{self.text('body')}")

    def text(self, selector):
        return self.script("const found = document.querySelector(arguments[0]); return found ? found.innerText : null", selector)

    def keys(self, *names):
        """Presses the keys, one after the other; single letters stand for themselves."""
        actions = []
        for name in names:
            value = KEYS.get(name, name)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def resize(self, width, height):
        """Of the window; the page is less high than it."""
        self._ask("POST", "/window/rect", {"width": width, "height": height})

    def emulate_size(self, width, height):
        """Of the page itself: a window cannot be narrower than 500 pixels."""
        self._ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}})

    def click(self, selector):
        """As a user does: the element must be visible, and nothing may lie on it."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        (identifier,) = found.values()
        self._ask("POST", f"/element/{identifier}/click")

    def complaints(self):
        """What the console has said since the last time: errors of scripts, and what the page's policy has blocked."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self):
        """The hosts that the page has asked."""
        urls = self.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        return {urllib.parse.urlsplit(url).hostname for url in urls}
