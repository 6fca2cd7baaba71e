// Starts the language server for .tessera files and restarts it on request.
// The server's path is a setting of the machine, never of a folder; an untrusted folder
// gets colours only.

import { existsSync } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";

import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

let client: LanguageClient | undefined;
let output: vscode.OutputChannel;

// The first `name` on the PATH. Folders that are not absolute are left out, and so is the
// working folder, which Windows would search first: a workspace must not choose what is run.
function onPath(name: string): string | undefined {
  const file = process.platform === "win32" ? `${name}.exe` : name;
  return (process.env.PATH ?? "")
    .split(delimiter)
    .filter(isAbsolute)
    .map((folder) => join(folder, file))
    .find(existsSync);
}

function serverOptions(): ServerOptions {
  const settings = vscode.workspace.getConfiguration("tessera");
  const chosen = settings.inspect<string>("server.path")?.globalValue;
  const args = settings.inspect<string[]>("server.arguments")?.globalValue ?? [];
  if (chosen && !isAbsolute(chosen)) {
    throw new Error(`tessera.server.path is no absolute path: ${chosen}`);
  }
  const command = chosen || onPath("tessera-lsp");
  if (!command) {
    throw new Error("there is no tessera-lsp on the PATH");
  }
  return { command, args, options: { shell: false } };
}

async function start(): Promise<void> {
  if (client || !vscode.workspace.isTrusted) {
    return;
  }
  const options: LanguageClientOptions = {
    documentSelector: [
      { language: "tessera", scheme: "file" },
      { language: "tessera", scheme: "untitled" },
    ],
    outputChannel: output,
    synchronize: { configurationSection: "tessera" },
  };
  try {
    client = new LanguageClient("tessera", "Tessera", serverOptions(), options);
    await client.start();
  } catch (error) {
    client = undefined;
    const choice = await vscode.window.showErrorMessage(
      `The Tessera language server did not start: ${error}. ` +
        "Install it with `pip install 'tessera-lang[lsp]'`, or set tessera.server.path.",
      "Open settings",
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "tessera.server.path");
    }
  }
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  await running?.stop();
}

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  output = vscode.window.createOutputChannel("Tessera");
  context.subscriptions.push(
    output,
    vscode.commands.registerCommand("tessera.restartServer", async () => {
      await stop();
      await start();
    }),
    vscode.commands.registerCommand("tessera.showOutput", () => output.show()),
    vscode.workspace.onDidGrantWorkspaceTrust(start),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("tessera.server")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await stop();
}
