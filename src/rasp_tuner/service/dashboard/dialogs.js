// Questions to the operator: the key, and whether to freeze.

import { key } from "./api.js";
import { fresh, h, write } from "./dom.js";

function open(content, label) {
  const dialog = h("dialog", { "aria-labelledby": label }, content);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

/** Ask for an API key until one is given; it is kept for this tab's session only. */
export function askKey(wrong) {
  return new Promise((resolve) => {
    const label = fresh("key");
    const input = h("input", {
      type: "password",
      id: "key",
      name: "key",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
      placeholder: "rasp_…",
    });
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: label }, "This server needs a key"),
      h("p", { class: "problem", role: "alert" }, wrong ? "That key was not accepted." : ""),
      h(
        "p",
        {},
        "Make one with ",
        h("code", {}, "rasp keys create"),
        ". It stays in this tab and is gone when the tab closes.",
      ),
      h("label", { for: "key" }, "API key"),
      input,
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Use key")),
    );
    const dialog = open(form, label);
    dialog.addEventListener("cancel", (event) => event.preventDefault()); // there is nothing to see without it
    form.addEventListener("submit", () => {
      key.set(input.value.trim());
      resolve();
    });
  });
}

/** Ask whether to do something and do it; stays open with the reason where it is refused. */
export function confirm({ title, words, action, act }) {
  const label = fresh("confirm");
  const problem = h("p", { class: "problem", role: "alert" });
  const no = h("button", { type: "button" }, "Cancel");
  const yes = h("button", { type: "button", class: "first" }, action);
  const dialog = open(
    [h("h2", { id: label }, title), h("p", {}, words), problem, h("div", { class: "buttons" }, no, yes)],
    label,
  );
  no.addEventListener("click", () => dialog.close());
  yes.addEventListener("click", async () => {
    yes.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      write(problem, `Not done: ${error.message}.`);
      yes.disabled = false;
    }
  });
}
