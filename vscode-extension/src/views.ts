// What the compiler makes of a kernel, beside its source: the cursor goes with it both ways.

import * as vscode from "vscode";

export const SCHEME = "tessera-code";
const STAGES = [
  { label: "tile", description: "Tile IR" },
  { label: "schedule", description: "Schedule IR of a tile kernel" },
  { label: "ptx", description: "PTX" },
  { label: "sass", description: "machine code (needs ptxas and nvdisasm)" },
];

export interface Shown {
  kernel: string;
  stage: string;
  arch: string;
  text: string;
  lines: number[];
}

interface View {
  source: string;
  lines: number[];
  text: string;
}

export class Views implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly views = new Map<string, View>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly mark = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor("editor.wordHighlightBackground"),
  });
  private readonly subscriptions: vscode.Disposable[];

  constructor() {
    this.subscriptions = [
      this.changed,
      this.mark,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.window.onDidChangeTextEditorSelection((event) => this.follow(event.textEditor)),
      vscode.workspace.onDidCloseTextDocument((d) => this.views.delete(d.uri.toString())),
    ];
  }

  dispose(): void {
    this.subscriptions.forEach((s) => s.dispose());
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.view(uri)?.text ?? "";
  }

  private view(uri: vscode.Uri): View | undefined {
    return this.views.get(uri.toString());
  }

  async stage(): Promise<string | undefined> {
    const picked = await vscode.window.showQuickPick(STAGES, { title: "What to show" });
    return picked?.label;
  }

  async show(source: string, shown: Shown): Promise<void> {
    const name = `${shown.kernel}.${shown.stage}`;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${name}`, query: source });
    this.views.set(uri.toString(), { source, lines: shown.lines, text: shown.text });
    this.changed.fire(uri);
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, {
      viewColumn: vscode.ViewColumn.Beside,
      preserveFocus: true,
      preview: true,
    });
    const editor = vscode.window.visibleTextEditors.find((e) => e.document.uri.toString() === source);
    if (editor) {
      this.follow(editor);
    }
  }

  // Marks, on the other side, what belongs to the line of the cursor.
  private follow(editor: vscode.TextEditor): void {
    const line = editor.selection.active.line;
    const uri = editor.document.uri.toString();
    const own = this.view(editor.document.uri);
    for (const other of vscode.window.visibleTextEditors) {
      const theirs = this.view(other.document.uri);
      if (own && other.document.uri.toString() === own.source) {
        this.marked(other, own.lines[line] >= 0 ? [own.lines[line]] : []);
      } else if (theirs && theirs.source === uri) {
        const found = theirs.lines.flatMap((l, i) => (l === line ? [i] : []));
        this.marked(other, found);
      }
    }
  }

  private marked(editor: vscode.TextEditor, lines: number[]): void {
    editor.setDecorations(this.mark, lines.map((l) => new vscode.Range(l, 0, l, 0)));
    if (lines.length) {
      const range = new vscode.Range(lines[0], 0, lines[0], 0);
      editor.revealRange(range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
    }
  }
}
