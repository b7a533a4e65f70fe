// Shows /api/openapi.json with Swagger UI, and repeats the session's value against forged requests where something is changed.
"use strict";

let csrf = null;

const known = fetch("/api/auth/me", { credentials: "same-origin" })
  .then((answer) => (answer.ok ? answer.json() : {}))
  .then((me) => {
    csrf = me.csrf || null;
    const logout = document.getElementById("logout");
    logout.hidden = me.via !== "session";
    logout.addEventListener("click", async () => {
      await fetch("/api/auth/logout", { method: "POST", credentials: "same-origin", headers: { "X-CSRF-Token": csrf } });
      location.assign("/");
    });
  })
  .catch(() => {});

SwaggerUIBundle({
  dom_id: "#swagger-ui",
  url: "/api/openapi.json",
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  deepLinking: true,
  filter: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  validatorUrl: null,
  requestInterceptor: async (request) => {
    if (request.url.startsWith(location.origin + "/") || request.url.startsWith("/")) {
      await known;
      if (csrf !== null && !["GET", "HEAD"].includes((request.method || "GET").toUpperCase())) {
        request.headers["X-CSRF-Token"] = csrf;
      }
    }
    return request;
  },
});
