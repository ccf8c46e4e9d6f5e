"""The browser that drives the page: the distribution's Chromium without a window, and words for what a reader does."""

import contextlib
import pathlib
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

#: Runs before the page does, and collects what must not happen.
WATCH = """
// Each page begins with nothing kept, but what a reload keeps.
if (location.protocol === "http:" && performance.getEntriesByType("navigation")[0].type === "navigate") sessionStorage.clear();
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
window.failures = [];
addEventListener("error", (event) => window.failures.push(String(event.message)));
addEventListener("unhandledrejection", (event) => window.failures.push(String(event.reason)));
window.longTasks = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.longTasks.push(entry.duration)))
  .observe({ entryTypes: ["longtask"] });
"""


class Browser:
    """A Chromium with a folder for what it saves."""

    def __init__(self, downloads, chromium="/usr/bin/chromium", driver="/usr/bin/chromedriver"):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900", "--force-color-profile=srgb"]:
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads), "download.prompt_for_download": False})
        self.downloads = pathlib.Path(downloads)
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        self.driver.set_script_timeout(60)

    def close(self):
        self.driver.quit()

    def emulate(self, scheme="light", motion="no-preference", width=1280, height=900, mobile=False):
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, url):
        self.driver.get(url)
        self.until("return document.querySelector('#settings .field') !== null", "the settings are there")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, script, what, seconds=20):
        """Waits until a script returns something true, and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"waited {seconds} s in vain: {what}")

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, text, within="body"):
        """Clicks the button of that text which can be seen."""
        for button in self.one(within).find_elements(By.CSS_SELECTOR, "button, summary"):
            if button.text == text and button.is_displayed():
                self.js("arguments[0].scrollIntoView({block: 'center'})", button)
                return self.js("arguments[0].click()", button)
        raise AssertionError(f"no button {text!r} can be seen")

    def mode(self, name):
        self.one(f"#tab-{name}").click()

    def send(self, text):
        box = self.one("#text")
        box.clear()
        box.send_keys(text, Keys.CONTROL + Keys.ENTER)

    def pace(self, value):
        """Chooses the pace of the last card's player."""
        self.js("const all = document.querySelectorAll('.card'); const pace = all[all.length - 1].querySelector('select');"
                "pace.value = arguments[0]; pace.dispatchEvent(new Event('change'))", value)

    def done(self, seconds=30):
        """Waits until the last card is over and shown to its end."""
        self.until("const all = document.querySelectorAll('.card'); const card = all[all.length - 1];"
                   "return card && card.getAttribute('aria-busy') === 'false' && card.querySelector('.play').textContent === 'Play'",
                   "the answer is over", seconds)

    def canvas(self, number=-1):
        """Returns the text of a canvas as it is drawn."""
        return self.js("const all = [...document.querySelectorAll('.canvas')]; return [...all.at(arguments[0]).querySelectorAll('.lead, .token')]"
                       ".filter((each) => !each.matches('.mask, .unused')).map((each) => each.textContent).join('')", number)

    def clean(self):
        """Fails if the page broke a policy or a script failed."""
        violations, failures = self.js("return [window.violations, window.failures]")
        assert not violations, f"policy violations: {violations}"
        assert not failures, f"scripts failed: {failures}"

    def saved(self, seconds=10):
        """Waits for the file that was saved, and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            files = [file for file in self.downloads.iterdir() if file.suffix == ".jsonl"]
            if files:
                return files[0]
            time.sleep(0.05)
        raise AssertionError("nothing was saved")

    def shot(self, path):
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def browser(downloads, **programs):
    driven = Browser(downloads, **programs)
    try:
        yield driven
    finally:
        driven.close()
