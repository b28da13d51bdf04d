// Turns the headings of a table into buttons that sort it; without scripts the table is simply in its first order.
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
}
