"use strict";
// Lets a reader search every table of class `sortable`, and sort it by a click on a column's head.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], rows = [...body.rows];
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Search " + rows.length + " rows";
  search.setAttribute("aria-label", search.placeholder);
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  });
  table.parentNode.before(search);
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") === "descending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const key = row => row.cells[place].textContent.trim();
      const number = text => parseFloat(text.replace(/[,<%\s]/g, ""));
      const compare = (a, b) => {
        const x = number(key(a)), y = number(key(b));
        return isNaN(x) || isNaN(y) ? key(b).localeCompare(key(a)) : x - y;
      };
      rows.sort((a, b) => rising ? compare(a, b) : compare(b, a));
      body.append(...rows);
    });
  });
}
