// Opens the reference on the document that the page names. A file of its own, so that the page
// needs no inline script.
"use strict";

window.ui = SwaggerUIBundle({
  dom_id: "#reference",
  deepLinking: true,
  displayRequestDuration: true,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
  url: document.body.dataset.document,
  validatorUrl: null,
});
