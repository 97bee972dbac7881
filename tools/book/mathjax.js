// Typesets the page's formulas with the MathJax that lies beside this file; pages without a formula don't load it.
(function () {
  const folder = document.currentScript.src.replace(/mathjax\.js(\?.*)?$/, "");
  const load = () => {
    if (!document.querySelector(".math")) return;
    window.MathJax = {
      showMathMenu: false, messageStyle: "none", tex2jax: { ignoreClass: ".*", processClass: "math" },
      "HTML-CSS": { availableFonts: [], preferredFont: null, webFont: "STIX-Web", imageFont: null, EqnChunk: 200, linebreaks: { automatic: true } },
      AuthorInit: () => MathJax.Hub.Register.StartupHook("End", () => document.documentElement.setAttribute("data-typeset", "done")),
    };
    const script = document.createElement("script");
    script.src = folder + "mathjax/MathJax.js?config=TeX-AMS-MML_HTMLorMML-full";
    document.head.appendChild(script);
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", load) : load();
})();
