// Sends the form as the JSON that /api/auth/login takes. The answer sets the session's cookie, which scripts cannot read.
"use strict";

const form = document.getElementById("login");
const problem = document.getElementById("problem");
const button = form.querySelector("button");

function say(text) {
  problem.textContent = text;
  problem.hidden = false;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.hidden = true;
  button.disabled = true;
  try {
    const answer = await fetch("/api/auth/login", {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ name: form.elements.name.value, password: form.elements.password.value }),
    });
    if (answer.ok) {
      location.reload();
      return;
    }
    const told = await answer.json();
    say(told.detail || "The server refused the login.");
  } catch {
    say("The server does not answer; try again in a moment.");
  }
  form.elements.password.value = "";
  form.elements.password.focus();
  button.disabled = false;
});
