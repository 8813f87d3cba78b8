const cases = [...document.querySelectorAll("fieldset")];
const choices = () => Object.fromEntries(cases.map(
  one => [one.name, (one.querySelector("input:checked") || {value: null}).value]));
const count = () => {
  const made = Object.values(choices()).filter(value => value).length;
  document.getElementById("made").textContent = `${made} of ${cases.length} chosen`;
};
document.addEventListener("change", count);
document.getElementById("save").addEventListener("click", () => {
  const set = document.querySelector("main").id;
  const data = JSON.stringify({set, choices: choices()}, null, 1);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], {type: "application/json"}));
  link.download = `choices-${set}.json`;
  link.click();
});
count();
