// Tasks of a workspace: check, test and format with the command line of the server that runs.

import * as vscode from "vscode";

const KIND = "tessera";
const WORDS: Record<string, string[]> = {
  check: ["check", "--format=short"],
  lint: ["check", "--lints", "--format=short"],
  test: ["test", "--format=short"],
  format: ["fmt", "."],
};

export function tasks(compiler: () => string | undefined): vscode.Disposable {
  const made = (definition: vscode.TaskDefinition, scope: vscode.WorkspaceFolder | vscode.TaskScope) => {
    const name = String(definition.task);
    const program = compiler();
    if (!program || !(name in WORDS)) {
      return undefined;
    }
    const words = [...WORDS[name], ...((definition.files as string[] | undefined) ?? [])];
    const run = new vscode.ProcessExecution(program, words);
    const task = new vscode.Task(definition, scope, name, KIND, run, ["$tesserac"]);
    task.group = name === "test" ? vscode.TaskGroup.Test : vscode.TaskGroup.Build;
    return task;
  };
  return vscode.tasks.registerTaskProvider(KIND, {
    provideTasks: () =>
      (vscode.workspace.workspaceFolders ?? []).flatMap((folder) =>
        Object.keys(WORDS).flatMap((task) => made({ type: KIND, task }, folder) ?? []),
      ),
    resolveTask: (task) => made(task.definition, task.scope ?? vscode.TaskScope.Workspace) as vscode.Task,
  });
}
