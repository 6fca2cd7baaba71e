// A VS Code whose window is a page of a browser without a screen: what starts it, and what a user
// does in it by keys. Everything that is looked for is waited for.

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { VSCODE, FOLDER, HOME_FOLDER, VSIX, SERVER, CHROMIUM, PICTURES } = process.env;
const WAIT = 40_000;

const settings = {
  "tessera.server.path": SERVER,
  "breadcrumbs.enabled": false,
  "editor.fontFamily": "DejaVu Sans Mono",
  "editor.hover.delay": 100,
  "editor.minimap.enabled": false,
  "editor.renderLineHighlight": "none",
  "editor.scrollBeyondLastLine": false,
  "files.autoSave": "afterDelay",
  "files.autoSaveDelay": 200,
  "telemetry.telemetryLevel": "off",
  "window.commandCenter": false,
  "workbench.colorTheme": "Default Light Modern",
  "workbench.editor.enablePreview": false,
  "workbench.layoutControl.enabled": false,
  "workbench.startupEditor": "none",
  "workbench.statusBar.visible": true,
};

function codeServer(args) {
  const data = join(HOME_FOLDER, "data");
  mkdirSync(join(data, "User"), { recursive: true });
  writeFileSync(join(data, "User", "settings.json"), JSON.stringify(settings));
  const folders = ["--user-data-dir", data, "--extensions-dir", join(HOME_FOLDER, "extensions")];
  const program = join(VSCODE, "node_modules", "code-server", "out", "node", "entry.js");
  return spawn(process.execPath, [program, ...folders, ...args], {
    env: { ...process.env, HOME: HOME_FOLDER, XDG_CONFIG_HOME: HOME_FOLDER, PASSWORD: undefined },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

function until(child, pattern) {
  let said = "";
  return new Promise((resolve, reject) => {
    const read = (data) => {
      said += data;
      const found = said.match(pattern);
      if (found) resolve(found);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", (code) => reject(new Error(`code-server ended with ${code}: ${said}`)));
  });
}

export class Editor {
  // The extension installed from its package, and the folder open.
  static async start({ width = 1000, height = 640 } = {}) {
    await until(codeServer(["--install-extension", VSIX]), /successfully installed/);
    const server = codeServer([
      "--auth", "none", "--bind-addr", "127.0.0.1:0", "--disable-workspace-trust",
      "--disable-telemetry", "--disable-update-check",
    ]);
    const [, address] = await until(server, /listening on (http:\/\/[\d.:]+)/);
    const { chromium } = createRequire(join(VSCODE, "node_modules", "x"))("playwright-core");
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    const page = await browser.newPage({ viewport: { width, height }, deviceScaleFactor: 1.5 });
    page.setDefaultTimeout(WAIT);
    const editor = new Editor(server, browser, page);
    try {
      await page.goto(`${address}/?folder=${FOLDER}`);
      await page.waitForSelector(".explorer-folders-view .monaco-list-row");
      await editor.press("Control+b"); // no list of files
    } catch (fault) {
      await editor.picture("fault");
      await editor.stop();
      throw fault;
    }
    return editor;
  }

  constructor(server, browser, page) {
    Object.assign(this, { server, browser, page });
  }

  async stop() {
    await this.browser.close();
    this.server.kill();
  }

  press(...keys) {
    return keys.reduce((before, key) => before.then(() => this.page.keyboard.press(key)), Promise.resolve());
  }

  async type(text) {
    await this.page.keyboard.type(text, { delay: 20 });
  }

  async sleep(milliseconds) {
    await this.page.waitForTimeout(milliseconds);
  }

  async picture(name, clip) {
    if (PICTURES) {
      const { width, height } = this.page.viewportSize();
      await this.page.mouse.move(width / 2, height - 100);
      await this.sleep(700); // what fades in
      await this.page.screenshot({ path: join(PICTURES, `${name}.png`), clip });
    }
  }

  // The texts of what a selector finds, as a user reads them.
  async texts(selector) {
    const found = await this.page.locator(selector).allInnerTexts();
    return found.map((text) => text.replace(/[\u00a0\u200c\s]+/g, " ").trim());
  }

  // Waits until the texts of a selector are such, and gives them.
  async when(selector, such) {
    const end = Date.now() + WAIT;
    for (;;) {
      const found = await this.texts(selector);
      if (such(found)) return found;
      if (Date.now() > end) throw new Error(`waited too long for ${selector}: ${JSON.stringify(found)}`);
      await this.sleep(50);
    }
  }

  async pick(text, row) {
    const input = ".quick-input-widget .quick-input-box input";
    await this.page.waitForSelector(input, { state: "visible" });
    await this.page.fill(input, text);
    await this.page.locator(".quick-input-list .monaco-list-row", { hasText: row }).first().click();
  }

  async open(name) {
    await this.press("Control+p");
    await this.pick(name, name);
    await this.page.waitForSelector(`.tab.active[data-resource-name="${name}"]`);
  }

  async command(title) {
    await this.press("F1");
    await this.pick(`>${title}`, title);
  }

  // The cursor at a line and column, both from 1.
  async at(line, column) {
    await this.press("Control+g");
    const input = ".quick-input-widget .quick-input-box input";
    await this.page.waitForSelector(input, { state: "visible" });
    await this.page.fill(input, `:${line}:${column}`);
    await this.press("Enter");
    await this.page.waitForSelector(".quick-input-widget", { state: "hidden" });
  }

  // The rows of the Problems panel.
  problems(such) {
    return this.when(".markers-panel-container .monaco-list-row, .markers-panel .monaco-list-row", such);
  }
}
