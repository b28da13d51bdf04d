// Turns the headings of a table into buttons that sort it and puts a filter above it; without scripts the table is
// simply whole and in its first order.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value;
      const rows = [...body.rows].sort((one, two) => {
        const a = value(one), b = value(two);
        if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
        const order = head.dataset.text === undefined ? a - b : a.localeCompare(b);
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });

  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter rows";
  field.setAttribute("aria-label", "Filter rows");
  const count = document.createElement("output");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = words.length ? `${shown} of ${body.rows.length} rows` : "";
  });
  const bar = document.createElement("div");
  bar.className = "filter";
  bar.append(field, count);
  table.closest(".scroll").before(bar);
}
