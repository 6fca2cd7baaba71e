// The way of docs/editor-path.md: a kernel with three mistakes, mended and made fast by keys. What is
// seen on it is written to $TESSERA_OUT, and pictures where $PICTURES names a folder.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Editor } from "./editor.mjs";

const out = {};
const editor = await Editor.start();
const has = (text) => (rows) => rows.some((row) => row.includes(text));

// The code of a stage beside the text, and what of it is marked for the cursor's line.
async function shown(stage) {
  await editor.command("Tessera: Show IR or Code Beside");
  await editor.pick(stage, stage);
  const tab = `.tab[data-resource-name="turned.${stage}"]`;
  const [told] = await editor.when(`${tab}, .notification-list-item-message`, (rows) => rows.length);
  if (!told.includes(stage)) return null; // a tool is missing
  await editor.at(11, 9);
  const marked = ".view-overlays .cdr[class*='TextEditorDecorationType']";
  await editor.page.waitForSelector(marked);
  if (stage === "sass") await editor.picture(stage);
  const lines = await editor.page.locator(marked).count();
  return { lines, texts: await editor.texts(".split-view-view:nth-child(2) .view-line") };
}

try {
  await editor.open("turned.tessera");
  await editor.press("Control+Shift+m");
  out.first = await editor.problems(has("mut"));
  await editor.press("Control+1");

  // The first mistake: its fix.
  await editor.at(11, 9);
  await editor.press("Control+.");
  out.fixes = await editor.when(".action-widget .monaco-list-row.action", has("mut"));
  await editor.picture("fix");
  await editor.press("Enter");

  // The second: the barrier moves out of the condition.
  out.second = await editor.problems(has("barrier"));
  await editor.at(8, 9);
  await editor.picture("barrier");
  await editor.press("Control+[");

  // The third: rows of 33 words, and the memory that they take.
  out.third = await editor.problems(has("bank conflict"));
  out.before = await editor.when(".codelens-decoration", has("2 groups"));
  await editor.picture("conflict");
  await editor.at(3, 25);
  await editor.press("Control+Shift+Space");
  out.signature = await editor.when(".parameter-hints-widget .signature", has("shape"));
  await editor.picture("signature");
  await editor.press("Escape");
  await editor.at(3, 31);
  await editor.press("Delete");
  await editor.type("3");
  out.more = await editor.problems(has("4224 bytes"));
  await editor.at(1, 31);
  await editor.press("Delete");
  await editor.type("5");

  // Right and fast: nothing is left to say.
  await editor.when(".markers-panel .message-box-container", has("No problems"));
  await editor.when(".codelens-decoration", has("4224 bytes"));
  await editor.command("Tessera: Ask the Assembler What the Kernels Take");
  out.after = await editor.when(".codelens-decoration", (rows) => /\d registers,|registers are not known:/.test(rows.join()));
  out.hints = await editor.texts(".view-line");
  await editor.press("Control+j");

  // What runs, and what of it is beside the text.
  await editor.press("Control+s");
  await editor.command("Tessera: Run This File");
  out.ran = await editor.when(".output-view .view-line", has("exit code"));
  await editor.picture("run");
  await editor.press("Control+j");
  for (const stage of ["ptx", "sass"]) {
    out[stage] = await shown(stage);
  }
  out.text = readFileSync(join(process.env.FOLDER, "turned.tessera"), "utf8");
} catch (fault) {
  out.fault = String(fault.stack ?? fault);
  await editor.picture("fault");
} finally {
  await editor.stop();
}
writeFileSync(process.env.TESSERA_OUT, JSON.stringify(out, null, 1));
