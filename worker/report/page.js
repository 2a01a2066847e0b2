(function () {
  "use strict";
  function all(selector, root) { return Array.prototype.slice.call((root || document).querySelectorAll(selector)); }

  // The filter of the attempts.
  var kind = document.getElementById("filter-kind"), words = document.getElementById("filter-words");
  if (kind && words) {
    var rows = all("#attempts-table tbody tr"), count = document.getElementById("filter-count");
    var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
    var apply = function () {
      var wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean), seen = 0;
      rows.forEach(function (row, index) {
        var fits = (!kind.value || row.dataset.kinds.split(" ").indexOf(kind.value) >= 0) &&
          wanted.every(function (word) { return texts[index].indexOf(word) >= 0; });
        row.hidden = !fits;
        seen += fits ? 1 : 0;
      });
      count.textContent = seen + " of " + rows.length;
    };
    kind.addEventListener("change", apply);
    words.addEventListener("input", apply);
  }

  // Folding.
  all("button[data-fold]").forEach(function (button) {
    button.addEventListener("click", function () {
      all("details", button.closest("section")).forEach(function (one) { one.open = button.dataset.fold === "open"; });
    });
  });

  // A link into something folded or filtered away shows it.
  function reveal() {
    var target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) { return; }
    if (target.hidden && kind) { kind.value = ""; words.value = ""; apply(); }
    for (var one = target; one; one = one.parentElement) { if (one.tagName === "DETAILS") { one.open = true; } }
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  reveal();

  // On paper everything is open.
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = all("details:not([open])");
    opened.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () { opened.forEach(function (one) { one.open = false; }); });
}());
