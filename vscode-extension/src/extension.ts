// Starts the language server for .tessera files and restarts it on request.
// The server's path is a setting of the machine, never of a folder; an untrusted folder
// gets colours only.

import * as vscode from "vscode";
import {
  ExecuteCommandSignature,
  LanguageClient,
  LanguageClientOptions,
  State,
} from "vscode-languageclient/node";

import { compilerOf, findServer } from "./server";
import { tasks } from "./tasks";
import { Shown, Views } from "./views";

let client: LanguageClient | undefined;
let compiler: string | undefined;
let output: vscode.OutputChannel;
let status: vscode.LanguageStatusItem;
let views: Views;

interface Argument {
  uri?: string;
  kernel?: string;
  stage?: string;
  position?: { line: number; character: number };
}

// The file and place of the editor in front, for commands from the palette.
function here(): Argument {
  const editor = vscode.window.activeTextEditor;
  if (editor?.document.languageId !== "tessera") {
    return {};
  }
  const { line, character } = editor.selection.active;
  return { uri: editor.document.uri.toString(), position: { line, character } };
}

// Commands of the server, and what is done with what they give.
async function executed(
  command: string,
  args: unknown[],
  next: ExecuteCommandSignature,
): Promise<unknown> {
  const given = (args[0] ?? here()) as Argument;
  if (!given.uri && command !== "tessera.toggleRemarks") {
    void vscode.window.showInformationMessage("No .tessera file is open in front.");
    return undefined;
  }
  if (command === "tessera.viewIr" && !given.stage) {
    const stage = await views.stage();
    if (!stage) {
      return undefined;
    }
    return executed(command, [{ ...given, stage }], next);
  }
  try {
    const found = await next(command, [given]);
    if (command === "tessera.viewIr") {
      await views.show(given.uri!, found as Shown);
    } else if (command === "tessera.run" || command === "tessera.test") {
      const ran = found as { code: number; output: string };
      output.appendLine(ran.output.trimEnd());
      output.appendLine(`(exit code ${ran.code})`);
      output.show(true);
    } else if (command === "tessera.toggleRemarks") {
      vscode.window.setStatusBarMessage(`Tessera: remarks ${found ? "on" : "off"}`, 3000);
    }
    return found;
  } catch (error) {
    void vscode.window.showWarningMessage(`Tessera: ${(error as Error).message}`);
    return undefined;
  }
}

function told(text: string, severity: vscode.LanguageStatusSeverity, detail = ""): void {
  status.text = text;
  status.detail = detail;
  status.severity = severity;
}

async function start(context: vscode.ExtensionContext): Promise<void> {
  if (client || !vscode.workspace.isTrusted) {
    return;
  }
  const settings = vscode.workspace.getConfiguration("tessera");
  const chosen = settings.inspect<string>("server.path")?.globalValue;
  const args = settings.inspect<string[]>("server.arguments")?.globalValue ?? [];
  const options: LanguageClientOptions = {
    documentSelector: [
      { language: "tessera", scheme: "file" },
      { language: "tessera", scheme: "untitled" },
    ],
    outputChannel: output,
    initializationOptions: { run: true },
    synchronize: { configurationSection: "tessera" },
    middleware: { executeCommand: executed },
  };
  try {
    const found = await findServer(chosen, context.workspaceState);
    if (!found) {
      throw new Error(
        "there is none beside the selected Python interpreter, in the folder's .venv, or on the PATH",
      );
    }
    const { command, origin } = found;
    compiler = compilerOf(command);
    client = new LanguageClient("tessera", "Tessera", { command, args, options: { shell: false } }, options);
    client.onDidChangeState(({ newState }) => {
      if (newState === State.Running) {
        told("Tessera", vscode.LanguageStatusSeverity.Information, `server of ${origin}`);
      } else if (newState === State.Stopped) {
        told("Tessera: stopped", vscode.LanguageStatusSeverity.Warning, command);
      }
    });
    told("Tessera: starting", vscode.LanguageStatusSeverity.Information, command);
    await client.start();
  } catch (error) {
    client = undefined;
    told("Tessera: no server", vscode.LanguageStatusSeverity.Error, String(error));
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
  status = vscode.languages.createLanguageStatusItem("tessera", { language: "tessera" });
  status.name = "Tessera";
  status.command = { title: "Restart", command: "tessera.restartServer" };
  views = new Views();
  const restart = async () => {
    await stop();
    await start(context);
  };
  context.subscriptions.push(
    output,
    status,
    views,
    tasks(() => compiler),
    vscode.commands.registerCommand("tessera.restartServer", restart),
    vscode.commands.registerCommand("tessera.showOutput", () => output.show()),
    vscode.workspace.onDidGrantWorkspaceTrust(() => start(context)),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("tessera.server")) {
        await restart();
      }
    }),
  );
  await start(context);
}

export async function deactivate(): Promise<void> {
  await stop();
}
