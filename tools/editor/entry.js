// The JSON editor of the Studio: CodeMirror 6, for a shadow root, where it needs no inline styles.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json, jsonParseLinter } from "@codemirror/lang-json";
import {
  bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, syntaxHighlighting,
} from "@codemirror/language";
import { linter, lintGutter, lintKeymap } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import {
  drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--info)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
]);

const theme = EditorView.theme({
  "&": {
    color: "var(--text)", backgroundColor: "var(--panel)", border: "1px solid var(--line-strong)",
    borderRadius: "var(--radius)", maxHeight: "36rem",
  },
  "&.cm-focused": { outline: "3px solid var(--mark)", outlineOffset: "2px" },
  ".cm-scroller": {
    fontFamily: "var(--mono)", fontSize: ".9em", overflow: "auto", minHeight: "14rem",
  },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { color: "var(--quiet)", backgroundColor: "var(--sunken)", border: "0" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--info-ground) !important",
  },
  ".cm-matchingBracket": { backgroundColor: "var(--good-ground) !important" },
  ".cm-tooltip": {
    color: "var(--text)", backgroundColor: "var(--panel)", border: "1px solid var(--line-strong)",
  },
});

/* Open an editor in `parent`, which is in the shadow root `root`. `change` gets the text when it
   changes. */
export function openEditor({ parent, root, text, label, change }) {
  return new EditorView({
    parent,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(), foldGutter(), lintGutter(), history(), drawSelection(), indentOnInput(),
        bracketMatching(), highlightActiveLine(), EditorView.lineWrapping,
        json(), linter(jsonParseLinter()), syntaxHighlighting(colours), theme,
        keymap.of([...defaultKeymap, ...historyKeymap, ...foldKeymap, ...lintKeymap]),
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
        EditorView.updateListener.of(update => {
          if (update.docChanged) change(update.state.doc.toString());
        }),
      ],
    }),
  });
}
