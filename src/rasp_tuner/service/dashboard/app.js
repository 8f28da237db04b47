// The page: which view the address asks for.

import { Refused, get, key } from "./api.js";
import { write } from "./dom.js";
import { showList } from "./list.js";
import { checkHealth, linkIs, showProblem } from "./shell.js";
import { showStudy } from "./study.js";

async function start() {
  const main = document.getElementById("main");
  document.getElementById("forget").addEventListener("click", () => {
    key.forget();
    location.reload();
  });
  const found = /^\/studies\/([^/]+)\/?$/.exec(location.pathname);
  try {
    if (found) await showStudy(main, decodeURIComponent(found[1]));
    else await showList(main);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) showProblem("No such study", error.message);
    else if (error instanceof Refused) showProblem("The server refused", error.message);
    else {
      showProblem("The server does not answer", "This page tries again every few seconds.");
      linkIs("lost");
      setTimeout(() => location.reload(), 5_000);
      if (!(error instanceof TypeError)) throw error; // a TypeError is what fetch throws without a network
    }
  }
  get("/version").then(
    ({ version }) => write(document.getElementById("version"), `RASP-Tuner ${version}`),
    () => undefined /* the foot of the page stays empty */,
  );
}

checkHealth();
start();
