// Where the language server is: the one that was set, that of the selected Python interpreter, that
// of the folder's .venv once it was allowed, or the first on the PATH. A workspace never chooses
// by itself what is run.

import { existsSync } from "node:fs";
import { delimiter, dirname, isAbsolute, join } from "node:path";

import * as vscode from "vscode";

const windows = process.platform === "win32";
const ALLOWED = "tessera.allowed:";

function program(name: string): string {
  return windows ? `${name}.exe` : name;
}

// The first `name` on the PATH. Folders that are not absolute are left out, and so is the
// working folder, which Windows would search first: a workspace must not choose what is run.
function onPath(name: string): string | undefined {
  return (process.env.PATH ?? "")
    .split(delimiter)
    .filter(isAbsolute)
    .map((folder) => join(folder, program(name)))
    .find(existsSync);
}

interface PythonExtension {
  environments?: { getActiveEnvironmentPath(resource?: vscode.Uri): { path: string } | undefined };
}

// Beside the interpreter that the user selected with the Python extension.
async function besidePython(name: string): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonExtension>("ms-python.python");
  if (!extension) {
    return undefined;
  }
  try {
    const api = extension.isActive ? extension.exports : await extension.activate();
    const chosen = api?.environments?.getActiveEnvironmentPath(folder()?.uri)?.path;
    if (!chosen || !isAbsolute(chosen)) {
      return undefined;
    }
    const folders = [dirname(chosen), join(chosen, windows ? "Scripts" : "bin")];
    return folders.map((f) => join(f, program(name))).find(existsSync);
  } catch {
    return undefined;
  }
}

function folder(): vscode.WorkspaceFolder | undefined {
  return vscode.workspace.workspaceFolders?.[0];
}

// That of the folder's .venv, where the user said that it may be run.
async function ofFolder(
  name: string,
  memory: vscode.Memento,
  ask: boolean,
): Promise<string | undefined> {
  const found = (vscode.workspace.workspaceFolders ?? [])
    .map((f) => join(f.uri.fsPath, ".venv", windows ? "Scripts" : "bin", program(name)))
    .find(existsSync);
  if (!found) {
    return undefined;
  }
  const key = ALLOWED + found;
  if (memory.keys().includes(key)) {
    return found;
  }
  if (!ask) {
    return undefined;
  }
  const yes = "Use it";
  const choice = await vscode.window.showInformationMessage(
    `This folder has a Tessera language server of its own: ${found}. Use it?`,
    yes,
    "No",
  );
  if (choice !== yes) {
    return undefined;
  }
  await memory.update(key, true);
  return found;
}

export interface Found {
  command: string;
  origin: string;
}

export async function findServer(
  chosen: string | undefined,
  memory: vscode.Memento,
): Promise<Found | undefined> {
  if (chosen) {
    if (!isAbsolute(chosen)) {
      throw new Error(`tessera.server.path is no absolute path: ${chosen}`);
    }
    return { command: chosen, origin: "the setting tessera.server.path" };
  }
  const name = "tessera-lsp";
  const python = await besidePython(name);
  if (python) {
    return { command: python, origin: "the selected Python interpreter" };
  }
  const path = onPath(name);
  const own = await ofFolder(name, memory, true);
  if (own) {
    return { command: own, origin: "the .venv of the folder" };
  }
  return path ? { command: path, origin: "the PATH" } : undefined;
}

// The compiler's command line that belongs to a server.
export function compilerOf(server: string): string {
  const beside = join(dirname(server), program("tesserac"));
  return existsSync(beside) ? beside : (onPath("tesserac") ?? "tesserac");
}
