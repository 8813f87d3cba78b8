/* The page starts here. */

document.querySelectorAll("table.sortable").forEach(sortable);
followed([...document.querySelectorAll("nav li a")]);
const data = JSON.parse($("data").textContent);
if (!data.runs.length) {
  $("extent").textContent = "None of these runs has items to show: give one that is no control.";
} else if (!CAN_DECODE) {
  $("extent").textContent =
    "This browser cannot unpack the items of this page (it has no DecompressionStream): open it in " +
    "Chrome or Edge 80, Firefox 113, Safari 16.4 or later. The tables do not need it.";
} else browse(data);
