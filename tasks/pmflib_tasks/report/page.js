// Long tables can be sorted and filtered; without this the page has all the same rows, in a sensible order.
"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, position) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent.trim();
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") === "descending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[position];
        if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
        const text = cell.textContent.trim();
        return cell.className === "n" ? Number(text.replace(/[ ,%]/g, "")) : text;
      };
      const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      const rows = [...body.rows].sort((a, b) => order(value(a), value(b)) * (rising ? 1 : -1));
      body.append(...rows);
    });
  });
  if (body.rows.length <= 20) continue;
  const tools = document.createElement("div");
  tools.className = "tools";
  const label = document.createElement("label");
  const input = document.createElement("input");
  const status = document.createElement("span");
  input.type = "search";
  status.setAttribute("role", "status");
  label.append("Only rows with ", input);
  tools.append(label, status);
  table.closest(".scroll").before(tools);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    status.textContent = `${shown} of ${body.rows.length}`;
  });
}
