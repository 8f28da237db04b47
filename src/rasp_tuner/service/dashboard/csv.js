// A chart's numbers as a CSV file, made in the browser.

/** A cell: quoted where needed; a text that a spreadsheet would run as a formula begins with an apostrophe. */
function cell(x) {
  if (x === null || x === undefined) return "";
  if (typeof x === "number") return String(x);
  const text = /^[=+\-@\t\r]/.test(x) ? `'${x}` : String(x);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv({ columns, rows }) {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
}

export function download(name, table) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
  link.download = `${name.replaceAll(/[^\w.-]+/g, "-").slice(0, 80)}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
